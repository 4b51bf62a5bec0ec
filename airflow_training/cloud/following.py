"""Shows a run as if it ran here: what its ranks print, how far it is, how it ended."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Literal

from airflow_training.cloud.client import CloudClient
from airflow_training.cloud.protocol import CloudRunState
from airflow_training.errors import InputError, RuntimeUnavailable

__all__ = ["DetachError", "ProgressLine", "ask_person", "follow", "progress_text", "shown_lines"]

_POLL_SECONDS = 0.2
_SLOWEST_POLL_SECONDS = 2.0
_AWAY_SECONDS = 600.0
"""How long a service that does not answer is waited for."""
_WAITING = "WaitingForData"
Answer = Literal["detach", "stop", "go on"]


class DetachError(Exception):
    """Whoever follows has left; the run goes on."""


@dataclass(slots=True)
class _RankLog:
    rank: int
    attempt: int = -1
    offset: int = 0
    ended: bool = False
    begun: bytes = b""
    """A line that is not complete."""


@dataclass(slots=True)
class _Interrupt:
    """Ctrl-C, as often as it was pressed."""

    count: int = 0
    before: Any = field(default=None)

    def heard(self, _number: int, _frame: object) -> None:
        self.count += 1


def follow(
    client: CloudClient,
    run_id: str,
    *,
    ranks: Sequence[int] = (0,),
    told: Callable[[str], None],
    asked: Callable[[], Answer] | None = None,
) -> CloudRunState:
    """Copy what the ranks print to stdout until the run is over; returns how it ended.

    Several ranks have their names before their lines. `asked`: what an interrupt asks a person; None: nobody
    is there, and the run is stopped. A second interrupt stops it. Raises DetachError.
    """
    logs = [_RankLog(rank) for rank in ranks]
    interrupt = _Interrupt()
    out = ProgressLine(told)
    with _hearing(interrupt):
        return _follow(client, run_id, logs, interrupt, out, told=told, asked=asked)


def _follow(
    client: CloudClient,
    run_id: str,
    logs: Sequence[_RankLog],
    interrupt: _Interrupt,
    line: ProgressLine,
    *,
    told: Callable[[str], None],
    asked: Callable[[], Answer] | None,
) -> CloudRunState:
    stopped, away, wait, is_waiting = False, 0.0, _POLL_SECONDS, False
    client.run(run_id)  # says now that it does not answer; what goes away later is waited for
    while True:
        try:
            state = client.run(run_id)
            printed = sum(
                _copy(client, run_id, log, over=state.over, several=len(logs) > 1, line=line)
                for log in logs
            )
        except RuntimeUnavailable as error:
            away = away or time.monotonic()
            if time.monotonic() - away > _AWAY_SECONDS:
                raise
            with contextlib.suppress(RuntimeUnavailable):  # it is tried again
                client.revive()
            line.show("waiting: " + str(error).partition("\n")[0])
            time.sleep(_SLOWEST_POLL_SECONDS)
            continue
        away = 0.0
        line.show(progress_text(state))
        if state.message.startswith(_WAITING) and not is_waiting:
            line.clear()
            told(state.message)
        is_waiting = state.message.startswith(_WAITING)
        if state.over and all(log.ended or state.state == "Stopped" for log in logs):
            line.clear()
            return state
        if state.over and not printed:  # a rank that never began prints nothing
            line.clear()
            return state
        if interrupt.count and not stopped:
            line.clear()
            answer: Answer = "stop" if asked is None or interrupt.count > 1 else asked()
            if interrupt.count > 1:
                answer = "stop"
            if answer == "detach":
                raise DetachError
            if answer == "stop":
                client.stop(run_id)
                told(f"stopping {run_id}")
                stopped = True
            else:
                interrupt.count = 0
        wait = _POLL_SECONDS if printed else min(_SLOWEST_POLL_SECONDS, wait * 1.3)
        time.sleep(0 if printed else wait)


def _copy(
    client: CloudClient,
    run_id: str,
    log: _RankLog,
    *,
    over: bool,
    several: bool,
    line: ProgressLine,
) -> int:
    """Print what is new of a rank; return how many bytes. `over`: no attempt follows, as after a pause."""
    if log.ended:
        return 0
    try:
        found = client.log(run_id, rank=log.rank, attempt=log.attempt, offset=log.offset)
    except InputError:  # no such rank: the run has fewer
        log.ended = True
        return 0
    if found.attempt < 0:
        log.ended = found.end
        return 0
    log.attempt, log.offset = found.attempt, found.next_offset
    text, ours, log.begun = shown_lines(
        log.begun + found.data, last=found.end, rank=log.rank if several else None
    )
    line.clear()
    for each in ours:
        line.told(each)
    _write(sys.stdout, text)
    line.printed(text)
    if found.end and found.next_attempt >= 0:
        log.attempt, log.offset = found.next_attempt, 0
    elif found.end:
        log.ended = over
    return len(found.data)


def shown_lines(data: bytes, *, last: bool, rank: int | None) -> tuple[bytes, Sequence[str], bytes]:
    """What goes to stdout, what our agent says, and the beginning of a line that is not complete.

    Without `rank`, bytes pass as they are, at once; with it, whole lines, the rank before each.
    """
    *lines, begun = data.split(b"\n")
    whole = [each + b"\n" for each in lines]
    if begun and (last or (rank is None and not _AGENT.startswith(begun[: len(_AGENT)]))):
        whole, begun = [*whole, begun], b""
    ours = [each.decode(errors="replace").rstrip() for each in whole if each.startswith(_AGENT)]
    kept = [each for each in whole if not each.startswith(_AGENT)]
    if rank is not None:
        kept = [f"[{rank}] ".encode() + each.rstrip(b"\n") + b"\n" for each in kept]
    return b"".join(kept), ours, begun


_AGENT = b"airflow-training: "


def progress_text(state: CloudRunState) -> str:
    """Where a run stands, on one line."""
    for each in sorted(state.instances, key=lambda row: (row["rank"] is None, row["rank"] or 0)):
        progress = each["progress"] or {}
        if not progress:
            continue
        parts = []
        if progress.get("step") is not None:
            total = progress.get("total_steps")
            parts.append(f"step {progress['step']}" + (f"/{total}" if total else ""))
        if progress.get("epoch") is not None:
            parts.append(f"epoch {progress['epoch']:g}")
        parts += [f"{name} {value:.4g}" for name, value in (progress.get("metrics") or {}).items()]
        if parts:
            return f"{state.state}: {', '.join(parts[:6])}"
    if state.message and not state.over:
        return f"{state.state}: {state.message}"
    return state.state


class ProgressLine:
    """The last line of a terminal; nothing where stderr is none, or while a line of the program is open."""

    def __init__(self, told: Callable[[str], None]) -> None:
        self.told = told
        self._shown = ""
        self._there = sys.stderr.isatty()
        self._open = False

    def printed(self, text: bytes) -> None:
        """What the program has written: `loading ... ` without an end, or a bar, is not to be erased."""
        if text and sys.stdout.isatty():
            self._open = not text.endswith(b"\n")

    def show(self, text: str) -> None:
        """Replace the line."""
        if self._there and not self._open and text != self._shown:
            sys.stderr.write(f"\r\x1b[2K{text}")
            sys.stderr.flush()
            self._shown = text

    def clear(self) -> None:
        """Make room for what is printed."""
        if self._there and self._shown:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
            self._shown = ""


def _write(stream: Any, data: bytes) -> None:
    raw: BinaryIO | None = getattr(stream, "buffer", None)
    if raw is None:  # stdout of a notebook or a test
        stream.write(data.decode(errors="replace"))
    else:
        stream.flush()
        raw.write(data)
    stream.flush()


@contextlib.contextmanager
def _hearing(interrupt: _Interrupt) -> Iterator[None]:
    try:
        before = signal.signal(signal.SIGINT, interrupt.heard)
    except ValueError:  # not the main thread: it hears nothing
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def ask_person() -> Answer:
    """Ask on the terminal; what is no answer is asked again. A second Ctrl-C stops."""
    default = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        while True:
            sys.stderr.write("\n[d]etach (the run goes on), [s]top it, or [c]ontinue? ")
            sys.stderr.flush()
            said = os.read(sys.stdin.fileno(), 200).decode(errors="replace").strip().lower()
            if said[:1] == "d" or not said:
                return "detach"
            if said[:1] == "s":
                return "stop"
            if said[:1] == "c":
                return "go on"
    except KeyboardInterrupt:
        return "stop"
    finally:
        signal.signal(signal.SIGINT, default)
