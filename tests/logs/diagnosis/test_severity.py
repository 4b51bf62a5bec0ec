"""How serious a line is by itself, and where the next error of a log is."""

from __future__ import annotations

import pytest

from airflow_training.logs.diagnosis.severity import next_error, severities, severity_of
from airflow_training.logs.reading.memory import BytesLog


@pytest.mark.parametrize(
    ("line", "severity"),
    [
        ("step 10 loss 0.5 error 0.03", "info"),
        ("INFO - terror is no error word", "info"),
        ("UserWarning: lr is high", "warning"),
        ("2026-01-01 00:00:00,000 WARNING slow", "warning"),
        ("ValueError: bad", "error"),
        ("torch.OutOfMemoryError: CUDA out of memory", "error"),
        ("2026-01-01 00:00:00,000 ERROR lost", "error"),
        ("Traceback (most recent call last):", "error"),
        ("Killed", "error"),
        ("Segmentation fault (core dumped)", "error"),
        ("ConnectionError: reset, will retry", "warning"),
    ],
)
def test_a_line_says_how_serious_it_is(line: str, severity: str):
    assert severity_of(line) == severity


def test_all_of_a_traceback_is_an_error():
    lines = ["ok", "Traceback (most recent call last):", '  File "a.py"', "Strange: x", "ok"]
    assert [*severities(lines)] == ["info", "error", "error", "error", "info"]


def test_the_next_error_begins_in_the_stretch_that_is_looked_at():
    text = b"ok\n" * 1000 + b"ValueError: a\n" + b"ok\n" * 1000 + b"KeyError: b\nok\n"
    log = BytesLog("log", text)
    first = text.index(b"ValueError")
    assert next_error(log, start=0, stop=len(text)) == first
    assert next_error(log, start=0, stop=first) is None
    after = text.index(b"\n", first) + 1
    assert next_error(log, start=after, stop=len(text)) == text.index(b"KeyError")
    assert next_error(log, start=len(text), stop=len(text) + 100) is None
