"""Reading another system's document so that no field can be forgotten.

A translator reads through `SourceField` and says of each field what becomes of it. A statement holds for all that is below
the field, until one about something deeper takes its place. What nobody has said anything about when the translator
is done is refused by itself: a field that is new in the source's system, or misspelt, is never lost in silence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from airflow_training.documents.loading import FieldLines
from airflow_training.documents.paths import Loc, format_path
from airflow_training.errors import Problem
from airflow_training.interchange.report import Fate, FieldFate

__all__ = ["FieldAccounts", "SourceField"]

UNKNOWN = "is not known here, so nobody can say what it would change"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Statement:
    fate: Fate
    to: Loc
    why: str


@dataclass(slots=True)
class FieldAccounts:
    """What was said of each field of one document."""

    data: Any
    lines: FieldLines
    problems: list[Problem] = field(default_factory=list)
    """Mistakes of the source itself."""
    _said: dict[Loc, _Statement] = field(default_factory=dict)
    _anchors: dict[Loc, Loc] = field(default_factory=dict)
    _defaults: list[FieldFate] = field(default_factory=list)

    @property
    def root(self) -> SourceField:
        return SourceField(self, (), self.data)

    def say(self, loc: Loc, fate: Fate, *, to: Loc = (), why: str = "") -> None:
        self._said[loc] = _Statement(fate, to, why)

    def anchor(self, loc: Loc, to: Loc) -> None:
        """Say where the comments above a block go that is no field of its own."""
        self._anchors[loc] = to

    def default(self, loc: Loc, value: Any, fate: Fate, *, to: Loc = (), why: str) -> None:
        """Account for what nobody wrote, and the source's system does all the same."""
        self._defaults.append(
            FieldFate(
                field=format_path(loc),
                fate=fate,
                value=value,
                line=None,
                to=format_path(to),
                why=why,
                default=True,
            )
        )

    def mistake(self, loc: Loc, code: str, message: str, *, allowed: Sequence[Any] = ()) -> None:
        problem = Problem(
            code=code,
            field=format_path(loc),
            message=message,
            allowed=allowed,
            line=self.lines.of(loc),
        )
        if problem not in self.problems:
            self.problems.append(problem)

    def settle(self) -> list[FieldFate]:
        """Return the fate of every leaf, then the defaults; unknown leaves are refused."""
        found = []
        for loc, value in _leaves(self.data, ()):
            known = self._nearest(loc, self._said)
            statement = self._said[known] if known is not None else None
            if value is None and (statement is None or statement.fate == "kept"):
                statement = _Statement("dropped", (), "null is as if it were not written")
            to = statement.to if statement else ()
            if to and statement and statement.fate == "kept":
                to = (*to, *loc[len(known or ()) :])
            found.append(
                FieldFate(
                    field=format_path(loc),
                    fate=statement.fate if statement else "refused",
                    value=value,
                    line=self.lines.of(loc),
                    to=format_path(to),
                    why=statement.why if statement else UNKNOWN,
                )
            )
        return [*found, *self._defaults]

    def target_of(self, loc: Loc) -> Loc | None:
        """Return where a field stands in our document; None: nowhere."""
        if loc in self._anchors:
            return self._anchors[loc]
        known = self._nearest(loc, self._said)
        if known is None or not self._said[known].to:
            return None
        return (*self._said[known].to, *loc[len(known) :])

    def origin_of(self, target: Loc) -> Loc:
        """Return the field of the source that a field of our document comes from, as near as possible."""
        copied = [(s.to, loc) for loc, s in self._said.items() if s.fate == "kept"]
        other = [(s.to, loc) for loc, s in self._said.items() if s.fate == "translated"]
        other += [(to, loc) for loc, to in self._anchors.items()]
        for length in range(len(target), 0, -1):
            for to, loc in copied:
                if to == target[:length]:
                    return (*loc, *target[length:])
            for to, loc in other:
                if to == target[:length]:
                    return loc
        return ()

    @staticmethod
    def _nearest(loc: Loc, known: Mapping[Loc, Any]) -> Loc | None:
        return next((loc[:n] for n in range(len(loc), -1, -1) if loc[:n] in known), None)


