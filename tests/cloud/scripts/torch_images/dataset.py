"""An image folder: classes are folders, pictures are opened when they are asked for."""

import os

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset


class ImageFolder(Dataset):
    def __init__(self, root, transform):
        self.classes = sorted(os.listdir(root))
        self.transform = transform
        self.samples = [
            (os.path.join(root, name, file), label)
            for label, name in enumerate(self.classes)
            for file in sorted(os.listdir(os.path.join(root, name)))
        ]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, label = self.samples[index]
        with Image.open(path) as image:
            return self.transform(image.convert("RGB")), label


class RandomFlip:
    """Needs the seed of each worker to be that of the run."""

    def __call__(self, image):
        tensor = torch.from_numpy(np.asarray(image, dtype=np.float32).transpose(2, 0, 1) / 255)
        return tensor.flip(2) if torch.rand(1).item() < 0.5 else tensor
