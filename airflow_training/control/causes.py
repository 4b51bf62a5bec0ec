"""What explains a failure, as the ledger, decisions and `status` hold it. Imports nothing of the package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from airflow_training.documents.instances import InstanceKey

__all__ = ["DiagnosedCause", "RootCause"]

_Cause = TypeVar("_Cause", bound="DiagnosedCause")


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosedCause:
    """A cause as `logs diagnose` prints it, and the instance whose log proves it."""

    id: str
    """Of the catalogue of causes; `unknown`: nothing that is known explains it."""
    category: str
    retryable: str
    """Whether another try can help: yes, once, no, unknown."""
    confidence: float
    """0 to 1."""
    rank: int | None = None
    file: str | None = None
    """Where the proof stands, with `line` and `offset`; None: no log has it."""
    line: int | None = None
    offset: int | None = None
    """Bytes before that line."""
    evidence: str = ""
    advice: str = ""
    """What to do; "": no log tells it."""
    role: str | None = None
    """With `index` and `attempt`: whose log or end it is; None: of the whole job, or nobody knows."""
    index: int | None = None
    attempt: int | None = None

    @property
    def key(self) -> InstanceKey | None:
        """Return whose it is; None: of no single instance."""
        return (
            None if self.role is None or self.index is None else InstanceKey(self.role, self.index)
        )

    def to_document(self) -> dict[str, Any]:
        """The cause as plain JSON, with all its fields."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @classmethod
    def from_document(cls: type[_Cause], document: Mapping[str, Any]) -> _Cause:
        """Read `to_document`; unknown fields are ignored, a newer version may have written them."""
        known = {each.name for each in fields(cls)}
        return cls(**{name: item for name, item in document.items() if name in known})


@dataclass(frozen=True, slots=True, kw_only=True)
class RootCause(DiagnosedCause):
    """The failure that ended a job: its cause, and how the instance ended whose failure it is."""

    reason: str | None = None
    """As the runtime or the job says it; None, as all below: how that instance ended is not known."""
    message: str | None = None
    at: float | None = None
    """Epoch seconds."""
    exit_code: int | None = None
    signal: int | None = None
