"""Data parallel training as the tutorial has it: started by torchrun, a sampler, rank 0 saves."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1)
x = torch.randn(256, 10)
data = TensorDataset(x, x @ torch.arange(10.0) / 10)
model = DistributedDataParallel(nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
sampler = DistributedSampler(data, seed=3)
loader = DataLoader(data, batch_size=16, sampler=sampler)
for epoch in range(3):
    sampler.set_epoch(epoch)
    total = torch.zeros(1)
    for inputs, target in loader:
        loss = nn.functional.mse_loss(model(inputs).squeeze(1), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    dist.all_reduce(total)
    if rank == 0:
        print(f"epoch {epoch} loss {total.item() / len(loader) / size!r}")
if rank == 0:
    os.makedirs("out", exist_ok=True)
    torch.save(model.module.state_dict(), "out/ddp.pt")
dist.destroy_process_group()
