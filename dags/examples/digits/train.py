"""Train a small network on the digits images of scikit-learn, on any number of ranks.

A plain PyTorch DistributedDataParallel script: it knows nothing of who starts it. It reads the
variables that torchrun and Kubeflow set (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), and
`TRAINING_PROGRESS_FILE` and `TRAINING_OUTPUT_DIR` where they exist. Where the job has `checkpoint`,
it goes on from the step it broke at: the lines with `checkpoint` and `sampler` are all that takes.
"""

import argparse
import json
import os
import random
import time
from pathlib import Path

import numpy
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from airflow_training.checkpoints import Checkpointer, ResumableSampler


def images() -> tuple[TensorDataset, TensorDataset]:
    """Return the training and the test set: 8 x 8 grey images and their digit."""
    pixels, labels = load_digits(return_X_y=True)
    x = torch.tensor(pixels / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)
    y = torch.tensor(labels)
    train, test = train_test_split(range(len(y)), test_size=0.2, random_state=0, stratify=labels)
    return TensorDataset(x[train], y[train]), TensorDataset(x[test], y[test])


def network() -> nn.Module:
    """Return a convolutional network of about 40,000 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


class Training(nn.Module):
    """The network with its loss: what a plan is made for."""

    def __init__(self) -> None:
        super().__init__()
        self.network = network()

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(self.network(x), y)


def example() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Return what `spec.plan.model` traces: a module, and a batch of its inputs."""
    return Training(), (torch.zeros(16, 1, 8, 8), torch.zeros(16, dtype=torch.long))


def report(**line: object) -> None:
    """Append one line of progress for whoever watches."""
    if path := os.environ.get("TRAINING_PROGRESS_FILE"):
        with Path(path).open("a") as file:
            file.write(json.dumps({**line, "time": time.time()}) + "\n")


def accuracy(model: nn.Module, dataset: TensorDataset) -> float:
    """Return the share of images whose digit is found, 0 to 1."""
    x, y = dataset.tensors
    model.eval()
    with torch.no_grad():
        found = (model(x).argmax(dim=1) == y).float().mean().item()
    model.train()
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=16)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    for seed in (random.seed, numpy.random.seed, torch.manual_seed):
        seed(0)
    train, test = images()
    sampler = ResumableSampler(len(train), batch_size=args.batch_size, seed=0)
    loader = DataLoader(train, batch_sampler=sampler)
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    checkpoint = Checkpointer(
        model=model, optimizer=optimizer, data=sampler, scheduler=None, scaler=None, ema=None
    )
    total, step = args.epochs * len(loader), checkpoint.restore()

    for epoch in range(sampler.epoch, args.epochs):
        for x, y in sampler.batches(loader):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            checkpoint.step(step)
            step += 1
            if step % 5 == 0 or step == total:
                report(
                    step=step,
                    total_steps=total,
                    epoch=epoch,
                    samples=sampler.samples,
                    metrics={"loss": round(loss.item(), 4)},
                )
        print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
    checkpoint.close()

    if rank == 0:
        final = accuracy(model.module, test)
        report(
            step=total, total_steps=total, epoch=args.epochs, metrics={"accuracy": round(final, 4)}
        )
        print(f"accuracy {final:.4f} on {len(test)} images, trained by {world} ranks", flush=True)
        out = Path(os.environ.get("TRAINING_OUTPUT_DIR", "."))
        torch.save(model.module.state_dict(), out / "model.pt")
        (out / "metrics.json").write_text(json.dumps({"accuracy": final, "world_size": world}))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
