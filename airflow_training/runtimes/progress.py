"""What a line of progress says. Pure: scripts write it, so nothing about it is taken for granted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeGuard

from airflow_training.control.model import Progress, Told
from airflow_training.control.subtasks import STATES, STEPS_KEPT

__all__ = ["progress_of"]

_LONGEST_NAME = 64
_LONGEST_GROUP = 80
_LONGEST_DIGEST = 71
_TOO_LARGE = 1 << 63
"""No database has a place for it; an infinite or undefined number is none below it either."""


def progress_of(values: Any) -> Progress | None:
    """Return a decoded line as progress, without what makes no sense in it; None for no object."""
    if not isinstance(values, dict):
        return None

    def number(name: str) -> float | None:
        value = values.get(name)
        return value if _is_number(value) and abs(value) < _TOO_LARGE else None

    def whole(name: str) -> int | None:
        value = number(name)
        return None if value is None else int(value)

    metrics = values.get("metrics")
    section = values.get("section")
    return Progress(
        step=whole("step"),
        total_steps=whole("total_steps"),
        epoch=number("epoch"),
        samples=whole("samples"),
        time=number("time"),
        metrics={
            str(name): float(value)
            for name, value in (metrics.items() if isinstance(metrics, dict) else ())
            if _is_number(value) and (isinstance(value, float) or abs(value) < _TOO_LARGE)
        },
        checkpoint=_reference(values.get("checkpoint")),
        section=section[:_LONGEST_NAME] if isinstance(section, str) else "",
        subtasks=tuple(_told(values.get("subtasks"))),
    )


def _reference(value: Any) -> dict[str, Any] | None:
    """Return what names a committed checkpoint, None where that is not all there."""
    if not isinstance(value, dict):
        return None
    uri, digest = value.get("uri"), value.get("digest")
    if not (isinstance(uri, str) and isinstance(digest, str) and len(uri) + len(digest) < 900):
        return None
    numbers = {
        name: found
        for name in ("step", "at", "seconds", "stall_seconds", "bytes")
        if _is_number(found := value.get(name)) and 0 <= found < _TOO_LARGE
    }
    if not {"step", "at"} <= numbers.keys():
        return None
    return {"uri": uri, "digest": digest, **numbers, "step": int(numbers["step"])}


def _told(values: Any) -> Iterator[Told]:
    """Yield what processes say of themselves; a line that says nothing whole is left out."""
    for line in values if isinstance(values, list | tuple) else ():
        if not isinstance(line, dict):
            continue
        rank, generation, sequence = (line.get(each) for each in ("rank", "generation", "sequence"))
        step, world = line.get("step"), line.get("world")
        verified = line.get("verified")
        group, environment = line.get("group", ""), line.get("environment", "")
        if (
            _is_count(rank)
            and _is_count(generation)
            and _is_count(sequence)
            and (step is None or _is_count(step))
            and (world is None or _is_count(world))
            and line.get("state") in STATES
            and isinstance(group, str)
            and isinstance(environment, str)
        ):
            yield Told(
                rank=rank,
                generation=generation,
                sequence=sequence,
                state=line["state"],
                step=step,
                verified=tuple(
                    each
                    for each in (verified if isinstance(verified, list | tuple) else ())
                    if _is_count(each)
                )[-STEPS_KEPT:],
                world=world,
                group=group[:_LONGEST_GROUP],
                environment=environment[:_LONGEST_DIGEST],
            )


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _TOO_LARGE


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
