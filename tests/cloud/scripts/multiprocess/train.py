"""A process that is spawned by the script trains a model in shared memory, as Hogwild does."""

import os
import tempfile

import torch
import torch.multiprocessing as mp
from torch import nn


def work(number, model, path):
    torch.manual_seed(number)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        x = torch.randn(16, 4)
        loss = (model(x).squeeze(1) - x.mean(1)).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with open(path, "a") as file:
        file.write(f"worker {number} loss {loss.item()!r}\n")


if __name__ == "__main__":
    torch.manual_seed(10)
    model = nn.Linear(4, 1)
    model.share_memory()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "losses.txt")
        process = mp.get_context("spawn").Process(target=work, args=(1, model, path))
        process.start()
        process.join()
        assert process.exitcode == 0
        with open(path) as file:
            print(file.read(), end="")
    torch.save(model.state_dict(), "shared.pt")
