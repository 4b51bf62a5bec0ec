"""What an entry of a catalogue of layer types says; the head of `catalogue.yaml` explains the fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from airflow_training.documents.base import Many, Model
from airflow_training.networks.document import Phase

__all__ = ["LayerType", "Need", "ParamType"]


class ParamType(Model):
    """What a parameter may be, and where its value comes from when nobody gives one."""

    type: Literal[
        "count", "size", "integer", "flag", "number", "share", "word", "dim", "dims", "shape", "sizes",
        "strides",
    ]  # fmt: skip
    choices: Many[str | int] = Field(default_factory=list)
    most: int = 2**31 - 1
    infer: str = ""
    fill: str = ""
    omit: str = ""
    default: Any = None
    call: bool = False

    @property
    def has_default(self) -> bool:
        return "default" in self.model_fields_set


class Need(Model):
    """What must be true of a layer's shapes and parameters."""

    that: str
    message: str
    param: str = "inputs"
    hint: str = ""


class LayerType(Model):
    """A type of layer: what it takes, gives and counts, and what it is in PyTorch."""

    about: str
    kind: Literal["input", "layer", "loss", "metric"] = "layer"
    phase: Many[Phase] | None = None
    inputs: int | Many[int | None] = 1
    ranks: Many[int] = Field(default_factory=list)
    takes: str = ""
    dtype: str = "float32"
    dtypes: Many[str] = Field(default_factory=list)
    gives: str = ""
    params: dict[str, ParamType] = Field(default_factory=dict)
    needs: Many[Need] = Field(default_factory=list)
    output: str
    weights: dict[str, str] = Field(default_factory=dict)
    flops: str = "0"
    module: str | None = ""
    fixed: str = ""
    call: str = "{self}({inputs})"
    call_if: dict[str, str] = Field(default_factory=dict)
    code: str = ""

    @property
    def phases(self) -> Sequence[Phase]:
        """Return the nets that have such a layer unless it says otherwise."""
        by_kind: Mapping[str, Sequence[Phase]] = {"loss": ("train",), "metric": ("test",)}
        return self.phase or by_kind.get(self.kind, ("train", "test"))

    @property
    def input_counts(self) -> tuple[int, int | None]:
        """Return how many inputs it takes at least, and at most (None: any number)."""
        if isinstance(self.inputs, int):
            return self.inputs, self.inputs
        least, most = self.inputs
        return least or 0, most

    @property
    def can_be_left_out(self) -> bool:
        """Return whether a net without such a layer goes on with what it takes."""
        return self.input_counts == (1, 1) and self.output == "x" and not self.weights

    def wanted_dtype(self, position: int) -> str:
        """The dtype that an input must have."""
        return self.dtypes[position] if self.dtypes else self.dtype
