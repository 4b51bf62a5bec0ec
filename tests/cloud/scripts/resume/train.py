"""Goes on from a checkpoint: model, optimizer, schedule and the state of the random numbers."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--resume")
parser.add_argument("--checkpoint", default="last.ckpt")
args = parser.parse_args()

torch.manual_seed(4)
model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.2), nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
begin = 0
if args.resume:
    kept = torch.load(args.resume, weights_only=True)
    model.load_state_dict(kept["model"])
    optimizer.load_state_dict(kept["optimizer"])
    schedule.load_state_dict(kept["schedule"])
    torch.set_rng_state(kept["random"])
    begin = kept["epoch"] + 1
    print(f"goes on with epoch {begin}, loss was {kept['loss']!r}")
for epoch in range(begin, args.epochs):
    for _ in range(10):
        x = torch.randn(32, 8)
        loss = nn.functional.mse_loss(model(x).squeeze(1), x.sum(1).sin())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    schedule.step()
    print(f"epoch {epoch} loss {loss.item()!r} lr {schedule.get_last_lr()[0]!r}")
    torch.save(
        {
            "epoch": epoch,
            "loss": loss.item(),
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "schedule": schedule.state_dict(),
            "random": torch.get_rng_state(),
        },
        args.checkpoint,
    )
