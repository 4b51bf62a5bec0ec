"""A small convolutional net on an image folder, read by two workers."""

import argparse
import os

import torch
from dataset import ImageFolder, RandomFlip
from torch import nn
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("data", help="folder with train and val")
parser.add_argument("--workers", type=int, default=2)
args = parser.parse_args()


def main():
    torch.manual_seed(11)
    loaders = {
        split: DataLoader(
            ImageFolder(os.path.join(args.data, split), RandomFlip()),
            batch_size=8,
            shuffle=split == "train",
            num_workers=args.workers,
        )
        for split in ("train", "val")
    }
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.BatchNorm2d(8),
        nn.Conv2d(8, 8, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2),
    )  # fmt: skip
    model(torch.zeros(1, 3, 24, 24))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    best = 1e9
    for epoch in range(2):
        for split, loader in loaders.items():
            model.train(split == "train")
            total = 0.0
            for x, y in loader:
                with torch.set_grad_enabled(split == "train"):
                    loss = nn.functional.cross_entropy(model(x), y)
                if split == "train":
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                total += loss.item() * len(y)
            total /= len(loader.dataset)
            print(f"epoch {epoch} {split} loss {total!r}")
            if split == "val" and total < best:
                best = total
                torch.save({"epoch": epoch, "model": model.state_dict()}, "best.pt")
        schedule.step()


if __name__ == "__main__":
    main()
