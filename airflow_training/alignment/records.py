"""What a program writes down of its steps: tensors with their places, in files that are read piece by piece."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any, Literal

from airflow_training.errors import InputError
from airflow_training.execution.execution_plan import ExecutionPlan, plan_of

if TYPE_CHECKING:
    import torch

__all__ = [
    "RecordKind",
    "RecordedRun",
    "StepWriter",
    "TensorRecord",
    "describe_rank",
    "read_run",
    "read_step",
]

RecordKind = Literal["output", "output gradient", "loss", "gradient", "parameter", "optimizer"]
MEMORY_BYTES = 64 << 20
_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorRecord:
    """One tensor of a step, whole but for the samples of other replicas."""

    kind: RecordKind
    name: str
    """Of the module or the parameter; `[1]` behind it is its second output, `:exp_avg` a state of the optimizer."""
    order: int
    """1, 2, 3, ... in the step of this rank, as computed."""
    value: torch.Tensor
    rounding: float = 1.0
    """Sum, over all that was computed before it in this step, of the square root of how many products a number adds up."""
    micro_batch: int = 0
    call: int = 0
    """Of the module in its micro-batch: one that is shared is called several times."""
    module: str = ""
    """The class, and where its `forward` stands, of what computed it."""
    source: str = ""
    """The line of the user's code that called the module."""
    stage: int = 0

    @property
    def key(self) -> tuple[str, str, int, int]:
        return self.kind, self.name, self.micro_batch, self.call


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """A run whose steps were written down."""

    folder: Path
    plan: ExecutionPlan
    steps: Sequence[int]
    """Those that every rank wrote whole."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of torch and airflow-training, and the kind of device."""

    @property
    def piped(self) -> bool:
        return self.plan.pp > 1

    @property
    def replicas(self) -> list[int]:
        """Of each rank, which replica it is part of: the mesh has stages outermost, then replicas, then `tp`."""
        return [rank // self.plan.tp % self.plan.dp for rank in range(self.plan.devices)]


class StepWriter:
    """Writes the tensors of one step of one rank as they come, and holds no more than `memory` bytes of them."""

    def __init__(self, folder: Path, *, rank: int, step: int, memory: int = MEMORY_BYTES) -> None:
        self._stem = folder / f"{rank}-{step}"
        self._memory = memory
        self._rows: list[dict[str, Any]] = []
        self._held = 0
        self._parts = 0
        folder.mkdir(parents=True, exist_ok=True)
        for stale in folder.glob(f"{rank}-{step}.*.pt"):
            stale.unlink()  # of a run that was recorded there before

    def add(self, record: TensorRecord) -> None:
        """Take one tensor; it must not change any more."""
        self._rows.append({name: getattr(record, name) for name in TensorRecord.__slots__})
        self._held += record.value.numel() * record.value.element_size()
        if self._held >= self._memory:
            self._flush()

    def close(self) -> None:
        """Write what is left."""
        if self._rows or not self._parts:
            self._flush()

    def _flush(self) -> None:
        import torch

        torch.save(self._rows, f"{self._stem}.{self._parts:06}.pt")
        self._parts += 1
        self._rows, self._held = [], 0


def read_step(folder: Path, *, rank: int, step: int) -> Iterator[TensorRecord]:
    """Read the records of one step in the order in which they were computed; values stay on disk until they are used.

    Raises:
        InputError: a file is cut off or damaged.

    """
    import torch

    for part in sorted(folder.glob(f"{rank}-{step}.*.pt")):
        try:
            rows = torch.load(part, weights_only=True, map_location="cpu", mmap=True)
        except (OSError, RuntimeError, EOFError, UnpicklingError) as error:
            said = str(error).partition("\n")[0]
            raise _unreadable(folder, "folder", f"{part.name} cannot be read: {said}") from None
        for row in rows:
            yield TensorRecord(**row)


def describe_rank(
    folder: Path,
    *,
    rank: int,
    strategy: Mapping[str, Any],
    steps: Sequence[int],
    versions: Mapping[str, str],
) -> None:
    """Write which plan a rank follows, and which of its steps are whole."""
    document = {
        "format": _FORMAT,
        "strategy": dict(strategy),
        "steps": list(steps),
        "versions": dict(versions),
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{rank}.json"
    fresh = path.with_suffix(".part")
    fresh.write_text(json.dumps(document), encoding="utf-8")
    fresh.replace(path)


def read_run(folder: Path, *, field_name: str = "folder") -> RecordedRun:
    """Read what a folder holds: the steps that all ranks wrote whole.

    Raises:
        InputError: a rank's part is missing or of another version, or no step is whole; `field_name` is where the
            folder was said.

    """
    first = _rank_document(folder, 0, field_name)
    plan = plan_of(first, path=str(folder))
    documents = [first] + [
        _rank_document(folder, rank, field_name) for rank in range(1, plan.devices)
    ]
    if any(each["strategy"] != first["strategy"] for each in documents):
        raise _unreadable(folder, field_name, "its ranks followed different plans")
    whole = set.intersection(*(set(each["steps"]) for each in documents))
    if not whole:
        raise _unreadable(folder, field_name, "no step was recorded on all ranks")
    return RecordedRun(
        folder=folder, plan=plan, steps=tuple(sorted(whole)), versions=first["versions"]
    )


def _rank_document(folder: Path, rank: int, field_name: str) -> dict[str, Any]:
    path = folder / f"{rank}.json"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _unreadable(folder, field_name, f"{path.name} cannot be read: {error}") from None
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        message = f"{path.name} is not of format {_FORMAT}: another version recorded it"
        raise _unreadable(folder, field_name, message)
    return document


def _unreadable(folder: Path, field_name: str, message: str) -> InputError:
    return InputError.of(
        code="NoRecording",
        field=field_name,
        value=str(folder),
        message=message,
        hint="a recorded run is a folder that `align --record` or TrainingRecorder wrote",
    )
