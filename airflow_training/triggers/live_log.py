"""What a role's training says while it runs, for the log of its task: its progress and its last lines.

The first half is text only. The second half reads: the store, and once in a while the end of one
instance's log. Nothing of it fails or delays the trigger.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from airflow_training.control.attempts import AttemptId
from airflow_training.control.reports import ProgressReport
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.text import printable
from airflow_training.state.store import RunState, Store
from airflow_training.triggers.access import runtime_of
from airflow_training.triggers.log_tail import instance_ref

__all__ = ["LiveLog", "fresh_lines", "lines_of", "pauses", "progress_line"]

log = logging.getLogger(__name__)

_FIRST_SECONDS = 10.0
_LONGEST_SECONDS = 300.0
_SECONDS_PER_ROLE = 180.0
"""Between two readings, times the roles of the job: reading takes up to three requests of a cluster,
and all roles of a job together ask it no more than once a minute."""
_READ_SECONDS = 30.0
_LINES = 20
_CHARACTERS = 200
_BYTES = 16_384
_METRICS = 3

_ESCAPE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
"""Colours and movements of a terminal."""
_RATE = "_per_second"


def pauses(*, roles: int) -> Iterator[float]:
    """Yield how long to wait before each look: until 10, 20, 40 ... seconds are over, then evenly."""
    longest = max(_LONGEST_SECONDS, _SECONDS_PER_ROLE * roles)
    pause = _FIRST_SECONDS
    yield pause
    while True:
        yield min(pause, longest)
        pause = min(2 * pause, longest)


def lines_of(tail: bytes, *, limit: int = _BYTES) -> list[str]:
    """Return the last complete lines of a log's end as they look, without colours, each cut to fit.

    `limit`: how many bytes were asked for; where as many came, the first line is not complete.
    """
    text = tail.rpartition(b"\n")[0].decode(errors="replace")
    if len(tail) >= limit:
        text = text.partition("\n")[2]
    lines = []
    for line in text.split("\n"):
        # a progress bar writes over itself: what it wrote last is what a terminal shows
        shown = printable(_ESCAPE.sub("", line.rstrip("\r").rpartition("\r")[2])).rstrip()
        if shown:
            lines.append(shown if len(shown) <= _CHARACTERS else f"{shown[: _CHARACTERS - 1]}…")
    return lines[-_LINES:]


def fresh_lines(before: Sequence[str], now: Sequence[str]) -> Sequence[str]:
    """Return the lines of `now` that were not among `before`: two ends of the same log."""
    for known in range(min(len(before), len(now)), 0, -1):
        if before[-known:] == now[:known]:
            return now[known:]
    return now


def progress_line(
    role: str,
    progress: Mapping[int, ProgressReport],
    *,
    metrics: Mapping[str, float],
    instances: int,
) -> str:
    """Return how far a role is, as one line; empty where none of its instances has said so.

    `progress`: the newest report of each instance, by index; `metrics`: the newest of the first one.
    """
    if not progress:
        return ""
    first = min(progress)
    parts = [f"{role}-{first} {_place(progress[first])}".rstrip()]
    parts += [_metric(name, value) for name, value in list(metrics.items())[:_METRICS]]
    said = [", ".join(parts)]
    if instances > 1:
        said.append(f"{len(progress)} of {instances} instances report")
    steps = {index: each.step for index, each in progress.items() if each.step is not None}
    if steps and min(steps.values()) < max(steps.values()):
        slowest = min(steps, key=lambda index: steps[index])
        said.append(f"slowest {role}-{slowest} at {steps[slowest]}")
    return f"progress: {'; '.join(said)}"


def _place(said: ProgressReport) -> str:
    if said.step is not None:
        return (
            f"step {said.step} of {said.total_steps}" if said.total_steps else f"step {said.step}"
        )
    return f"epoch {said.epoch:g}" if said.epoch is not None else ""


def _metric(name: str, value: float) -> str:
    number = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    if name.endswith(_RATE):
        return printable(f"{number} {name.removesuffix(_RATE)}/s")
    return printable(f"{name} {number}")


class LiveLog:
    """Tells what is new of one role, from `begin` on until it is closed."""

    def __init__(
        self, store: Store, uid: str, *, role: str, tell: Callable[[int, str], None]
    ) -> None:
        """`tell(level, text)`."""
        self._store = store
        self._uid = uid
        self._role = role
        self._tell = tell
        self._task: asyncio.Task[None] | None = None
        self._progress = ""
        self._attempt: AttemptId | None = None
        self._lines: Sequence[str] = ()

    def begin(self, *, roles: int) -> None:
        """Go on by itself, of a job with so many roles; a second time changes nothing."""
        if self._task is None:
            self._task = asyncio.create_task(self._follow(pauses(roles=roles)))

    async def aclose(self) -> None:
        """Say nothing any more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _follow(self, waits: Iterator[float]) -> None:
        for seconds in waits:
            await asyncio.sleep(seconds)
            await self._log_updates()

    async def _log_updates(self) -> None:
        try:
            state = await asyncio.to_thread(self.state)
            await self.log_progress(state)
            await self.log_lines(state)
        except (
            Exception
        ) as error:  # of the store, or whatever the runtime of another package raises
            log.debug("no news of %s: %s", self._role, error, exc_info=True)

    async def log_progress(self, state: RunState) -> None:
        """Tell how far the role is, where that has changed."""
        line = await asyncio.to_thread(self._progress_line, state)
        if line and line != self._progress:
            self._tell(logging.INFO, line)
            self._progress = line

    async def log_lines(self, state: RunState) -> None:
        """Tell what the role's first instance has printed since the last time, as far as it fits."""
        entry = state.ledger.instances[InstanceKey(self._role, 0)]
        if entry.state != "running":
            return
        ref = instance_ref(state.record, state.ledger, self._role, 0)
        reading = runtime_of(state.job).tail_log(ref, limit=_BYTES)
        now = lines_of(await asyncio.wait_for(reading, _READ_SECONDS))
        before = self._lines if entry.attempt_id == self._attempt else ()
        self._attempt, self._lines = entry.attempt_id, now
        for line in fresh_lines(before, now):
            self._tell(logging.INFO, f"{self._role}-0 | {line}")

    def state(self) -> RunState:
        """Return the run as it is now; blocks."""
        return self._store.read([self._uid])[self._uid]

    def _progress_line(self, state: RunState) -> str:
        instances = [key for key in state.ledger.instances if key.role == self._role]
        said = self._store.progress.newest(self._uid)
        progress = {key.index: said[key] for key in instances if key in said}
        newest = self._store.metrics.newest(self._uid)
        return progress_line(
            self._role,
            progress,
            metrics=newest.get(InstanceKey(self._role, min(progress, default=0)), {}),
            instances=len(instances),
        )
