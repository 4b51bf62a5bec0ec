"""Linear regression by gradient descent on a table; relative paths; figures as text and as npz."""

import argparse
import json
import os

import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--data", default="data/table.csv")
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--steps", type=int, default=30)
args = parser.parse_args()

table = np.loadtxt(args.data, delimiter=",")
features, target = table[:, :-1], table[:, -1]
weights, bias = np.zeros(features.shape[1]), 0.0
history = []
for step in range(args.steps):
    error = features @ weights + bias - target
    weights -= args.lr * features.T @ error / len(target)
    bias -= args.lr * error.mean()
    history.append(float((error**2).mean()))
    print(f"step {step} loss {history[-1]!r}")
os.makedirs("out", exist_ok=True)
np.savez("out/weights.npz", weights=weights, bias=bias)
with open("out/history.json", "w") as file:
    json.dump(history, file)
