"""Linear regression; gradients are averaged over the processes."""

import json
import os

import jax
import jax.numpy as jnp
from gate import STEPS, finish, passed, restored, save
from jax.experimental.multihost_utils import process_allgather

jax.config.update("jax_cpu_collectives_implementation", "gloo")
address = f"{os.environ['COORDINATOR_ADDRESS']}:{os.environ['COORDINATOR_PORT']}"
size, rank = int(os.environ["NUM_PROCESSES"]), int(os.environ["PROCESS_ID"])
jax.distributed.initialize(address, size, rank, heartbeat_timeout_seconds=10)
step, content = restored()
weights = jnp.array(json.loads(content) if content else [0.0] * 3)
gradient_of = jax.grad(lambda weights, x: jnp.mean((x @ weights - x.sum(1)) ** 2))
for now in range(step + 1, STEPS + 1):
    x = jax.random.normal(jax.random.key(100 * now + rank), (16, 3))
    gradients = process_allgather(gradient_of(weights, x))
    weights = weights - 0.05 * jnp.asarray(gradients).mean(0)
    if rank == 0:
        save(now, json.dumps(weights.tolist()))
    passed(now, rank)
finish(rank, json.dumps(weights.tolist()))
jax.distributed.shutdown()
