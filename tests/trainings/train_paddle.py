"""Linear regression with DataParallel over gloo; `paddle.distributed.launch` gives the ranks."""

import json

import paddle
import paddle.distributed as dist
from gate import STEPS, finish, passed, restored, save

paddle.set_device("cpu")
dist.init_parallel_env()
rank = dist.get_rank()
layer = paddle.nn.Linear(3, 1)
step, content = restored()
if content:
    layer.weight.set_value(paddle.to_tensor(json.loads(content)))
parallel = paddle.DataParallel(layer)
optimizer = paddle.optimizer.SGD(0.05, parameters=layer.parameters())
for now in range(step + 1, STEPS + 1):
    paddle.seed(100 * now + rank)
    x = paddle.randn([16, 3])
    loss = paddle.nn.functional.mse_loss(parallel(x), x.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()
    if rank == 0:
        save(now, json.dumps(layer.weight.numpy().tolist()))
    passed(now, rank)
dist.barrier()
finish(rank, json.dumps(layer.weight.numpy().tolist()))
