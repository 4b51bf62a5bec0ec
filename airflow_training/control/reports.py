"""What a training script and its processes tell of themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from airflow_training.control.attempts import NOT_STORED
from airflow_training.documents.resolved_blocks import CheckpointCommit

SubtaskState = Literal[
    "PENDING", "STARTING", "RUNNING", "SAVING", "SAVED", "FAILED", "RESTORING", "DONE"
]
"""Of one process; see `subtasks`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedCheckpoint:
    """A checkpoint that was not restored, as it is damaged."""

    at: float
    """When that was found, epoch seconds of who found it."""
    why: str
    step: int | None = None
    """None: a document is damaged that several checkpoints rest on."""
    restore: str = ""
    """Of which start of which group: several of its processes may find the same damage. Empty: nobody said."""

    def is_same(self, other: RejectedCheckpoint) -> bool:
        """Return whether the other says again what one process, or a peer of it, has told."""
        if self == other:
            return True
        same = self.why == other.why if self.step is None else self.step == other.step
        return same and self.restore != "" and self.restore == other.restore


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessReport:
    """What one process said about itself, in a line of `$TRAINING_PROGRESS_FILE`."""

    rank: int
    """Among the processes of its checkpoint group."""
    generation: int
    """Of the fence that it works under."""
    sequence: int
    """1, 2, 3, ... within the generation; a repeated line has the number it had."""
    state: SubtaskState
    step: int | None = None
    verified: tuple[int, ...] = ()
    """The newest steps whose own part this process has read back, or just restored."""
    world: int | None = None
    """How many processes there are; None: as many as before."""
    group: str = ""
    """`<role>-<index>` of an instance whose checkpoints are its own; "": one group of the job."""
    environment: str = ""
    """Digest of the environment record that the newest save names."""
    rejected: tuple[RejectedCheckpoint, ...] = ()
    """The newest that its group rejected in this generation; only rank 0 tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regrouping:
    """How ranks went on that formed their group again, their processes being the same."""

    at: float
    """When the first new step was done, epoch seconds of who told it."""
    ranks: int
    """How many they are from then on."""
    step: int
    """Steps that were done when they went on."""
    source: str
    """Whose state they went on from: `rank 0`, or `checkpoint`."""
    lost_steps: int
    """Steps that were done a second time."""
    seconds: float
    """From the loss of the group before to the end of the first new step."""
    revision: int = 0
    """Of the plan that they carry out."""
    moved_bytes: int | None = None
    """Of the state that ranks got from another one; None: from a checkpoint, or it was not told."""


class ReportedValue(NamedTuple):
    """One value of a metric, as a line of the script had it."""

    step: int | None
    time: float
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRead:
    """How much of one file was read, in the unit that the script counts in."""

    name: str
    read: float
    total: float | None = None
    """None: not told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesReport:
    """What an attempt has read of all its files."""

    read: float
    """Of all together; what is read again counts again."""
    known: int
    """How many files were told of, of those that are remembered."""
    done: int
    """How many of them were read to their end."""
    newest: tuple[FileRead, ...] = ()
    """Those read last, the last one first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressReport:
    """The newest line a script wrote to `$TRAINING_PROGRESS_FILE`."""

    step: int | None = None
    total_steps: int | None = None
    epoch: float | None = None
    samples: int | None = None
    time: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    subtasks: tuple[ProcessReport, ...] = ()
    """The newest line of each of the instance's processes."""
    checkpoint: CheckpointCommit | None = None
    """The newest that was committed."""
    section: str = ""
    """What the script is doing between steps, as it calls it; "" where it trains."""
    points: Mapping[str, Sequence[ReportedValue]] = field(default_factory=dict, metadata=NOT_STORED)
    """The values of each metric in all lines since the report before, the newest line among them."""
    files: FilesReport | None = field(default=None, metadata=NOT_STORED)
    """None: no line of the attempt has told of files."""
    rejected: tuple[RejectedCheckpoint, ...] = ()
    """The newest that were not restored, told by a process which says nothing else of itself."""
    regrouped: tuple[Regrouping, ...] = ()
    """The newest of the attempt, oldest first."""
