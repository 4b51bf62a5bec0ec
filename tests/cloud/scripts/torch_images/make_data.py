"""Makes a folder of pictures, one folder for each class."""

import random
from pathlib import Path

from PIL import Image, ImageDraw

random.seed(5)
for split, count in (("train", 24), ("val", 8)):
    for name in ("circle", "square"):
        folder = Path("pictures", split, name)
        folder.mkdir(parents=True)
        for number in range(count):
            image = Image.new("RGB", (24, 24), (random.randrange(60),) * 3)
            left, top, size = random.randrange(8), random.randrange(8), random.randrange(8, 14)
            draw = ImageDraw.Draw(image)
            box = (left, top, left + size, top + size)
            (draw.ellipse if name == "circle" else draw.rectangle)(box, fill=(220, 200, 180))
            image.save(folder / f"{number:03d}.png")
