"""A model as people describe it, and how its training is split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from airflow_training.planning.view.program import Recompute

Overlap = Literal["none", "dp", "all", "fsdp-prefetch"]
Schedule = Literal["gpipe", "1f1b", "interleaved"]
Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerModel:
    """The sizes of a decoder-only or encoder transformer."""

    hidden: int
    layers: int
    heads: int
    seq: int
    vocab: int
    family: str = "gpt"
    kv_heads: int | None = None
    """None: as many as `heads`."""
    ffn: int | None = None
    """None: four times `hidden`."""
    mlp: Literal["gelu", "swiglu", "geglu", "relu"] = "gelu"
    tied_embeddings: bool = True
    attention: Literal["unfused", "flash"] = "flash"
    experts: int = 0
    experts_per_token: int = 0
    expert_ffn: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelConfig:
    """How a training step is split over devices, whoever plans it or carries it out."""

    global_batch: int
    """Samples per step."""
    micro_batch: int = 1
    """Samples per data-parallel replica and pass."""
    tp: int = 1
    pp: int = 1
    dp: int = 1
    cp: int = 1
    ep: int = 1
    virtual_stages: int = 1
    """Stages of each rank of the pipeline."""
    zero: Literal[0, 1, 2, 3] = 0
    sequence_parallel: bool = False
    recompute: Recompute = "none"
    stage_layers: tuple[int, ...] | None = None
    """Layers of each stage, first to last; None: as even as they divide."""

    @property
    def devices(self) -> int:
        """How many devices it takes (expert parallel reuses data-parallel ranks)."""
        return self.tp * self.pp * self.dp * self.cp


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy(ParallelConfig):
    """A split that the planner prices: with what else decides how long a step takes."""

    overlap: Overlap = "none"
    schedule: Schedule = "1f1b"
    precision: Precision = "bf16"
    stage_devices: tuple[str, ...] | None = None
    """Device group (a node group's name) of each stage; None: one kind of device."""
