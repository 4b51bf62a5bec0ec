"""Plain data that the parts of log insight hand to each other.

Offsets are bytes from the start of what the file holds uncompressed; lines count from 1; times are UTC seconds
since 1970. `None` says that a log does not tell.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    Floats = np.ndarray[tuple[int], np.dtype[np.float64]]
    Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]
    Integers = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Which log it is: a file, and of a run which instance and attempt wrote it."""

    file: str
    """Path or URL as the user gave it; of a live instance `role-index`."""
    role: str = ""
    index: int = 0
    attempt: int | None = None
    rank: int | None = None
    """Of all lines without a rank of their own; from the name of the file or the instance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A signature found in a line."""

    signature: str
    """`cause/name`, unique."""
    line: int
    offset: int
    """Of the first byte of the line."""
    rank: int | None
    """From the prefix of the line, else that of the origin."""
    named: bool = field(default=False, compare=False)
    """Whether the line itself names its rank; that of the origin may be the number of a node."""
    time: float | None
    """Of the line, or of the last line before it that has one."""
    text: str
    """The line without prefix, ANSI sequences and line end, cut to 2,000 characters around the match."""
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    """Up to 40 lines of the same rank on either side, cut to 500 characters, nearest last and first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One metric of one rank of one instance, in the order of the log. All arrays are of one length."""

    metric: str
    role: str = ""
    index: int = 0
    rank: int | None = None
    scope: str = ""
    """Of `tokens_per_second`: `device` or `job`."""
    file: str = ""
    steps: Floats
    """NaN where no step is known."""
    values: Floats
    times: Floats
    """NaN where no time is known."""
    offsets: Integers
    lines: Integers
    """-1 in both: the point stands in no log, the store told it."""
    total: int
    """Points in the log; more than `len(values)` where the series was bucketed (extremes are kept)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileScan:
    """What one pass over one log found."""

    origin: Origin
    hits: tuple[Hit, ...] = ()
    """In order. Of each signature and rank the first 16 and the last; `counts` has how many there were.

    Of saved checkpoints the first and last 16 of all ranks together, not counted."""
    counts: dict[tuple[str, int | None], int] = field(default_factory=dict)
    series: tuple[Series, ...] = ()
    bytes: int = 0
    lines: int = 0
    first_time: float | None = None
    last_time: float | None = None
    tail: tuple[str, ...] = ()
    """The last 200 lines, cleaned and cut as those of a hit."""
    tail_line: int = 1
    """Number of the first line of `tail`."""
    tail_offsets: tuple[int, ...] = ()

    def tail_text(self, line: int) -> str:
        """Return the text of a line by its number; empty where it is none of the last ones."""
        at = line - self.tail_line
        return self.tail[at] if 0 <= at < len(self.tail) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something about the health of a run that a person should know."""

    kind: str
    """straggler, hang, nan, loss-spike, plateau, loss-rising, accuracy-unchanged, throughput-drop, memory-growth, imbalance."""
    message: str
    metric: str = ""
    role: str = ""
    index: int = 0
    rank: int | None = None
    step: float | None = None
    time: float | None = None
    file: str = ""
    line: int | None = None
    offset: int | None = None
    severity: str = "warning"
    """info, warning, error."""

    @property
    def message_at_step(self) -> str:
        """Return the message and the step that it is about, where one is known."""
        return self.message if self.step is None else f"{self.message} (step {self.step:g})"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceFact:
    """What the runtime saw of the end of one instance."""

    role: str
    index: int
    exit_code: int | None = None
    signal: str | None = None
    """Name (SIGKILL) or number as text."""
    reason: str = ""
    """As the runtime names it: OOMKilled, Evicted, NodeLost, DeadlineExceeded, ImagePullBackOff, ..."""
    message: str = ""
    finished_at: float | None = None
    whole: bool = False
    """Of no single instance: of all of the role, or of the job where no role is named."""
    process_rank: int | None = None
    """Of its first process, where that is known; that of an instance of a later role is not its index."""

    @property
    def rank(self) -> int | None:
        """Return the rank that an answer names: its index where nothing better is known."""
        if self.whole:
            return None
        return self.index if self.process_rank is None else self.process_rank

    @property
    def who(self) -> str:
        """Return whose end it is, for people."""
        if self.whole:
            return self.role or "the job"
        return f"{self.role}-{self.index}" if self.role else f"instance {self.index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCause:
    """A cause with its proof."""

    id: str
    category: str
    retryable: str
    """yes, once, no, unknown."""
    confidence: float
    rank: int | None
    file: str | None
    line: int | None
    offset: int | None
    evidence: str
    advice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Why a run failed, the best answer first; nothing for a healthy one."""

    causes: tuple[FoundCause, ...] = ()
    consequences: tuple[FoundCause, ...] = ()
    healthy: bool = True
    gaps: tuple[str, ...] = ()
    """`file:line` of what says that lines before it could not be read."""
