"""What `RUN|FILE…` means: opened logs, each with what is known of who wrote it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from airflow_training.cli.output import fail
from airflow_training.cli.run_logs import find_logs
from airflow_training.errors import InputError, TrainingError

if TYPE_CHECKING:
    from airflow_training.logs.metrics.formats import Format
    from airflow_training.logs.model import Origin
    from airflow_training.logs.reading.source import Source

__all__ = [
    "OpenLog",
    "TargetsArgument",
    "check_whole",
    "is_file",
    "open_targets",
    "patterns_of_runs",
]

TargetsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="RUN|FILE...",
        help="A run (see `list`), or files: paths and URLs, compressed or not, one for each rank.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLog:
    """One log. `source.name` is what people call it."""

    origin: Origin
    source: Source
    until: float | None = None
    """Of an instance: now while it runs, when it failed; else None."""
    begun: bool = True
    """Somebody saw it: else there is no log to miss yet."""

    @property
    def missing(self) -> str:
        """A sentence about lines that could not be kept, and why, as far as the log was read."""
        return str(getattr(self.source, "missing", "")) if self.begun else ""


def is_file(name: str) -> bool:
    """Return whether a target is a file: what exists as path, no folder, or has a URL's scheme."""
    from airflow_training.logs.reading.opening import is_url

    return is_url(name) or (Path(name).exists() and not Path(name).is_dir())


def open_targets(
    names: Sequence[str],
    *,
    role: str | None = None,
    index: int | None = None,
    attempt: int | None = None,
) -> list[OpenLog]:
    """Open every file, and of every run the newest attempt of each instance.

    `role`, `index`, `attempt`: only those of runs. Raises InputError for what is not there.
    """
    found: list[OpenLog] = []
    for name in names:
        if is_file(name):
            found.append(_open_file(name))
        else:
            found += _open_run(name, role=role, index=index, attempt=attempt)
    return found


def check_whole(missing: Mapping[str, str]) -> None:
    """Say which logs could not be kept, or only in part; raises TrainingError where there are any.

    `missing`: name of the instance -> why, "" where nothing is missing.
    """
    lost = [f"the log of {name} is not complete: {why}" for name, why in missing.items() if why]
    if lost:
        raise TrainingError("; ".join(lost))


def patterns_of_runs(names: Sequence[str]) -> tuple[Format, ...]:
    """Return the formats of log lines that the jobs of the runs among the targets add."""
    from airflow_training.admission.log_patterns import formats_of

    runs = [find_logs(name) for name in names if not is_file(name)]
    return tuple(
        each for run in runs for each in formats_of(run.store.job(run.record.uid).log_patterns)
    )


def _open_file(name: str) -> OpenLog:
    from airflow_training.logs.reading.opening import open_log
    from airflow_training.logs.reading.origins import origin_of
    from airflow_training.logs.reading.source import LogUnreadable

    try:
        return OpenLog(origin=origin_of(name), source=open_log(name))
    except LogUnreadable as error:
        raise fail("FILE", str(error), code="bad_reference", value=name) from error


def _open_run(
    name: str, *, role: str | None, index: int | None, attempt: int | None
) -> list[OpenLog]:
    from airflow_training.logs.model import Origin

    try:
        run = find_logs(name)
    except InputError as error:
        if "/" in name or "." in name:  # more likely a path that was mistyped
            text = f"{name} is no file, and no run has this name"
            raise fail("RUN|FILE", text, code="bad_reference", value=name) from error
        raise
    if role is not None and index is not None:
        instances = [run.instance(role, index)]
    else:
        instances = [
            each
            for each in run.instances()
            if role in (None, each.role) and index in (None, each.index)
        ]
    found = []
    for instance in instances:
        attempt_id = instance.chosen(attempt)
        if attempt_id is not None:
            source = run.open(instance, attempt_id)
            origin = Origin(
                file=source.name,
                role=instance.role,
                index=instance.index,
                attempt=attempt_id.attempt,
                rank=instance.rank(),
            )
            until = instance.printed_until(attempt_id)
            begun = instance.has_begun(attempt_id)
            found.append(OpenLog(origin=origin, source=source, until=until, begun=begun))
    return found
