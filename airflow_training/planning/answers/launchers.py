"""A strategy as training programs read it: variables, Megatron-LM arguments, DeepSpeed, torchtitan.

Spellings are those of Megatron-LM with Megatron-Core 0.16 to 0.19, DeepSpeed 0.19 and torchtitan 0.2, whose
own parsers read ours in `make frameworks` (tests/trainings/launchers).
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping
from typing import Any

from airflow_training.planning.view.stages import even_layers
from airflow_training.planning.view.strategy import Strategy

__all__ = [
    "MEGATRON_VARIABLES",
    "batch_variables",
    "deepspeed_config",
    "megatron_arguments",
    "megatron_variables",
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


def megatron_arguments(strategy: Strategy, layers: int | None = None) -> list[str]:
    """Return the words of Megatron-LM's command line that say the same as the strategy.

    `layers`: of the model; without them stages are uneven only where the strategy names their layers.
    """
    words = [
        f"--tensor-model-parallel-size {strategy.tp}",
        f"--pipeline-model-parallel-size {strategy.pp}",
        f"--context-parallel-size {strategy.cp}",
        f"--micro-batch-size {strategy.micro_batch}",
        f"--global-batch-size {strategy.global_batch}",
    ]
    if strategy.ep > 1:
        words.append(f"--expert-model-parallel-size {strategy.ep}")
    if uneven := _uneven_stages(strategy, layers):
        words.append(f"--pipeline-model-parallel-layout {_layout(uneven)}")
    elif strategy.virtual_stages > 1:
        words.append(f"--num-virtual-stages-per-pipeline-rank {strategy.virtual_stages}")
    if strategy.sequence_parallel or strategy.ep > 1 < strategy.tp:  # else it refuses experts
        words.append("--sequence-parallel")
    words += _MEGATRON_ZERO[strategy.zero]
    words += _MEGATRON_RECOMPUTE[strategy.recompute]
    if strategy.overlap != "none":
        words.append("--overlap-grad-reduce")
        if strategy.zero:
            words.append("--overlap-param-gather")
    words += _MEGATRON_PRECISION[strategy.precision]
    return [part for word in words for part in word.split(" ")]


MEGATRON_VARIABLES = frozenset({"CUDA_DEVICE_MAX_CONNECTIONS"})
"""Those that `megatron_variables` may hold."""


def megatron_variables(strategy: Strategy) -> dict[str, str]:
    """Return the environment variables that Megatron-LM asks for with these arguments on GPUs older than Blackwell.

    It refuses them without, and refuses to shard gradients (ZeRO 2 and 3) with it.
    """
    split_inside = strategy.tp * strategy.cp > 1
    return dict.fromkeys(MEGATRON_VARIABLES, "1") if split_inside and strategy.zero < 2 else {}


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


def _uneven_stages(strategy: Strategy, layers: int | None) -> tuple[int, ...] | None:
    """Return the layers of each stage where they are not all the same."""
    counts = strategy.stage_layers
    if counts is None and layers is not None:
        stages = strategy.pp * strategy.virtual_stages
        counts = tuple(even_layers(layers, stages).tolist())
    return counts if counts and len(set(counts)) > 1 else None


def deepspeed_config(strategy: Strategy) -> str:
    """Return DeepSpeed's configuration file: JSON.

    Tensor parallelism (AutoTP) or sequence parallelism (Ulysses) by themselves are DeepSpeed's to do.
    Any other split needs groups of the script's, or a `PipelineModule`: DeepSpeed refuses to begin without.
    """
    config: dict[str, Any] = {
        "train_batch_size": strategy.global_batch,
        "train_micro_batch_size_per_gpu": strategy.micro_batch,
        "gradient_accumulation_steps": micro_batches(strategy),
        "zero_optimization": {
            "stage": strategy.zero,
            "overlap_comm": strategy.overlap != "none",
        },
    }
    if strategy.tp > 1 and strategy.pp == strategy.cp == 1:
        config["tensor_parallel"] = {"autotp_size": strategy.tp}
        del config["train_batch_size"]  # in its check every process would be a replica
    elif strategy.cp > 1 and strategy.pp == strategy.tp == 1:
        config["sequence_parallel_size"] = strategy.cp
        config["data_parallel_size"] = strategy.dp
    if strategy.precision == "fp16":
        config["fp16"] = {"enabled": True}
    elif strategy.precision in ("bf16", "fp8"):
        config["bf16"] = {"enabled": True}
    return json.dumps(config, indent=2) + "\n"


def torchtitan_config(strategy: Strategy, layers: int | None = None) -> str:
    """Return the tables of torchtitan's TOML configuration that the plan decides.

    With FSDP the data-parallel ranks shard the parameters, otherwise they replicate. torchtitan refuses
    plain replicas beside another axis, so ZeRO 0 and 1 shard there as well, and do not reshard after
    the forward pass. `layers`: of the model; without them an interleaved rank has two virtual stages.
    """
    pipelined = strategy.pp > 1
    rounds = micro_batches(strategy)
    shard = _shard_degree(strategy)
    training = {
        # a pipeline cuts the local batch itself; without one it accumulates over local batches
        "local_batch_size": strategy.micro_batch * (rounds if pipelined else 1),
        "global_batch_size": strategy.global_batch,
        "mixed_precision_param": _TORCH_TYPES[strategy.precision],
    }
    parallelism: dict[str, Any] = {
        "data_parallel_replicate_degree": strategy.dp // shard,
        "data_parallel_shard_degree": shard,
        "fsdp_reshard_after_forward": "always" if strategy.zero == 3 else "never",
        "tensor_parallel_degree": strategy.tp,
        "context_parallel_degree": strategy.cp,
        "expert_parallel_degree": strategy.ep,
        "pipeline_parallel_degree": strategy.pp,
    }
    if strategy.ep > 1:
        parallelism["expert_tensor_parallel_degree"] = strategy.tp
    if pipelined:
        parallelism["pipeline_parallel_schedule"] = _schedule(strategy)
        parallelism["pipeline_parallel_microbatch_size"] = strategy.micro_batch
        parallelism |= _torchtitan_stages(strategy, layers)
    tables = {
        "training": training,
        "parallelism": parallelism,
        "activation_checkpoint": {"mode": strategy.recompute, "selective_ac_option": "op"},
    }
    return "\n".join(_toml_table(name, values) for name, values in tables.items())


_TORCH_TYPES: Mapping[str, str] = {
    "fp32": "float32",
    "tf32": "float32",
    "fp16": "float16",  # not among the values it documents, as it scales no loss
    "bf16": "bfloat16",
    "fp8": "bfloat16",  # fp8 is a converter of its own there
}


def _shard_degree(strategy: Strategy) -> int:
    """Return over how many data-parallel ranks torchtitan shards."""
    if strategy.zero >= 2:
        return strategy.dp
    if strategy.ep > 1:  # an expert's ranks are those of the context and of shards
        return strategy.ep // math.gcd(strategy.ep, strategy.cp)
    return 1 if strategy.cp > 1 or strategy.tp * strategy.pp == 1 else strategy.dp


def _torchtitan_stages(strategy: Strategy, layers: int | None) -> dict[str, Any]:
    """Return how the layers lie on the stages: by number where they are even, else by name."""
    if uneven := _uneven_stages(strategy, layers):
        edges = (0, *itertools.accumulate(uneven))
        stages = [[f"layers.{n}" for n in range(*edge)] for edge in itertools.pairwise(edges)]
        stages[0].insert(0, "tok_embeddings")
        stages[-1] += ["norm", "output"]
        return {"module_fqns_per_model_part": stages}
    if layers is None:
        return {}
    return {
        "pipeline_parallel_layers_per_stage": layers // (strategy.pp * strategy.virtual_stages),
        "pipeline_parallel_first_stage_less_layers": 0,
        "pipeline_parallel_last_stage_less_layers": 0,
    }


def _schedule(strategy: Strategy) -> str:
    if strategy.virtual_stages > 1:
        return "Interleaved1F1B"
    return "GPipe" if strategy.schedule == "gpipe" else "1F1B"


def _toml_table(name: str, values: Mapping[str, Any]) -> str:
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    return "\n".join([f"[{name}]", *lines]) + "\n"
