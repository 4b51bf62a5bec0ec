"""Linear regression by mpi4py: gradients are summed over the ranks, as Hydra of MPICH starts them."""

import os

# ranks are processes inside of workers, and the gate's witness is for each of them
os.environ["TRAINING_RANK"] = os.environ["PMI_RANK"]

from gate import STEPS, finish, passed, restored, save
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()
step, content = restored()
weight = float(content or 0)
for now in range(step + 1, STEPS + 1):
    x = 1 + 0.1 * ((rank + now) % 5)
    weight -= 0.05 * world.allreduce(2 * x * (weight * x - 3 * x)) / size
    if rank == 0:
        save(now, str(weight))
    passed(now, rank)
finish(rank, str(weight))
