"""The fault script of a simulation: how long instances run, and what goes wrong when.

A file is a list of faults, or a mapping:

    roles:                        # how the instances of a role behave; `*` is every other role
      worker: {placeSeconds: 20, startSeconds: 1, runSeconds: 60, exitCode: 0}
    faults:
      - {at: 20, kill: worker, index: 1, signal: 9}          # seconds since the run was prepared
      - {after: 5, kill: worker, attempt: 0, exitCode: 3}    # seconds since that attempt ran
      - {at: 30, kill: worker, index: 0, reason: Evicted}
      - {at: 35, kill: worker, index: 0, reason: Preempted, disrupted: true}
      - {at: 40, delete: worker, index: 0}                   # the object disappears
      - {at: 50, lose: worker, index: 0, seconds: 10}        # its node cannot be reached
      - {after: 5, stall: worker, seconds: 30}               # no progress: after so long it hangs
      - {at: 60, unreachable: 15}                            # nor can the whole runtime
      - {at: 0, refuse: worker, seconds: 30, message: full}  # nothing of it may be created
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from airflow_training.documents.loading import load_documents, read_file
from airflow_training.documents.problems import with_lines
from airflow_training.documents.spelling import did_you_mean
from airflow_training.errors import InputError, Problem

__all__ = ["Behaviour", "Fault", "Script", "load_script", "parse_script"]


_LOST_SECONDS = 10.0
FaultKind = Literal["kill", "delete", "lose", "stall", "unreachable", "refuse"]
_KINDS: tuple[FaultKind, ...] = get_args(FaultKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """What an instance does when nothing goes wrong."""

    place_seconds: float = 0.0
    """From creation to a place."""
    start_seconds: float = 0.0
    """From its place (or release) to running."""
    ready_seconds: float = 0.0
    """From running to ready, its port open."""
    run_seconds: float | None = 30.0
    """From running to its end; None: until somebody ends it."""
    stop_seconds: float = 0.0
    """How long it takes to die when it is deleted; at most the grace."""
    exit_code: int = 0
    reason: str = ""
    """Of its end; empty: Completed or Error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong."""

    kind: FaultKind
    at: float | None = None
    """Seconds since the run was prepared."""
    after: float | None = None
    """Instead of `at`: seconds since each matching attempt began to run."""
    role: str = ""
    index: int | None = None
    """None: every instance of the role."""
    attempt: int | None = None
    """None: whichever lives."""
    signal: int | None = None
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    disrupted: bool = False
    """The platform did it: charged to preemption."""
    seconds: float = _LOST_SECONDS
    """How long the runtime or the instance cannot be reached, creates are refused, or silence is allowed."""

    def matches(self, *, role: str, index: int, attempt: int) -> bool:
        return self.role == role and self.index in (None, index) and self.attempt in (None, attempt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """Everything a simulation needs to know."""

    roles: Mapping[str, Behaviour] = field(default_factory=dict)
    default: Behaviour = field(default_factory=Behaviour)
    faults: tuple[Fault, ...] = ()

    def behaviour(self, role: str) -> Behaviour:
        return self.roles.get(role, self.default)


def load_script(path: str | Path, *, roles: Collection[str] | None = None) -> Script:
    """Return the script in a YAML or JSON file; raises InputError with every mistake.

    `roles`: those that the job has; a role that the script names and the job does not have is a mistake. None: any may be.
    """
    documents = load_documents(read_file(path), str(path))
    if any(each.problems for each in documents):
        problems = [problem for each in documents for problem in each.problems]
        raise InputError(problems=problems, path=str(path))
    if not documents:
        return Script()
    try:
        return parse_script(documents[0].data, roles=roles)
    except InputError as error:
        problems = with_lines(error.problems, documents[0].lines)
        raise InputError(problems=problems, path=str(path)) from None


def parse_script(document: Any, *, roles: Collection[str] | None = None) -> Script:
    """Return the script that a loaded document describes; raises InputError."""
    reader = _FaultReader(roles)
    if document is None:
        document = {}
    if isinstance(document, list):
        document = {"faults": document}
    top = reader.mapping(document, "", {"roles", "faults"})
    behaviours: dict[str, Behaviour] = {}
    for name, each in reader.mapping(top.get("roles", {}), "roles", None).items():
        behaviours[str(name)] = _behaviour(reader, each, f"roles.{name}")
        if name != "*":
            reader.role(str(name), f"roles.{name}")
    faults = top.get("faults", [])
    if not isinstance(faults, list):
        reader.wrong("faults", faults, "wrong_type", "is no list")
        faults = []
    read = [_fault(reader, each, f"faults[{i}]") for i, each in enumerate(faults)]
    if reader.problems:
        raise InputError(problems=reader.problems)
    default = behaviours.pop("*", Behaviour())
    return Script(roles=behaviours, default=default, faults=tuple(f for f in read if f))


_BEHAVIOUR_KEYS = {
    "placeSeconds", "startSeconds", "readySeconds", "runSeconds", "stopSeconds", "exitCode", "reason",
}  # fmt: skip
_FAULT_KEYS = {
    "at", "after", "kill", "delete", "lose", "stall", "unreachable", "refuse", "index", "attempt", "signal",
    "exitCode", "reason", "message", "disrupted", "seconds",
}  # fmt: skip


def _behaviour(reader: _FaultReader, value: Any, field_: str) -> Behaviour:
    keys = reader.mapping(value, field_, _BEHAVIOUR_KEYS)
    default = Behaviour()
    run_seconds: float | None = default.run_seconds
    if "runSeconds" in keys:
        forever = keys["runSeconds"] is None
        run_seconds = None if forever else reader.seconds(keys, "runSeconds", field_, 0.0)
    return Behaviour(
        place_seconds=reader.seconds(keys, "placeSeconds", field_, default.place_seconds),
        start_seconds=reader.seconds(keys, "startSeconds", field_, default.start_seconds),
        ready_seconds=reader.seconds(keys, "readySeconds", field_, default.ready_seconds),
        run_seconds=run_seconds,
        stop_seconds=reader.seconds(keys, "stopSeconds", field_, default.stop_seconds),
        exit_code=reader.whole(keys, "exitCode", field_, high=255) or 0,
        reason=reader.text(keys, "reason", field_),
    )


def _fault(reader: _FaultReader, value: Any, field_: str) -> Fault | None:
    keys = reader.mapping(value, field_, _FAULT_KEYS)
    chosen = [kind for kind in _KINDS if kind in keys]
    if len(chosen) != 1:
        reader.wrong(field_, sorted(keys), "missing", "names not exactly one fault", _KINDS)
        return None
    kind = chosen[0]
    lasts = kind in ("unreachable", "refuse")
    if ("at" in keys) == ("after" in keys) or (lasts and "at" not in keys):
        reader.wrong(field_, sorted(keys), "missing", "says not exactly one time", ("at", "after"))
    seconds_key = "unreachable" if kind == "unreachable" else "seconds"
    role = "" if kind == "unreachable" else reader.text(keys, kind, field_)
    if role:
        reader.role(role, f"{field_}.{kind}")
    return Fault(
        kind=kind,
        at=reader.seconds(keys, "at", field_, 0.0) if "at" in keys else None,
        after=reader.seconds(keys, "after", field_, 0.0) if "after" in keys else None,
        role=role,
        index=reader.whole(keys, "index", field_),
        attempt=reader.whole(keys, "attempt", field_),
        signal=reader.whole(keys, "signal", field_, high=64),
        exit_code=reader.whole(keys, "exitCode", field_, high=255),
        reason=reader.text(keys, "reason", field_),
        message=reader.text(keys, "message", field_),
        disrupted=reader.truth(keys, "disrupted", field_),
        seconds=reader.seconds(keys, seconds_key, field_, _LOST_SECONDS),
    )


class _FaultReader:
    """Takes values out of a document and collects every mistake."""

    def __init__(self, roles: Collection[str] | None) -> None:
        self.problems: list[Problem] = []
        self._roles = roles

    def wrong(
        self,
        field_: str,
        value: Any,
        code: str,
        message: str,
        allowed: tuple[Any, ...] = (),
        hint: str = "",
    ) -> None:
        self.problems.append(
            Problem(
                code=code, field=field_, message=message, value=value, allowed=allowed, hint=hint
            )
        )

    def role(self, name: str, field_: str) -> None:
        if self._roles is not None and name not in self._roles:
            allowed = tuple(sorted(self._roles))
            message = f"no role is called {name!r}"
            self.wrong(field_, name, "unknown_role", message, allowed, did_you_mean(name, allowed))

    def mapping(self, value: Any, field_: str, known: set[str] | None) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            self.wrong(field_, value, "wrong_type", "is no mapping")
            return {}
        for key in value:
            if known is not None and key not in known:
                path = f"{field_}.{key}" if field_ else str(key)
                allowed = tuple(sorted(known))
                hint = did_you_mean(key, allowed)
                self.wrong(path, value[key], "unknown_key", "is not known", allowed, hint)
        return value

    def seconds(self, keys: Mapping[str, Any], key: str, field_: str, default: float) -> float:
        def fits(value: Any) -> bool:
            return isinstance(value, int | float) and value >= 0

        return float(self._number(keys, key, field_, default, fits, "seconds"))

    def whole(
        self, keys: Mapping[str, Any], key: str, field_: str, *, high: int = 2**31
    ) -> int | None:
        number: int | None = self._number(
            keys, key, field_, None, lambda v: isinstance(v, int) and 0 <= v <= high,
            f"a whole number from 0 to {high}",
        )  # fmt: skip
        return number

    def text(self, keys: Mapping[str, Any], key: str, field_: str) -> str:
        value = keys.get(key, "")
        if not isinstance(value, str):
            self.wrong(f"{field_}.{key}", value, "wrong_type", "is no text")
            return ""
        return value

    def truth(self, keys: Mapping[str, Any], key: str, field_: str) -> bool:
        value = keys.get(key, False)
        if not isinstance(value, bool):
            self.wrong(f"{field_}.{key}", value, "wrong_type", "is neither true nor false")
        return value is True

    def _number(
        self, keys: Mapping[str, Any], key: str, field_: str, default: Any,
        fits: Callable[[Any], bool], what: str,
    ) -> Any:  # fmt: skip
        if key not in keys:
            return default
        value = keys[key]
        if isinstance(value, bool) or not fits(value):
            self.wrong(f"{field_}.{key}", value, "out_of_range", f"is not {what}")
            return default
        return value
