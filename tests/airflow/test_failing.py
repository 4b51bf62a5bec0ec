"""A task that fails says why in lines of its own, and its log has no traceback behind them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from airflow.sdk.exceptions import AirflowFailException

from airflow_training.operators.failing import failure

TEXT = "root cause: worker-0: " + 30 * "cannot read the data, " + "\n  what to do: \x1b[31mlook"


@pytest.fixture
def told() -> Iterator[list[dict[str, Any]]]:
    """What loggers of structlog tell, as Airflow configures them in the process of a task."""
    kept: list[dict[str, Any]] = []

    def keep(_logger: Any, _method: str, event: Any) -> Any:
        kept.append(event)
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[structlog.processors.ExceptionRenderer(), keep])
    yield kept
    structlog.configure(**before)


def log_as_airflow_does(log: Any, error: Exception) -> None:
    try:
        raise error
    except Exception:
        log.exception("Task failed with exception")


def test_airflow_logs_no_frames_of_a_failure_that_is_told(told: list[dict[str, Any]]):
    log = structlog.get_logger("task").bind()
    for _ in range(2):  # a process may see several, as in `dag.test()`
        log_as_airflow_does(log, failure(TEXT, log=logging.getLogger(__name__)))
    assert told == 2 * [{"event": "Task failed with exception"}]


def test_any_other_exception_keeps_its_traceback(told: list[dict[str, Any]]):
    failure(TEXT, log=logging.getLogger(__name__))
    log_as_airflow_does(structlog.get_logger("task"), AirflowFailException("a bug"))
    (event,) = told
    assert "log_as_airflow_does" in event["exception"]


def test_the_log_says_it_in_lines_that_fit_and_callbacks_get_all_of_it(
    caplog: pytest.LogCaptureFixture,
):
    error = failure(TEXT, log=logging.getLogger(__name__))
    assert (type(error).__mro__[1], str(error)) == (AirflowFailException, TEXT)
    lines = [record.getMessage() for record in caplog.records]
    assert {record.levelname for record in caplog.records} == {"ERROR"}
    assert max(map(len, lines)) <= 100
    assert (lines[0][:22], lines[-1]) == (TEXT[:22], r"  what to do: \u001b[31mlook")
    assert " ".join(line.strip() for line in lines[:-1]) == TEXT.splitlines()[0].strip()
