"""What a program writes down of its steps: tensors with their places, a file for each step and rank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import torch

__all__ = ["RecordKind", "TensorRecord", "read_step", "write_step"]

RecordKind = Literal["output", "output gradient", "loss", "gradient", "parameter", "optimizer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorRecord:
    """One tensor of a step, whole but for the samples of other replicas."""

    kind: RecordKind
    name: str
    """Of the module or the parameter; `[1]` behind it is its second output, `:exp_avg` a state of the optimizer."""
    order: int
    """1, 2, 3, ... in the step of this rank, as computed."""
    sums: int
    """How many products one number of it adds up, by itself."""
    value: torch.Tensor
    micro_batch: int = 0
    call: int = 0
    """Of the module in its micro-batch: one that is shared is called several times."""
    module: str = ""
    """The class, and where its `forward` stands, of what computed it."""

    @property
    def key(self) -> tuple[str, str, int, int]:
        return self.kind, self.name, self.micro_batch, self.call


def write_step(folder: Path, *, rank: int, step: int, records: list[TensorRecord]) -> None:
    """Write the records of one step; they are not kept in memory."""
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for each in records:
        row = {name: value for name, value in _fields(each).items() if name != "value"}
        rows.append({**row, "value": each.value})
    torch.save(rows, folder / f"{rank}-{step}.pt")


def read_step(folder: Path, *, rank: int, step: int) -> Iterator[TensorRecord]:
    """Read the records of one step, in the order in which they were computed."""
    import torch

    for row in torch.load(folder / f"{rank}-{step}.pt", weights_only=True, map_location="cpu"):
        yield TensorRecord(**row)


def _fields(record: TensorRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in TensorRecord.__slots__}
