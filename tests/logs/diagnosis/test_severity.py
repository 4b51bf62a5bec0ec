"""How serious a line is by itself, and where the next error of a log is."""

from __future__ import annotations

import pytest

from airflow_training.logs.diagnosis.severity import (
    error_lines,
    next_error,
    previous_error,
    severities,
    severity_of,
)
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
        ("0 errors", "info"),
        ("no error", "info"),
        ("\x1b[31mERROR\x1b[0m lost", "error"),
        ("\x1b[1;33mWARNING\x1b[0m slow", "warning"),
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


def test_the_errors_of_a_text_are_those_of_its_lines_wherever_it_is_cut():
    lines = ["ok", "Traceback (most recent call last):", '  File "a.py"', "", "Strange: x", "ok"]
    lines += ["ConnectionError: reset, will retry", "ValueError: bad", "0 errors"]
    expected = [each for each, said in enumerate(severities(lines)) if said == "error"]
    assert expected == [1, 2, 3, 4, 7]
    for cut in range(len(lines) + 1):
        before, inside = error_lines("".join(f"{each}\n" for each in lines[:cut]))
        after, _ = error_lines("".join(f"{each}\n" for each in lines[cut:]), inside=inside)
        assert before + [cut + each for each in after] == expected


@pytest.mark.parametrize("first_window", [20, 100, 1 << 18])
def test_the_previous_error_is_the_last_one_before_a_line(
    monkeypatch: pytest.MonkeyPatch, first_window: int
):
    monkeypatch.setattr("airflow_training.logs.diagnosis.severity._FIRST_WINDOW", first_window)
    text = b"ok\n" * 1000 + b"ValueError: a\nKeyError: b\n" + b"ok\n" * 1000
    log = BytesLog("log", text)
    first, second = text.index(b"ValueError"), text.index(b"KeyError")
    assert previous_error(log, stop=len(text), size=len(text))[0] == second
    assert previous_error(log, stop=second, size=len(text))[0] == first
    assert previous_error(log, stop=first, size=len(text)) == (None, 0)
    found, searched = previous_error(log, stop=len(text), size=1500)
    assert found is None
    assert second < searched < len(text)
    assert previous_error(log, stop=searched, size=len(text))[0] == second
