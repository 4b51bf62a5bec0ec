"""What Megatron-LM's own parser and checks make of words: a JSON case a line, one answer a line.

Runs in an environment with torch, with a checkout of Megatron-LM on the path.
"""

import os
import sys
import typing

if not hasattr(typing, "override"):  # Megatron-LM 0.19 is written for Python 3.12
    typing.override = lambda method: method

import torch
from answering import answer
from megatron.core import utils
from megatron.training import arguments
from packaging.version import Version

torch.distributed.init_process_group(
    "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
)

# No GPU here: as on Hopper, whose checks are the strictest.
arguments.get_device_arch_version = lambda: 9
utils.get_te_version = lambda: Version(
    "2.9"
)  # Transformer Engine, which fp8 and context parallelism need


def understood(case):
    sys.argv = ["pretrain_gpt.py", *case["words"]]
    os.environ |= {"WORLD_SIZE": str(case["world"]), "RANK": "0"}
    os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
    os.environ |= case["env"]
    args = arguments.parse_args()
    arguments.validate_args(args)
    arguments.core_transformer_config_from_args(args)  # which checks the layout of the stages
    sharded = getattr(args, "use_megatron_fsdp", False)
    stages = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
    return {
        "tp": args.tensor_model_parallel_size,
        "pp": args.pipeline_model_parallel_size,
        "cp": args.context_parallel_size,
        "ep": args.expert_model_parallel_size,
        "dp": args.data_parallel_size,
        "virtual_stages": args.virtual_pipeline_model_parallel_size or 1,
        "micro_batch": args.micro_batch_size,
        "global_batch": args.global_batch_size,
        "zero": stages[args.data_parallel_sharding_strategy]
        if sharded
        else int(args.use_distributed_optimizer),
        "sequence_parallel": args.sequence_parallel,
        "recompute": args.recompute_granularity or "none",
        "overlap": args.overlap_grad_reduce,
        "prefetch": args.overlap_param_gather,
        "precision": "fp8" if args.fp8 else str(args.params_dtype).removeprefix("torch."),
        "stage_layers": layers_of(args),
    }


def layers_of(args):
    """Return the layers of each stage in the order of the layers."""
    stages = args.pipeline_model_parallel_size * (args.virtual_pipeline_model_parallel_size or 1)
    text = args.pipeline_model_parallel_layout
    if text is None:
        assert args.num_layers % stages == 0
        return [args.num_layers // stages] * stages
    layout = arguments.PipelineParallelLayerLayout(text, args.pipeline_model_parallel_size).layout
    in_order = [rank[turn] for turn in range(len(layout[0])) for rank in layout]
    return [sum(layer.name == "decoder" for layer in stage) for stage in in_order]


answer(understood)
