"""What an instance printed last, where nothing else says why it ended: the words of its headline."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from airflow_training.control.causes import RootCause
from airflow_training.control.usage import AttemptUsage
from airflow_training.documents.resolved import RunRef
from airflow_training.documents.text import AGENT_LINE, counted, headline
from airflow_training.errors import RuntimeUnavailable, TrainingError
from airflow_training.runtimes.port import Cursor, InstanceRef, Runtime
from airflow_training.supervise.followers.log_ends import read_end

__all__ = ["last_line", "read_last_words"]

_READ_SECONDS = 10.0
_TAIL_BYTES = 16 << 10
_MOST_ATTEMPTS = 20
"""Whose logs are looked at, of one instance; the newest."""


async def read_last_words(
    runtime: Runtime, run: RunRef, cause: RootCause, attempts: Sequence[AttemptUsage]
) -> str:
    """Return the last line that the instance of a root cause printed, or that it printed nothing; "" for no answer.

    `attempts`: those of the run. Where each of this instance printed nothing, how many there were in which time.
    """
    own = sorted(
        (each for each in attempts if each.key == cause.key), key=lambda each: each.attempt_id
    )[-_MOST_ATTEMPTS:]
    own = [each for each in own if each.attempt_id.epoch == own[-1].attempt_id.epoch]
    if not own or own[-1].attempt_id.attempt != cause.attempt:
        return ""
    try:
        last = await _words(runtime, run, own[-1])
        if last:
            return f"last line: {last}"
        others = await asyncio.gather(*(_words(runtime, run, each) for each in own[:-1]))
    except asyncio.TimeoutError:
        return f"its log could not be read within {_READ_SECONDS:g} s"
    except TrainingError as error:
        return f"its log could not be read: {headline(str(error))}"
    if not others or any(others):
        return "it printed nothing"
    took = (own[-1].finished_at or cause.at or own[0].started_at) - own[0].started_at
    return f"{counted(len(own), 'attempt')} in {took:.0f} s, each printed nothing"


async def _words(runtime: Runtime, run: RunRef, attempt: AttemptUsage) -> str:
    """Return the last line of an attempt's own; "" where it printed none."""
    ref = InstanceRef(run=run, key=attempt.key, attempt_id=attempt.attempt_id)
    end = await asyncio.wait_for(read_end(runtime, ref, limit=_TAIL_BYTES), _READ_SECONDS)
    if not end.data and (missing := (await runtime.read_log(ref, Cursor(), limit=1)).missing):
        raise RuntimeUnavailable(missing)
    return last_line(end.data)


def last_line(text: bytes) -> str:
    """Return the last line that a program printed, of what its agent has written beside it; "" for none."""
    lines = text.decode(errors="replace").splitlines()
    return headline("\n".join(line for line in lines if not line.startswith(AGENT_LINE)))
