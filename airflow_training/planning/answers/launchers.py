"""A strategy as training programs read it: variables, Megatron-LM arguments, DeepSpeed, torchtitan.

Spellings are those of Megatron-Core 0.13, DeepSpeed 0.16 and torchtitan 0.1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from airflow_training.planning.view.strategy import Strategy

__all__ = [
    "batch_variables",
    "deepspeed_config",
    "megatron_arguments",
    "micro_batches",
    "split_variables",
    "torchtitan_config",
]


def micro_batches(strategy: Strategy) -> int:
    """Return how many micro-batches a replica runs per step."""
    return max(1, strategy.global_batch // (strategy.dp * strategy.micro_batch))


def split_variables(strategy: Strategy) -> dict[str, str]:
    """Return the variables that tell how the model is split."""
    return {
        "TP_SIZE": str(strategy.tp),
        "PP_SIZE": str(strategy.pp),
        "DP_SIZE": str(strategy.dp),
        "CP_SIZE": str(strategy.cp),
        "EP_SIZE": str(strategy.ep),
        "VIRTUAL_STAGES": str(strategy.virtual_stages),
        "ZERO_STAGE": str(strategy.zero),
        "SEQUENCE_PARALLEL": str(int(strategy.sequence_parallel)),
        "RECOMPUTE": strategy.recompute,
        "PRECISION": strategy.precision,
    }


def batch_variables(strategy: Strategy) -> dict[str, str]:
    """Return the variables that tell how large a batch is, in samples."""
    return {
        "MICRO_BATCH_SIZE": str(strategy.micro_batch),
        "GLOBAL_BATCH_SIZE": str(strategy.global_batch),
        "GRADIENT_ACCUMULATION_STEPS": str(micro_batches(strategy)),
    }


def megatron_arguments(strategy: Strategy) -> list[str]:
    """Return the words of Megatron-LM's command line that say the same as the strategy."""
    words = [
        f"--tensor-model-parallel-size {strategy.tp}",
        f"--pipeline-model-parallel-size {strategy.pp}",
        f"--context-parallel-size {strategy.cp}",
        f"--micro-batch-size {strategy.micro_batch}",
        f"--global-batch-size {strategy.global_batch}",
    ]
    if strategy.ep > 1:
        words.append(f"--expert-model-parallel-size {strategy.ep}")
    if strategy.stage_layers is not None and len(set(strategy.stage_layers)) > 1:
        words.append(f"--pipeline-model-parallel-layout {_layout(strategy.stage_layers)}")
    elif strategy.virtual_stages > 1:
        words.append(f"--num-virtual-stages-per-pipeline-rank {strategy.virtual_stages}")
    if strategy.sequence_parallel:
        words.append("--sequence-parallel")
    words += _MEGATRON_ZERO[strategy.zero]
    words += _MEGATRON_RECOMPUTE[strategy.recompute]
    if strategy.overlap != "none":
        words.append("--overlap-grad-reduce")
        if strategy.zero:
            words.append("--overlap-param-gather")
    words += _MEGATRON_PRECISION[strategy.precision]
    return [part for word in words for part in word.split(" ")]


_FSDP = "--use-megatron-fsdp --no-gradient-accumulation-fusion --ckpt-format fsdp_dtensor"
_MEGATRON_ZERO: Mapping[int, list[str]] = {
    0: [],
    1: ["--use-distributed-optimizer"],
    2: [
        "--use-distributed-optimizer",
        f"{_FSDP} --data-parallel-sharding-strategy optim_grads",
    ],
    3: [
        "--use-distributed-optimizer",
        f"{_FSDP} --data-parallel-sharding-strategy optim_grads_params",
    ],
}
_MEGATRON_RECOMPUTE: Mapping[str, list[str]] = {
    "none": [],
    "selective": ["--recompute-granularity selective"],
    "full": ["--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"],
}
_MEGATRON_PRECISION: Mapping[str, list[str]] = {
    "fp32": [],
    "tf32": [],  # a matter of PyTorch, not of Megatron
    "fp16": ["--fp16"],
    "bf16": ["--bf16"],
    "fp8": ["--bf16", "--fp8-format hybrid"],
}


def _layout(stage_layers: tuple[int, ...]) -> str:
    """Return Megatron's text for uneven stages: embedding, layers, loss, `|` between stages."""
    stages = [f"t*{layers}" if layers else "" for layers in stage_layers]
    return f"E{'|'.join(stages)}L"


def deepspeed_config(strategy: Strategy) -> str:
    """Return DeepSpeed's configuration file: JSON."""
    config: dict[str, Any] = {
        "train_batch_size": strategy.global_batch,
        "train_micro_batch_size_per_gpu": strategy.micro_batch,
        "gradient_accumulation_steps": micro_batches(strategy),
        "zero_optimization": {
            "stage": strategy.zero,
            "overlap_comm": strategy.overlap != "none",
        },
    }
    if strategy.precision == "fp16":
        config["fp16"] = {"enabled": True}
    elif strategy.precision in ("bf16", "fp8"):
        config["bf16"] = {"enabled": True}
    return json.dumps(config, indent=2) + "\n"


def torchtitan_config(strategy: Strategy) -> str:
    """Return the tables of torchtitan's TOML configuration that the plan decides.

    With FSDP (ZeRO 2 or 3) the data-parallel ranks shard the parameters, otherwise they replicate.
    """
    sharded = strategy.zero >= 2
    pipelined = strategy.pp > 1
    rounds = micro_batches(strategy)
    training = {
        # a pipeline cuts the local batch itself; without one it accumulates over local batches
        "local_batch_size": strategy.micro_batch * (rounds if pipelined else 1),
        "global_batch_size": strategy.global_batch,
        "mixed_precision_param": _TORCH_TYPES[strategy.precision],
    }
    parallelism: dict[str, Any] = {
        "data_parallel_replicate_degree": 1 if sharded else strategy.dp,
        "data_parallel_shard_degree": strategy.dp if sharded else 1,
        "fsdp_reshard_after_forward": "always" if strategy.zero == 3 else "never",
        "tensor_parallel_degree": strategy.tp,
        "context_parallel_degree": strategy.cp,
        "expert_parallel_degree": strategy.ep,
        "pipeline_parallel_degree": strategy.pp,
    }
    if pipelined:
        parallelism["pipeline_parallel_schedule"] = _schedule(strategy)
        parallelism["pipeline_parallel_microbatch_size"] = strategy.micro_batch
    tables = {
        "training": training,
        "parallelism": parallelism,
        "activation_checkpoint": {"mode": strategy.recompute},
    }
    return "\n".join(_toml_table(name, values) for name, values in tables.items())


_TORCH_TYPES: Mapping[str, str] = {
    "fp32": "float32",
    "tf32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp8": "bfloat16",  # fp8 is a converter of its own there
}


def _schedule(strategy: Strategy) -> str:
    if strategy.virtual_stages > 1:
        return "Interleaved1F1B"
    return "GPipe" if strategy.schedule == "gpipe" else "1F1B"


def _toml_table(name: str, values: Mapping[str, Any]) -> str:
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    return "\n".join([f"[{name}]", *lines]) + "\n"
