"""The error tree: everything this package raises on purpose. Imports nothing of ours."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "InputError",
    "JobFailed",
    "LeaseLost",
    "Problem",
    "RefusedForNow",
    "RunChanged",
    "RuntimeUnavailable",
    "StillAlive",
    "TrainingError",
]


_EXAMPLES = re.compile(r": write |, as in | as in |, as ")
"""What begins the examples of a message: a value that is among them is not told by that."""
_LONGEST_SHOWN = 40
_REFUSED_FOR_ITS_VALUE = frozenset(
    {"bad_name", "bad_quantity", "not_allowed", "out_of_range", "wrong_type"}
)
_MAY_BE_SECRET = re.compile(
    r"(?i)(^|\W)(env(\W|$)|key$)|passw|secret|token|credential|(api|access|private)_?key"
)
"""A field whose value is told to nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One mistake (or warning) in a document, as `validate --output json` prints it."""

    code: str
    field: str
    message: str
    value: Any = None
    allowed: Sequence[Any] = ()
    hint: str = ""
    line: int | None = None

    def __str__(self) -> str:
        message = self.message + self._given
        lines = [f"{self.field}: {message}" if self.field else message]
        if self.line is not None:
            lines[0] += f" (line {self.line})"
        if self.allowed:
            lines.append("  allowed: " + ", ".join(str(a) for a in self.allowed))
        if self.hint:
            lines.append("  hint: " + self.hint)
        return "\n".join(lines)

    @property
    def _given(self) -> str:
        """What was refused, where that is short, no secret, and not in the message already."""
        value = self.value
        if self.code not in _REFUSED_FOR_ITS_VALUE or isinstance(value, bool):
            return ""
        if not isinstance(value, int | float | str) or _MAY_BE_SECRET.search(self.field):
            return ""
        text = str(value)
        is_short = 0 < len(text) <= _LONGEST_SHOWN and text.isprintable()
        # "must be greater than 0" names the limit
        told = _EXAMPLES.split(self.message)[0]
        said = re.search(rf"(?<!\w)(?<!than ){re.escape(text)}(?!\w)", told)
        if not is_short or said or "://" in text:
            return ""
        return f", given: {value!r}"


class TrainingError(Exception):
    """Base of all errors raised on purpose."""


@dataclass(eq=False)
class InputError(TrainingError):
    """The user gave something that cannot work; the command line exits with 2.

    Carries every problem that was found, not only the first.
    """

    problems: Sequence[Problem] = field(default_factory=tuple)
    path: str = ""

    @classmethod
    def of(
        cls,
        *,
        code: str,
        field: str,
        message: str,
        value: Any = None,
        allowed: Sequence[Any] = (),
        hint: str = "",
        path: str = "",
    ) -> InputError:
        """Return the error of one mistake, as `Problem` describes it."""
        problem = Problem(
            code=code, field=field, message=message, value=value, allowed=allowed, hint=hint
        )
        return cls(problems=(problem,), path=path)

    def __post_init__(self) -> None:
        super().__init__(str(self))

    def __str__(self) -> str:
        head = f"{self.path}: " if self.path else ""
        return "\n".join(f"{head}{p}" for p in self.problems)


class JobFailed(TrainingError):
    """The job ran and did not succeed; the command line exits with 1."""


class RuntimeUnavailable(TrainingError):
    """The runtime (or store) cannot be reached now; the caller tries again."""


class RefusedForNow(RuntimeUnavailable):
    """The runtime answers, and does not make for now what all instances need."""

    def __init__(
        self,
        message: str,
        *,
        reason: str,
        patience_seconds: float = 4.0,
        grace_seconds: float | None = None,
    ) -> None:
        """As of an `Outcome` that is refused."""
        super().__init__(message)
        self.reason = reason
        self.patience_seconds = patience_seconds
        self.grace_seconds = grace_seconds


class StopUnconfirmed(RuntimeUnavailable):
    """A run was told to end, and the runtime that would end it does not answer: what lived there may still."""

    def __init__(
        self, message: str, *, instances: Sequence[str] = (), recorded: bool = True
    ) -> None:
        """`instances`: names of those that were alive when they were last seen. `recorded`: whether the store has the stop."""
        super().__init__(message)
        self.instances = instances
        self.recorded = recorded


class RunChanged(TrainingError):
    """Somebody has asked something of the run since whoever asks now has looked at it."""


class StillAlive(TrainingError):
    """`Runtime.remove` could not bring everything to zero; names what lives and where."""


class LeaseLost(TrainingError):
    """Another holder owns the run now: nothing may be written or touched any more."""
