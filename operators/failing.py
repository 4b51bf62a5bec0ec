"""How a task on a worker fails: its reason as the last lines of its log, without a traceback."""

from __future__ import annotations

import sys
from collections.abc import MutableMapping
from typing import Any

import structlog
from airflow.sdk.exceptions import AirflowFailException

from airflow_training.documents.text import wrap_lines

__all__ = ["TaskFailure", "failure"]


class TaskFailure(AirflowFailException):
    """Fails a task without a retry; its log says why already, in lines for people."""


def failure(text: str, *, log: Any) -> TaskFailure:
    """Return the exception to raise; there is no retry, for the job has restarts of its own."""
    for line in wrap_lines(text):
        log.error("%s", line)
    _leave_tracebacks_out()
    return TaskFailure(text)


def _leave_tracebacks_out() -> None:
    """Let Airflow log no frames of an `TaskFailure` in this process.

    Airflow logs every exception of a task with its traceback, in which the reason would be one long
    line below twenty of Airflow's own. Only `SystemExit` goes without, and that would be retried.
    With another configuration of structlog than Airflow's own, the traceback stays.
    """
    # loggers that are in use hold this very list
    processors: Any = structlog.get_config()["processors"]
    if isinstance(processors, list) and _without_traceback not in processors:
        processors.insert(0, _without_traceback)


def _without_traceback(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Do the part of a processor of structlog, which gets each message before it is rendered."""
    if isinstance(sys.exc_info()[1], TaskFailure):
        event.pop("exc_info", None)
    return event
