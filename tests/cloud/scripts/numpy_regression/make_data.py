"""Makes the table that train.py reads."""

import csv
from pathlib import Path

import numpy as np

rng = np.random.default_rng(7)
x = rng.normal(size=(200, 3))
y = x @ [1.5, -2.0, 0.5] + 0.3 + rng.normal(scale=0.1, size=200)
Path("data").mkdir()
with open("data/table.csv", "w", newline="") as file:
    csv.writer(file).writerows([*row, target] for row, target in zip(x, y))
