"""What one device does in one micro-batch once a view is split: the only thing that cost reads of a model.

Numbers are floats, or numpy arrays of one common shape: a table of strategies is lowered and priced at
once. Bytes and FLOPs are those of one device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from airflow_training.planning.view.computation import Phase

Number: TypeAlias = float | npt.NDArray[np.float64]
Collective = Literal[
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv"
]
MeshAxis = Literal["tp", "cp", "ep", "dp", "pp"]
Recompute = Literal["none", "selective", "full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """One kernel, or a few that always run together."""

    name: str
    kind: str
    """`matmul`, `attention`, `elementwise`, `norm`, `softmax`, `embedding`, `loss`, `conv`, ..."""
    phase: Phase
    flops: Number
    read_bytes: Number
    written_bytes: Number
    gemm: tuple[Number, Number, Number, Number] | None = None
    """(batch, m, n, k) of a matrix multiplication, for its tile and wave quantisation."""
    row_lengths: tuple[Number, Number, Number] | None = None
    """Numbers in a row of both operands of a matrix multiplication, and of its result."""
    dtype: str = "compute"
    count: float = 1.0
    recomputed_in: frozenset[Recompute] = frozenset()
    """The recompute modes in which the backward pass runs this forward kernel again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """One collective over a mesh axis."""

    name: str
    collective: Collective
    axis: MeshAxis
    phase: Phase
    payload_bytes: Number
    """nccl-tests' `size`: the whole tensor that the group reduces, gathers or scatters.

    For all_to_all and send_recv what one device holds and sends.
    """
    count: float = 1.0
    recomputed_in: frozenset[Recompute] = frozenset()
    overlaps: str = ""
    """Name of the compute that can hide it; empty where the next kernel waits for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Parameters that one device holds and that are replicated (and reduced) over the same axes."""

    elements: Number
    replicated_over: tuple[MeshAxis, ...] = ("dp", "ep", "cp")
    """`ep` lies inside data parallelism: `dp` here counts the dp/ep groups of experts.

    Parameters of a dense layer have both, those of experts only `dp`.
    """
    shared_with: str = ""
    """Name of the unit that holds the same weights (tied embeddings); reduced between the two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramPiece:
    """One unit of the view, lowered; `repeat` equal ones follow each other."""

    name: str
    repeat: int
    work: tuple[Compute | Transfer, ...]
    """Forward, then backward, in order."""
    parameters: tuple[Parameters, ...]
    update: tuple[Compute, ...] = ()
    """The optimizer's kernels for all parameters of this piece, once per step."""
    saved_bytes: Mapping[Recompute, Number]
    """Activations kept from forward to backward for each recompute mode, per micro-batch."""
    working_bytes: Number
    """Most that lives beside `saved_bytes["none"]` inside one pass over one copy of the unit.

    A unit that is recomputed needs its own `saved_bytes["none"]` on top while it runs.
    """
    boundary_bytes: Number
    """What a stage that ends here sends to the next one, per micro-batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """How one layer is split and how big its micro-batch is. Sizes may be arrays of one shape."""

    micro_batch: Number = 1.0
    tp: Number = 1.0
    cp: Number = 1.0
    ep: Number = 1.0
    sequence_parallel: bool = False
    precision: str = "bf16"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A view, split: its pieces from first to last."""

    name: str
    sharding: Sharding
    pieces: tuple[ProgramPiece, ...]
    warnings: tuple[str, ...] = field(default=())
    """Operators that no rule knows and that are therefore replicated."""
