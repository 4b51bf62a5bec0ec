"""What the runtime saw, read from a file and matched with the rules of causes."""

from __future__ import annotations

import json
import re
import signal as signals
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from airflow_training.documents.base import Model
from airflow_training.documents.loading import read_file
from airflow_training.documents.problems import problems_of
from airflow_training.documents.text import without_name
from airflow_training.errors import InputError
from airflow_training.logs.diagnosis.catalogue import Catalogue, FactRule
from airflow_training.logs.diagnosis.evidence import Incident
from airflow_training.logs.model import InstanceFact

__all__ = [
    "BY_CODE",
    "SAY_NOTHING",
    "STOPPED",
    "describe_fact",
    "ended_by_itself",
    "events_of",
    "failed",
    "read_facts",
]


BY_CODE = "exit-code"
"""Signature of what an exit code alone hints at: a log that proves more goes before."""

_ONLY_A_CHILD = 0.75
"""Of the confidence that a container was killed for memory whose first process ended by itself: only
a process beside it was killed, and its log may know something better."""


class _Instance(Model):
    role: str | None = None
    index: int = Field(default=0, ge=0)
    exit_code: int | None = None
    signal: str | int | None = None
    reason: str | None = None
    message: str | None = None


class _Facts(Model):
    instances: list[_Instance] = Field(default_factory=list)


def read_facts(path: Path) -> Sequence[InstanceFact]:
    """Return the facts of a JSON file; raises InputError with what is wrong in it."""
    try:
        data = json.loads(read_file(path))
    except ValueError as error:
        raise InputError.of(
            code="syntax", field="", message=f"is no JSON: {error}", path=str(path)
        ) from None
    return facts_of(data, path=str(path))


def facts_of(data: Mapping[str, Any], *, path: str = "") -> Sequence[InstanceFact]:
    """Return the facts of a document; raises InputError with what is wrong in it."""
    try:
        facts = _Facts.model_validate(data)
    except ValidationError as error:
        raise InputError(problems=problems_of(error, model=_Facts), path=path) from None
    return [
        InstanceFact(
            role=each.role or "",
            index=each.index,
            exit_code=each.exit_code,
            signal=None if each.signal is None else str(each.signal),
            reason=each.reason or "",
            message=each.message or "",
        )
        for each in facts.instances
    ]


_AFTER_ITS_END = "OutputFailed"
"""The reason of an instance that has failed though its program has not."""


STOPPED = "Stopped"
"""The reason of an instance that somebody has ended with its run: it has not failed."""


_NO_FAILURES = frozenset(
    {"", "Completed", "NotNeeded", "Running", STOPPED, "StoppedAfterSuccess", "Succeeded"}
)
"""Reasons of what runs, has done its work, was ended by us, or was never started."""


SAY_NOTHING = frozenset({"", "Error", "InstanceFailed"})
"""Reasons of whatever ended with an exit code."""


def failed(fact: InstanceFact) -> bool:
    """Return whether an instance ended badly as far as the runtime tells."""
    if fact.exit_code is None and fact.signal is None:
        return fact.reason not in _NO_FAILURES
    bad = fact.exit_code not in (0, None) or fact.signal is not None
    return bad or fact.reason == _AFTER_ITS_END


def signal_number(fact: InstanceFact) -> int | None:
    """Return the signal that ended an instance, also where only the exit code tells."""
    if fact.signal is not None:
        name = fact.signal.upper()
        if name.lstrip("-").isdigit():
            return abs(int(name))
        name = name if name.startswith("SIG") else f"SIG{name}"
        return int(signals.Signals[name]) if name in signals.Signals.__members__ else None
    if fact.exit_code is not None and 128 < fact.exit_code <= 128 + 64:
        return fact.exit_code - 128
    if fact.exit_code is not None and fact.exit_code < 0:
        return -fact.exit_code
    return None


def describe_fact(fact: InstanceFact) -> str:
    """Return a fact as a line for people."""
    who = fact.who
    how = [fact.reason]
    if fact.signal is not None:
        how.append(f"signal {fact.signal}")
    elif fact.exit_code is not None:
        how.append(f"exit code {fact.exit_code}")
    ended = ", ".join(filter(None, how))
    words = without_name(fact.message, who)
    if how and words.startswith(how[-1]) and fact.reason in SAY_NOTHING:
        ended = ""  # they tell it already
    if not words:
        return f"{who}: {ended}"
    return f"{who}: {words} ({ended})" if ended else f"{who}: {words}"


def events_of(facts: Iterable[InstanceFact], *, catalogue: Catalogue) -> list[Incident]:
    """Incidents that follow from the facts by the rules of the causes, of each fact and cause the surest."""
    found: list[Incident] = []
    for fact in facts:
        for cause in catalogue.causes.values():
            rules = [rule for rule in cause.facts if _holds(rule, fact)]
            if not rules:
                continue
            surest = max(rules, key=lambda rule: rule.confidence)
            sure = surest.confidence
            if fact.reason == "OOMKilled" and ended_by_itself(fact):
                sure *= _ONLY_A_CHILD
            found.append(
                Incident(
                    cause=cause,
                    signature="" if surest.exit_code is None else BY_CODE,
                    kind="cause",
                    confidence=sure,
                    survivable=False,
                    log=None,
                    rank=fact.rank,
                    line=None,
                    offset=None,
                    time=fact.finished_at,
                    text=describe_fact(fact),
                )
            )
    return found


def ended_by_itself(fact: InstanceFact) -> bool:
    """Return whether a program ended with an exit code of its own."""
    return fact.signal is None and fact.exit_code is not None and 0 < fact.exit_code < 128


def _holds(rule: FactRule, fact: InstanceFact) -> bool:
    if rule.reason is not None and rule.reason != fact.reason:
        return False
    if rule.exit_code is not None and rule.exit_code != fact.exit_code:
        return False
    if rule.signal is not None:
        wanted = InstanceFact(role="", index=0, signal=rule.signal)
        if signal_number(wanted) != signal_number(fact):
            return False
    return rule.message is None or re.search(rule.message, fact.message) is not None