def _leaves(value: Any, loc: Loc) -> Iterator[tuple[Loc, Any]]:
    if isinstance(value, Mapping) and value:
        for key, inside in value.items():
            yield from _leaves(inside, (*loc, key))
    elif isinstance(value, list) and value:
        for i, inside in enumerate(value):
            yield from _leaves(inside, (*loc, i))
    else:
        yield loc, value


@dataclass(frozen=True, slots=True)
class SourceField:
    """One field of the source, there or not. Readers of a value note a mistake where it has another type."""

    accounts: FieldAccounts
    loc: Loc
    value: Any
    """None: not there, which is what null means to Kubernetes too."""

    def __bool__(self) -> bool:
        return self.value is not None

    def __getitem__(self, key: str) -> SourceField:
        inside = self.value.get(key) if isinstance(self.value, Mapping) else None
        return SourceField(self.accounts, (*self.loc, key), inside)

    def at(self, *path: str) -> SourceField:
        here = self
        for key in path:
            here = here[key]
        return here

    # --- values ---

    def block(self) -> SourceField:
        """Return itself, to look inside; notes a mistake where it is there and no mapping."""
        if self._typed(dict, "a mapping", None) == {}:
            self.drop("says nothing")
        return self

    def names(self) -> list[str]:
        return list(self.value) if isinstance(self.value, Mapping) else []

    def items(self) -> list[SourceField]:
        found = self._typed(list, "a list", [])
        items = [SourceField(self.accounts, (*self.loc, i), item) for i, item in enumerate(found)]
        for item in items:
            if not item:
                self.accounts.mistake(item.loc, "wrong_type", "must not be null")
        return items

    def whole(self, default: int, *, least: int = 0) -> int:
        value = self._typed(int, "a whole number", default)
        if value < least:
            message = f"must be {least} or more, not {value}"
            self.accounts.mistake(self.loc, "out_of_range", message)
            return default
        return value

    def text(self, default: str = "") -> str:
        return self._typed(str, "text", default)

    def flag(self, *, default: bool = False) -> bool:
        return self._typed(bool, "true or false", default)

    def one_of(self, allowed: Sequence[str], default: str) -> str:
        value = self.text(default)
        if value not in allowed:
            message = f"must be one of these, not {value!r}"
            self.accounts.mistake(self.loc, "not_allowed", message, allowed=allowed)
            return default
        return value

    def _typed(self, kind: type[T], name: str, default: T) -> T:
        if self.value is None:
            return default
        if isinstance(self.value, kind) and not (kind is int and isinstance(self.value, bool)):
            return self.value
        self.accounts.mistake(self.loc, "wrong_type", f"must be {name}")
        return default

    # --- what becomes of it ---

    def keep(self, to: Loc, why: str = "") -> None:
        self._say("kept", to, why)

    def translate(self, to: Loc, why: str) -> None:
        self._say("translated", to, why)

    def drop(self, why: str) -> None:
        self._say("dropped", (), why)

    def refuse(self, why: str) -> None:
        self._say("refused", (), why)

    def settle(self, fate: Fate, value: Any, *, to: Loc = (), why: str) -> None:
        """Say it of the field, or of the default `value` where it is not there."""
        if self:
            self._say(fate, to, why)
        else:
            self.accounts.default(self.loc, value, fate, to=to, why=why)

    def anchor(self, to: Loc) -> None:
        self.accounts.anchor(self.loc, to)

    def _say(self, fate: Fate, to: Loc, why: str) -> None:
        # null means what is not there means, and still is a leaf that has to be accounted for
        self.accounts.say(self.loc, fate, to=to, why=why)
