"""The computation view: operators and tensors of one training step, before any split.

A view is written for one micro-batch of `batch` samples on one device. Dimensions carry names, so that
a strategy can say "split `heads` over the tensor-parallel axis" without knowing the model. Everything
that reads a model (a description, a traced module) makes this; everything that splits or prices a
model reads only this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Phase = Literal["forward", "backward", "optimizer"]
TensorKind = Literal["parameter", "buffer", "input", "activation", "gradient", "state", "output"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One tensor, whole: the shape on a single device that holds all of it."""

    name: str
    shape: tuple[int, ...]
    axes: tuple[str, ...]
    """A name per dimension: `batch`, `sequence`, `hidden`, `heads`, `ffn`, `vocab`, `experts`, ...

    A merged dimension joins its names by `*` (`batch*sequence`); a dimension nobody named is "".
    """
    dtype: str = "compute"
    """`compute` (the precision of the strategy), or a fixed type: `float32`, `int64`, `bool`, ..."""
    kind: TensorKind = "activation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One operator. Its `kind` names the rule that says how it can be split and what it costs."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    phase: Phase = "forward"
    of: str = ""
    """The forward operator that this is the gradient of."""
    count: float = 1.0
    """How often it runs for each run of its unit: a loop's trip count, a branch's probability."""
    bodies: tuple[ComputationView, ...] = ()
    """Branches of a condition, or the body of a loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A stretch of operators that pipeline stages never split: an embedding, a layer, a head."""

    name: str
    operators: tuple[str, ...]
    repeat: int = 1
    """How many equal copies follow each other, each fed by the one before, with own parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputationView:
    """Operators in an order in which they can run, cut into the units of a pipeline."""

    name: str
    tensors: Mapping[str, Tensor]
    operators: tuple[Operator, ...]
    units: tuple[Unit, ...]
    batch: int = 1
    """Samples that the `batch` dimensions of this view are written for."""
