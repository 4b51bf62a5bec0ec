"""The first loop of every course: a small net on digits, shuffled batches, Adam, a checkpoint for each epoch."""

import argparse
import pathlib

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--lr", type=float, default=1e-3)
args = parser.parse_args()

torch.manual_seed(0)
images, labels = load_digits(return_X_y=True)
data = TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels))
training, validation = random_split(data, [1500, len(data) - 1500])
model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
criterion = nn.CrossEntropyLoss()
pathlib.Path("checkpoints").mkdir(exist_ok=True)
for epoch in range(args.epochs):
    model.train()
    for number, (x, y) in enumerate(DataLoader(training, args.batch_size, shuffle=True)):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        if number % 5 == 0:
            print(f"epoch {epoch} batch {number} loss {loss.item()!r}")
    model.eval()
    with torch.no_grad():
        hits = sum((model(x).argmax(1) == y).sum().item() for x, y in DataLoader(validation, 256))
    print(f"epoch {epoch} accuracy {hits / len(validation)!r}")
    torch.save(model.state_dict(), f"checkpoints/epoch-{epoch}.pt")
torch.save(model.state_dict(), "model.pt")
