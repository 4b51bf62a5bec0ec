"""The tables of the page on recovery are those that the code decides by."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from airflow_training.control.environment import (
    FULL_BYTES,
    STRAINED_PRESSURE,
    STRAINED_SHARE,
    Condition,
)
from airflow_training.control.reason_facts import LEVELS
from airflow_training.control.recovery_level import LEVELS_OF
from airflow_training.control.subtasks import NEXT, OF_INSTANCE
from airflow_training.runtimes.registry import every_reason

PAGE = (Path(__file__).parents[2] / "docs" / "recovery.md").read_text(encoding="utf-8")


def table(head: str) -> list[list[str]]:
    """Return the cells of the table whose first row begins so, without marks of code."""
    lines = iter(PAGE.splitlines())
    for line in lines:
        if line.startswith(f"| {head} |"):
            break
    rows = [line]
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append(line)
    cells = [[cell.strip().replace("`", "") for cell in row.strip("|").split("|")] for row in rows]
    assert re.fullmatch("[-| ]+", rows[1])
    return [cells[0], *cells[2:]]


def test_the_states_of_subtasks_and_what_may_follow():
    shown = {state: follow for state, _, follow in table("state")[1:]}
    assert shown == {state: ", ".join(follow) or "nothing" for state, follow in NEXT.items()}


def test_states_of_instances_as_states_of_subtasks():
    shown = dict(table("instance")[1:])
    assert shown == {state: of or "as they last told" for state, of in OF_INSTANCE.items()}


def test_conditions_of_the_environment():
    shown = dict(table("environment")[1:])
    assert tuple(shown) == get_args(Condition)
    assert f"{STRAINED_SHARE * 100:.0f} % of its limit" in shown["strained"]
    assert f"{STRAINED_PRESSURE:.0f} % of 10 s" in shown["strained"]
    assert f"{FULL_BYTES >> 20} MiB" in shown["diskFull"]


def test_levels_of_recovery():
    head, *rows = table("failure class")
    assert head[1:] == [*get_args(Condition)]
    shown = {row[0]: dict(zip(head[1:], row[1:], strict=True)) for row in rows}
    assert shown == {name: dict(levels) for name, levels in LEVELS_OF.items()}


def test_reasons_that_need_a_level_at_least():
    shown = {level: reasons.split(", ") for level, reasons in table("at least")[1:]}
    known = {name: facts.level for name, facts in every_reason().items()}
    assert shown == {
        level: sorted(reason for reason, least in known.items() if least == level)
        for level in LEVELS
        if level in known.values()
    }
