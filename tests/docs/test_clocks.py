"""The tables of clocks and states are those that the code counts by."""

from __future__ import annotations

from pathlib import Path

from airflow_training.control.clocks import CLOCKS, STANDINGS
from airflow_training.documents.schema import json_schema

PAGE = (Path(__file__).parents[2] / "docs" / "job.md").read_text(encoding="utf-8")


def table(head: str) -> list[list[str]]:
    """Return the cells of the table whose first row begins so, without marks of code."""
    lines = PAGE.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"| {head} |"))
    rows = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip().replace("`", "") for cell in line.strip("|").split("|")])
    return [rows[0], *rows[2:]]


def test_which_clock_runs_in_which_state():
    head, *rows = table("an instance is")
    assert head[1:] == [clock.name for clock in CLOCKS]
    assert rows == [
        [words, *("runs" if standing in clock.counts else "-" for clock in CLOCKS)]
        for standing, words in STANDINGS.items()
    ]


def test_whose_states_a_clock_counts():
    _, *rows = table("clock")
    assert [row[:3] for row in rows] == [
        [clock.name, clock.of, clock.in_outage] for clock in CLOCKS
    ]


def test_the_schema_says_what_the_deadline_counts():
    schema = json_schema()["$defs"]["TrainingJobSpec"]["properties"]["activeDeadlineSeconds"]
    assert "without queue, place, image and back-off" in schema["description"]
