"""The loss report: what became of every field of another system's document. Data only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["FATES", "FieldFate", "LossReport"]

Fate = Literal["kept", "translated", "dropped", "refused"]
FATES: tuple[Fate, ...] = ("kept", "translated", "dropped", "refused")


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldFate:
    """One leaf of the source, or a default of its system that nobody wrote."""

    field: str
    fate: Fate
    value: Any
    line: int | None
    """None: a default, or the file does not say."""
    to: str = ""
    """The field of our document that says it now."""
    why: str = ""
    default: bool = False
    """Not written: what the source's system does then."""

    def to_json(self) -> Mapping[str, Any]:
        return {
            "field": self.field,
            "value": self.value,
            "line": self.line,
            "default": self.default,
            "fate": self.fate,
            "to": self.to or None,
            "why": self.why or None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LossReport:
    """Every field of one document, in the order in which they are written."""

    kind: str
    name: str
    line: int | None
    fields: Sequence[FieldFate]

    def of(self, fate: Fate) -> Sequence[FieldFate]:
        return [each for each in self.fields if each.fate == fate]

    def to_json(self) -> Mapping[str, Any]:
        return {
            "kind": self.kind,
            "name": self.name,
            "line": self.line,
            "counts": {fate: len(self.of(fate)) for fate in FATES},
            "fields": [each.to_json() for each in self.fields],
        }
