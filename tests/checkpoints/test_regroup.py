"""What becomes of a save that runs when ranks of its group are lost: it is waited for only where it can end."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from typing import Any

import pytest

from airflow_training.checkpoints import reading, saver
from airflow_training.checkpoints.saver import Saver
from tests.checkpoints.groups import Threads, by_ranks
from tests.waiting import PATIENCE, wait_until

WORLD = 3


@pytest.fixture(autouse=True)
def _long_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits in vain waits too long."""
    monkeypatch.setattr(saver, "COMMIT_GRACE_SECONDS", 10 * PATIENCE)


def open_savers(root: Path) -> list[Saver]:
    """Return those of all ranks, which have saved step 1 and need not look at each other for the next one."""
    everyone = Threads(WORLD)
    savers = [
        Saver(root=root, every={"steps": 1}, place=(rank, WORLD), agreement=everyone.of(rank))
        for rank in range(WORLD)
    ]
    by_ranks(WORLD, lambda rank: savers[rank].restore())
    by_ranks(WORLD, lambda rank: savers[rank].boundary(1, dict))
    by_ranks(WORLD, lambda rank: savers[rank]._collect(wait_seconds=PATIENCE))
    return savers


def replace_rank(savers: list[Saver], lost: int, everyone: Threads) -> None:
    """Form the group again, with a new process for a rank."""
    new = Saver(root=None, place=(lost, WORLD), agreement=everyone.of(lost))
    next_ones = [new if rank == lost else each for rank, each in enumerate(savers)]
    by_ranks(
        WORLD,
        lambda rank: next_ones[rank].regroup(place=(rank, WORLD), agreement=everyone.of(rank)),
    )


def committed(root: Path) -> list[int]:
    return [each.step for each in reading.history(str(root)) if each.state == "committed"]


@pytest.mark.parametrize(
    "lost", [pytest.param(0, id="who-commits-is-lost"), pytest.param(2, id="a-part-is-lost")]
)
def test_a_save_that_lacks_a_lost_rank_is_not_waited_for(tmp_path, lost):
    savers = open_savers(tmp_path)
    for rank in set(range(WORLD)) - {lost}:
        savers[rank].boundary(2, dict)
    replace_rank(savers, lost, Threads(WORLD))
    assert committed(tmp_path) == [1]


def test_a_save_that_lacks_only_ranks_that_are_left_is_committed(tmp_path, monkeypatch):
    """The lost rank has written its part, another one writes until after the ranks have met again."""
    savers = open_savers(tmp_path)
    met = Event()
    late = savers[1]._group
    assert late is not None
    write = late.write

    def write_late(*args: Any, **more: Any) -> None:
        met.wait(PATIENCE)
        write(*args, **more)

    monkeypatch.setattr(late, "write", write_late)
    for each in savers:
        each.boundary(2, dict)
    first = savers[0]._group
    assert first is not None
    wait_until(lambda: first.describe_save(2).missing == [1])

    class Meeting(Threads):
        def exchange(self, rank: int, value: Any) -> list[Any]:
            found = super().exchange(rank, value)
            met.set()
            return found

    replace_rank(savers, 2, Meeting(WORLD))
    assert committed(tmp_path) == [2, 1]
