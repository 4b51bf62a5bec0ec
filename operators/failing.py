"""How a task on a worker fails: its reason in plain lines first, then Airflow's traceback."""

from __future__ import annotations

from typing import Any

from airflow.sdk.exceptions import AirflowFailException

__all__ = ["failure"]


def failure(text: str, *, log: Any) -> AirflowFailException:
    """Return the exception to raise; there is no retry, for the job has restarts of its own.

    Airflow logs it with a traceback, below which nobody looks for the reason.
    """
    for line in text.splitlines():
        log.error("%s", line)
    return AirflowFailException(text)
