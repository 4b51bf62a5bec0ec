"""A package with relative imports and a file of its own, absolute paths, safetensors."""

import argparse
import glob
import importlib.resources
import json
import os

import torch
from safetensors.torch import save_file
from torch import nn

from .model import Bag

defaults = json.loads(importlib.resources.files(__package__).joinpath("defaults.json").read_text())
parser = argparse.ArgumentParser()
parser.add_argument("--samples", required=True)
parser.add_argument("--output", required=True)
args = parser.parse_args()

torch.manual_seed(3)
samples = []
for path in sorted(glob.glob(os.path.join(args.samples, "*.json"))):
    with open(path) as file:
        samples.append(json.load(file))
model = Bag(defaults["size"])
optimizer = torch.optim.Adam(model.parameters(), lr=defaults["lr"])
os.makedirs(args.output, exist_ok=True)
with open(os.path.join(args.output, "metrics.jsonl"), "w") as metrics:
    for epoch in range(defaults["epochs"]):
        lengths = torch.tensor([0, *(len(each["tokens"]) for each in samples)])
        tokens = torch.tensor([token for each in samples for token in each["tokens"]])
        labels = torch.tensor([each["label"] for each in samples])
        loss = nn.functional.cross_entropy(model(tokens, lengths.cumsum(0)[:-1]), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        metrics.write(json.dumps({"epoch": epoch, "loss": loss.item()}) + "\n")
        print(f"epoch {epoch} loss {loss.item()!r}")
save_file(model.state_dict(), os.path.join(args.output, "model.safetensors"))
