"""Which tests keep what is broken from landing: `make test` runs those that cannot fail by chance.

Every test belongs to one tier, which is its mark:

- `pure`: a test of a module that `pure.txt` lists, unless `slow.txt` lists it or it is marked as `e2e`.
- `scenario`: what `scenarios.txt` lists, with real processes, pods and a real Airflow.
- `e2e`: all others, those of a new module too, until it is on the list.

`soak`, `cluster`, `frameworks` and `emulator` say of a test that it is in none of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

__all__ = [
    "FIRST_HALF",
    "HALVES",
    "MOST_SCENARIOS",
    "PURE",
    "SCENARIOS",
    "SLOW",
    "half",
    "mark_tier",
    "needs_import",
]

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
MOST_SCENARIOS = 25
HALVES = ("first", "second")
FIRST_HALF = {
    "alignment",
    "capture",
    "checkpoints",
    "execution",
    "interception",
    "logs",
    "networks",
    "planning",
    "remote_data",
    "supervise",
}
"""The rooms of the first half of the pure tests: about half of the time, and most of what imports torch."""
AIRFLOW = "airflow"
"""The fixture that starts an Airflow: tests that use it share one, so they run in one process."""


def _lines(name: str) -> frozenset[str]:
    lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    return frozenset(line for line in lines if line and not line.startswith("#"))


PURE = _lines("pure.txt")
SLOW = _lines("slow.txt")
SCENARIOS = _lines("scenarios.txt")
_MODULES = {
    "pure": PURE,
    "scenario": {each.partition("::")[0] for each in SCENARIOS},
    "pure or scenario": PURE | {each.partition("::")[0] for each in SCENARIOS},
}
_OTHER_TIERS = ("soak", "cluster", "frameworks", "emulator")


def mark_tier(item: pytest.Item) -> None:
    """Give a test the mark of its tier."""
    path = item.nodeid.partition("::")[0]
    names = {item.nodeid, item.nodeid.partition("[")[0]}
    if AIRFLOW in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.airflow)
        item.add_marker(pytest.mark.xdist_group(AIRFLOW))
    if names & SCENARIOS:
        item.add_marker(pytest.mark.scenario)
        item.add_marker(pytest.mark.timeout(300))
        return
    marks = {mark.name for mark in item.iter_markers()}
    if marks & {*_OTHER_TIERS}:
        return
    if path in PURE and not names & SLOW and "e2e" not in marks:
        item.add_marker(pytest.mark.pure)
    else:
        item.add_marker(pytest.mark.e2e)


def needs_import(path: Path, expression: str) -> bool:
    """Return whether a test module is to be imported for `-m expression`: of one tier, only its own."""
    modules = _MODULES.get(expression)
    return modules is None or path.relative_to(ROOT).as_posix() in modules


def half(path: Path) -> str:
    """Return which half of the pure tests a module is in."""
    return HALVES[path.relative_to(ROOT / "tests").parts[0] not in FIRST_HALF]
