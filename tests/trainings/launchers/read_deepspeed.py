"""What DeepSpeed's own configuration makes of ours: a JSON case a line, one answer a line.

The groups that `deepspeed.initialize` would make of processes are stood in for by their sizes.
"""

import json

from answering import answer  # isort: skip
import torch
from deepspeed.runtime import config as theirs


class Groups:
    """What a pipeline of DeepSpeed, or the script, hands over: it knows its replicas."""

    def __init__(self, replicas):
        self.replicas = replicas

    def get_data_parallel_world_size(self):
        return self.replicas


class Mesh:
    """The mesh that DeepSpeed makes of `data_parallel_size` and `sequence_parallel_size`."""

    def __init__(self, replicas):
        self.replicas = replicas

    def get_group(self, mesh_dim):
        assert mesh_dim == "data_parallel"
        return self


def understood(case):
    given = json.loads(case["text"])
    world, replicas = case["world"], given.get("data_parallel_size")
    sequence = given.get("sequence_parallel_size", 1)
    groups = Groups(case["replicas"]) if case["replicas"] else None
    mesh = None
    if replicas:
        assert replicas * sequence == world, f"{replicas} x {sequence} processes, not {world}"
        mesh = Mesh(replicas)
    theirs.dist.get_rank = lambda: 0
    theirs.dist.get_world_size = lambda group=None: group.replicas if group else world
    config = theirs.DeepSpeedConfig(given, groups, mesh_device=mesh)
    zero = config.zero_config
    types = {
        torch.float16: config.float16_config.enabled,
        torch.bfloat16: config.bfloat16_config.enabled,
    }
    (precision,) = [str(kind)[6:] for kind, on in types.items() if on] or ["float32"]
    tp = max(1, config.tensor_parallel_config.autotp_size)
    return {
        "tp": tp,
        "cp": sequence,
        "dp": case["replicas"] or world // (tp * sequence),
        "micro_batch": config.train_micro_batch_size_per_gpu,
        "rounds": config.gradient_accumulation_steps,
        "global_batch": config.train_batch_size // tp,
        "zero": int(zero.stage),
        "overlap": zero.overlap_comm,
        "precision": precision,
        "offload": bool(zero.offload_optimizer or zero.offload_param),
    }


answer(understood)
