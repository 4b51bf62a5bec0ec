"""What a person sees while a job runs: a live table per role on a terminal, event lines elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from airflow_training.cli.output import EventLevel, event_line, note, terminal
from airflow_training.control.model import Event, Ledger
from airflow_training.control.reports import ProgressReport
from airflow_training.documents.instances import InstanceKey
from airflow_training.supervise.waiting import alongside

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["EventPrinter", "RunSource", "make_event_printer"]

_REFRESH_SECONDS = 0.25
_LINE_SECONDS = 30.0
_WIDE_COLUMNS = 100
"""A terminal of fewer columns shows neither bar nor rate."""


class RunSource(Protocol):
    """What a view reads of a run: a Supervisor has it."""

    @property
    def ledger(self) -> Ledger | None: ...
    @property
    def progress(self) -> Mapping[InstanceKey, ProgressReport]: ...


class EventPrinter:
    """Prints events as lines on stderr."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    def print_event(self, event: Event) -> None:
        """Print one event."""
        note(event_line(event, as_json=self._as_json))

    def print_line(self, message: str, *, level: EventLevel = "info") -> None:
        """Print what is no event of the run, in the form of the other lines."""
        if not self._as_json:
            note(message)
            return
        event = Event(at=time.time(), reason="Note", message=message, level=level)
        note(event_line(event, as_json=True))

    @contextlib.asynccontextmanager
    async def following(self, watched: RunSource) -> AsyncIterator[None]:
        """Show the run while the body goes on: here a line now and then, if anything is to tell."""

        async def report() -> None:
            while True:
                await asyncio.sleep(_LINE_SECONDS)
                if watched.ledger is not None:
                    self.print_line(_line(watched.ledger, watched.progress))

        async with alongside(report()):
            yield


class LiveStory(EventPrinter):
    """Prints events above a table of roles that renews itself."""

    def __init__(self) -> None:
        super().__init__(as_json=False)
        from rich.console import Console
        from rich.live import Live

        self._console = Console(file=terminal(sys.stderr))
        self._live = Live(console=self._console, auto_refresh=False, transient=True)

    def print_event(self, event: Event) -> None:
        """Print one event above the table."""
        style = {"warning": "yellow", "error": "red"}.get(event.level, "")
        self._console.print(event_line(event, as_json=False), style=style, markup=False)

    def print_line(self, message: str, *, level: EventLevel = "info") -> None:
        """Print it above the table."""
        del level
        self._console.print(message, markup=False, highlight=False, soft_wrap=True)

    @contextlib.asynccontextmanager
    async def following(self, watched: RunSource) -> AsyncIterator[None]:
        """Show the table until the body ends."""

        async def renew() -> None:
            while True:
                if watched.ledger is not None:
                    table = _table(
                        watched.ledger,
                        watched.progress,
                        now=time.time(),
                        wide=self._console.width >= _WIDE_COLUMNS,
                    )
                    self._live.update(table, refresh=True)
                await asyncio.sleep(_REFRESH_SECONDS)

        with self._live:
            async with alongside(renew()):
                yield


def make_event_printer(*, as_json: bool) -> EventPrinter:
    """Return the view that suits stderr: live on a terminal, lines in a pipe."""
    return LiveStory() if sys.stderr.isatty() and not as_json else EventPrinter(as_json=as_json)


def _table(
    ledger: Ledger, progress: Mapping[InstanceKey, ProgressReport], *, now: float, wide: bool
) -> Table:
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("role", "state", "running", "done", "restarts", "progress"):
        table.add_column(heading)
    if wide:
        table.add_column("")
        table.add_column("rate")
    for name, role in ledger.roles.items():
        team = [each for (of, _), each in ledger.instances.items() if of == name]
        newest = [each for (of, _), each in progress.items() if of == name]
        slowest = min(newest, key=lambda each: each.step or 0, default=None)
        running = [each for each in team if each.state == "running"]
        cells: list[Any] = [
            name,
            role.state,
            f"{len(running)}/{role.desired}",
            str(sum(each.state == "succeeded" for each in team)),
            str(sum(each.restarts for each in team)),
            _progress(slowest),
        ]
        if wide:
            bar: Any = ""
            if slowest is not None and slowest.step is not None and slowest.total_steps:
                bar = ProgressBar(total=slowest.total_steps, completed=slowest.step, width=20)
            started = min((each.started_at for each in running if each.started_at), default=None)
            cells += [bar, _rate(slowest, seconds=now - started if started else None)]
        table.add_row(*cells)
    return table


def _line(ledger: Ledger, progress: Mapping[InstanceKey, ProgressReport]) -> str:
    """Return where the roles are: `worker: 2/2 running, step 30/900, loss 0.31`."""
    parts = []
    for name, role in ledger.roles.items():
        team = [each for (of, _), each in ledger.instances.items() if of == name]
        running = sum(each.state == "running" for each in team)
        newest = [each for (of, _), each in progress.items() if of == name]
        told = _progress(min(newest, key=lambda each: each.step or 0, default=None))
        parts.append(f"{name}: {running}/{role.desired} running" + (f", {told}" if told else ""))
    return "; ".join(parts)


def _progress(progress: ProgressReport | None) -> str:
    from airflow_training.cli.statuses import progress_text

    if progress is None:
        return ""
    return progress_text(
        {
            "step": progress.step,
            "total_steps": progress.total_steps,
            "epoch": progress.epoch,
            "metrics": progress.metrics,
        }
    )


def _rate(progress: ProgressReport | None, *, seconds: float | None) -> str:
    if progress is None or not progress.step or not seconds or seconds <= 0:
        return ""
    rate = progress.step / seconds
    left = (progress.total_steps - progress.step) / rate if progress.total_steps else None
    return f"{rate:.1f} steps/s" + (f", {left:.0f} s left" if left is not None else "")
