"""What a line of progress says. Pure: scripts write it, so nothing about it is taken for granted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeGuard

from airflow_training.agent.data_files import MOST_TOLD
from airflow_training.control.reports import (
    FileRead,
    FilesReport,
    ProcessReport,
    ProgressReport,
    Regrouping,
    RejectedCheckpoint,
    ReportedValue,
)
from airflow_training.control.subtasks import STATES, STEPS_KEPT
from airflow_training.documents.resolved_blocks import CheckpointCommit

__all__ = ["progress_of"]

_LONGEST_NAME = 64
_LONGEST_FILE_NAME = 200
_LONGEST_GROUP = 80
_LONGEST_DIGEST = 71
_LONGEST_REASON = 300
_MOST_REJECTED = 8
_MOST_REGROUPED = 8
_MOST_POINTS = 1 << 13
_TOO_LARGE = 1 << 63
"""No database has a place for it; an infinite or undefined number is none below it either."""


def progress_of(values: Any) -> ProgressReport | None:
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
    return ProgressReport(
        step=whole("step"),
        total_steps=whole("total_steps"),
        epoch=number("epoch"),
        samples=whole("samples"),
        time=number("time"),
        metrics={
            str(name): float(value)
            for name, value in (metrics.items() if isinstance(metrics, dict) else ())
            if _is_value(value)
        },
        checkpoint=_commit(values.get("checkpoint")),
        section=section[:_LONGEST_NAME] if isinstance(section, str) else "",
        subtasks=tuple(_reports(values.get("subtasks"))),
        points=_points(values.get("points")),
        files=_files(values.get("files")),
        rejected=tuple(_rejected(values.get("rejected")))[-_MOST_REJECTED:],
        regrouped=tuple(_regrouped(values.get("regrouped")))[-_MOST_REGROUPED:],
    )


def _points(value: Any) -> Mapping[str, Sequence[ReportedValue]]:
    """Return the points of each metric, at most so many in all."""
    found: dict[str, list[ReportedValue]] = {}
    told = (
        (name, point)
        for name, points in (value.items() if isinstance(value, dict) else ())
        for point in (points if isinstance(points, list) else ())
        if isinstance(point, list) and len(point) == len(ReportedValue._fields)
    )
    for name, (step, at, number) in islice(told, _MOST_POINTS):
        if _is_number(at) and abs(at) < _TOO_LARGE and _is_value(number):
            whole = int(step) if _is_number(step) and abs(step) < _TOO_LARGE else None
            found.setdefault(str(name), []).append(ReportedValue(whole, float(at), float(number)))
    return found


def _files(value: Any) -> FilesReport | None:
    """Return what the agent says of files, None where that is not all there."""
    if not isinstance(value, dict):
        return None
    read, known, done = (value.get(each) for each in ("read", "known", "done"))
    if not (_is_amount(read) and _is_count(known) and _is_count(done)):
        return None
    newest = value.get("newest")
    told = newest[:MOST_TOLD] if isinstance(newest, list) else ()
    return FilesReport(
        read=read, known=known, done=done, newest=tuple(filter(None, map(_file, told)))
    )


def _file(value: Any) -> FileRead | None:
    name, read = (value.get("name"), value.get("read")) if isinstance(value, dict) else (None, None)
    if not (isinstance(name, str) and name and _is_amount(read)):
        return None
    total = value.get("total")
    return FileRead(
        # a lone surrogate is no text that a page can be sent
        name=name[-_LONGEST_FILE_NAME:].encode("utf-8", "replace").decode(),
        read=read,
        total=total if _is_amount(total) else None,
    )


def _commit(value: Any) -> CheckpointCommit | None:
    """Return a report of a committed checkpoint, None where that is not all there."""
    if not isinstance(value, dict):
        return None
    uri, digest = value.get("uri"), value.get("digest")
    if not (isinstance(uri, str) and isinstance(digest, str) and len(uri) + len(digest) < 900):
        return None
    numbers: dict[str, Any] = {
        name: found
        for name in ("step", "at", "seconds", "stall_seconds", "bytes", "number")
        if _is_number(found := value.get(name)) and 0 <= found < _TOO_LARGE
    }
    if not {"step", "at"} <= numbers.keys():
        return None
    whole = {name: int(numbers[name]) for name in ("step", "number") if name in numbers}
    return CheckpointCommit(uri=uri, digest=digest, **(numbers | whole))


def _reports(values: Any) -> Iterator[ProcessReport]:
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
            yield ProcessReport(
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
                rejected=tuple(_rejected(line.get("rejected")))[-_MOST_REJECTED:],
            )


def _rejected(values: Any) -> Iterator[RejectedCheckpoint]:
    for each in values if isinstance(values, list | tuple) else ():
        if not isinstance(each, dict):
            continue
        at, why, step = (each.get(name) for name in ("at", "why", "step"))
        if _is_amount(at) and isinstance(why, str) and (step is None or _is_count(step)):
            # a lone surrogate is no text that a page can be sent
            text = why[:_LONGEST_REASON].encode("utf-8", "replace").decode()
            restore = each.get("restore", "")
            told = restore[:_LONGEST_GROUP] if isinstance(restore, str) else ""
            yield RejectedCheckpoint(at=at, why=text, step=step, restore=told)


def _regrouped(values: Any) -> Iterator[Regrouping]:
    for each in values if isinstance(values, list | tuple) else ():
        if not isinstance(each, dict):
            continue
        at, seconds, source = (each.get(name) for name in ("at", "seconds", "source"))
        counts = {name: each.get(name, 0) for name in ("ranks", "step", "lost_steps", "revision")}
        moved = each.get("moved_bytes")
        if (
            all(map(_is_count, counts.values()))
            and _is_amount(at)
            and _is_amount(seconds)
            and isinstance(source, str)
        ):
            text = source[:_LONGEST_NAME].encode("utf-8", "replace").decode()
            yield Regrouping(
                at=at,
                seconds=seconds,
                source=text,
                moved_bytes=moved if _is_count(moved) else None,
                **counts,
            )


def _is_amount(value: Any) -> TypeGuard[int | float]:
    return _is_number(value) and 0 <= value < _TOO_LARGE


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _TOO_LARGE


def _is_value(value: Any) -> TypeGuard[int | float]:
    """Return whether it is a value of a metric: infinite or undefined is worth knowing."""
    return _is_number(value) and (isinstance(value, float) or abs(value) < _TOO_LARGE)


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
