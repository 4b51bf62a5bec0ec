"""More host memory for the next attempt of an instance that ran out of it. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from airflow_training.control import reasons
from airflow_training.control.draft import Draft
from airflow_training.control.model import OWN_INSTANCE, InstanceEntry, RaisedMemory
from airflow_training.control.observations import InstanceDiagnosis
from airflow_training.control.transitions import delete_initializer
from airflow_training.documents.quantities import bytes_text, parse_quantity
from airflow_training.documents.resolved import ResolvedJob, ResolvedRole
from airflow_training.errors import Problem
from airflow_training.frameworks.pods import training_container

__all__ = [
    "can_grow",
    "grow_memory",
    "growth_warnings",
    "memory_limit_of",
    "memory_of",
    "record_memory_ceiling",
    "with_its_memory",
]

_MIB = 1 << 20
_SURE = 0.8
"""Confidence from which on a log alone says that host memory ran out."""


# how much --------------------------------------------------------------------------------------------
def memory_of(role: ResolvedRole, entry: InstanceEntry | None = None) -> int | None:
    """Return the bytes that an instance asks for: its limit, else its request; None: it names none."""
    if entry is not None and entry.memory is not None:
        return entry.memory.bytes
    given = _resources(role)
    asked = _bytes(given, "limits")
    return _bytes(given, "requests") if asked is None else asked


def memory_limit_of(role: ResolvedRole, entry: InstanceEntry) -> int | None:
    """Bytes at which an instance is ended for want of memory; None: the job names no limit."""
    if _bytes(_resources(role), "limits") is None:
        return None
    return memory_of(role, entry)


def _grown(spec: ResolvedJob, entry: InstanceEntry) -> int | None:
    """Return what the next attempt asks for, in whole MiB; None where it cannot ask for more."""
    growth, now = spec.restart.on_out_of_memory, memory_of(spec.role(entry.role), entry)
    if growth is None or now is None or spec.scheduling.keeps_size:
        return None
    wanted = math.ceil(now * growth.factor / _MIB) * _MIB
    most = min(wanted, growth.up_to_bytes)
    return most if most > now else None


def can_grow(
    spec: ResolvedJob, entry: InstanceEntry, *, reason: str, told: InstanceDiagnosis | None
) -> bool:
    """Return whether an attempt ran out of host memory, and the next one would have more."""
    return _ran_out(reason, told) and _grown(spec, entry) is not None


def _ran_out(reason: str, told: InstanceDiagnosis | None) -> bool:
    if reason == reasons.OUT_OF_MEMORY:
        return True
    if told is None:
        return False
    return told.cause.id == "host-out-of-memory" and told.cause.confidence >= _SURE


def grow_memory(
    draft: Draft,
    entry: InstanceEntry,
    *,
    after: int,
    reason: str,
    told: InstanceDiagnosis | None,
) -> bool:
    """Let the attempt that follows `after` ask for more, where that ran out; return whether it does."""
    if entry.memory is not None and entry.memory.since_attempt > after:
        return True
    growth, now = draft.spec.restart.on_out_of_memory, memory_of(draft.spec.role(entry.role), entry)
    if growth is None or now is None or not _ran_out(reason, told):
        return False
    more = _grown(draft.spec, entry)
    if more is None:
        record_memory_ceiling(draft, entry, reason=reason, told=told)
        return False
    draft.record_event(
        reasons.MEMORY_RAISED,
        f"ran out of {bytes_text(now)} of memory: the next attempt asks for {bytes_text(more)}"
        f" (upTo {bytes_text(growth.up_to_bytes)})",
        of=entry,
        level="warning",
        memory_bytes=more,
    )
    delete_initializer(draft, entry)  # which has less
    memory = RaisedMemory(more, since_attempt=after + 1)
    draft.put(replace(entry, memory=memory, host=OWN_INSTANCE))
    return True


def record_memory_ceiling(
    draft: Draft, entry: InstanceEntry, *, reason: str, told: InstanceDiagnosis | None
) -> None:
    """Say that no attempt of an instance that ran out of memory will ask for more."""
    growth, now = draft.spec.restart.on_out_of_memory, memory_of(draft.spec.role(entry.role), entry)
    if growth is None or now is None or not _ran_out(reason, told) or _grown(draft.spec, entry):
        return
    draft.record_event(
        reasons.MEMORY_NOT_RAISED,
        f"ran out of {bytes_text(now)} of memory, and no attempt asks for more:"
        f" upTo is {bytes_text(growth.up_to_bytes)}",
        of=entry,
        level="warning",
        memory_bytes=now,
    )


# asking for it ---------------------------------------------------------------------------------------
def with_its_memory(job: ResolvedJob, entry: InstanceEntry) -> ResolvedJob:
    """Return the job as an instance sees it: with what this one asks for, where that is more."""
    if entry.memory is None:
        return job
    role = job.role(entry.role)
    template = _with_resources(role, _more(_resources(role), entry.memory.bytes))
    made = replace(role, template=template)
    return replace(job, roles=tuple(made if each is role else each for each in job.roles))


def _more(given: Mapping[str, Any], memory_bytes: int) -> dict[str, Any]:
    """Return resources with more memory: a request beside a limit grows with it."""
    limit, request = _bytes(given, "limits"), _bytes(given, "requests")
    new = {name: dict(given.get(name) or {}) for name in ("limits", "requests") if given.get(name)}
    if limit is not None:
        new["limits"]["memory"] = bytes_text(memory_bytes)
    if request is not None:
        share = 1.0 if limit is None else request / limit
        new["requests"]["memory"] = bytes_text(math.ceil(memory_bytes * share))
    return {**given, **new}


def _with_resources(role: ResolvedRole, resources: Mapping[str, Any]) -> dict[str, Any]:
    pod = role.template["spec"]
    containers = [
        {**each, "resources": dict(resources)} if each.get("name") == role.container else each
        for each in pod["containers"]
    ]
    return {**role.template, "spec": {**pod, "containers": containers}}


def _resources(role: ResolvedRole) -> Mapping[str, Any]:
    return training_container(role.template, None, name=role.container).get("resources") or {}


def _bytes(resources: Mapping[str, Any], kind: str) -> int | None:
    try:
        return int(parse_quantity((resources.get(kind) or {})["memory"]))
    except (KeyError, ValueError):
        return None


# what a user should know -----------------------------------------------------------------------------
def growth_warnings(job: ResolvedJob) -> Iterator[Problem]:
    """Yield why `restart.onOutOfMemory` has no effect, for all or for one role."""
    growth = job.restart.on_out_of_memory
    if growth is None:
        return
    if job.scheduling.keeps_size:
        yield _without_effect("its group keeps what it was admitted with", hint="")
        return
    known = {role.name: memory_of(role) for role in job.roles}
    if not any(known.values()):
        hint = "resources: {limits: {memory: 8Gi}}"
        yield _without_effect("no role says how much memory it has", hint=hint)
    for name, now in known.items():
        if now is not None and now >= growth.up_to_bytes:
            why = f"{name} asks for {bytes_text(now)}, and upTo is {bytes_text(growth.up_to_bytes)}"
            yield _without_effect(why, hint="a larger upTo")


def _without_effect(why: str, *, hint: str) -> Problem:
    return Problem(
        code="not_supported",
        field="spec.restart.onOutOfMemory",
        message=f"has no effect: {why}",
        hint=hint,
    )
