"""Data that does not come any more: one save of all ranks, whichever node misses it first."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from airflow_training.checkpoints import reading
from airflow_training.checkpoints.saver import Saver
from tests.checkpoints.groups import Threads, by_ranks

WORLD = 3
STEPS = 4


@pytest.fixture
def training(tmp_path, monkeypatch):
    return _ThreeNodes(tmp_path, monkeypatch)


class _ThreeNodes:
    """A group of ranks, each on a node of its own that fetches for itself."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = folder / "kept"
        self.marks = [folder / f"socket{rank}.away" for rank in range(WORLD)]
        everyone = Threads(WORLD)
        self._savers = []
        for rank in range(WORLD):
            monkeypatch.setenv("TRAINING_DATA_SOCKET", str(folder / f"socket{rank}"))
            saver = Saver(
                root=self.root,
                every={"seconds": 3600},
                place=(rank, WORLD),
                agreement=everyone.of(rank),
            )
            self._savers.append(saver)
        by_ranks(WORLD, lambda rank: self._savers[rank].restore())
        self._step = 0

    def train(self) -> None:
        """Steps of all ranks until they have asked each other, and all that is saved then."""
        first, self._step = self._step, self._step + STEPS

        def steps(rank: int) -> None:
            saver = self._savers[rank]
            saver._next_look = first + 1  # else after half a second of steps
            for step in range(first, first + STEPS):
                saver.boundary(step + 1, self._state)
            saver._collect(wait_seconds=60)

        by_ranks(WORLD, steps)

    def saved(self) -> list[int]:
        return sorted(each.step for each in reading.history(str(self.root)))

    def close(self) -> None:
        by_ranks(WORLD, lambda rank: self._savers[rank].close(None))

    @staticmethod
    def _state() -> Mapping[str, int]:
        return {"step": 0}


@pytest.mark.parametrize("rank", [0, 2])
def test_whichever_rank_misses_its_data_first_all_save_once(rank, training):
    training.train()
    assert training.saved() == []
    training.marks[rank].touch()
    at = training.marks[rank].stat().st_mtime_ns
    training.train()
    assert training.saved() == [STEPS + 1]
    for mark in training.marks:  # the others notice the same outage, one after the other
        at += 10**9
        mark.touch()
        os.utime(mark, ns=(at, at))  # however long the steps took
        training.train()
    assert training.saved() == [STEPS + 1]
    training.close()


def test_a_later_outage_is_another_one(training):
    training.marks[2].touch()
    training.train()
    assert training.saved() == [1]
    later = time.time_ns() + 60 * 10**9
    training.marks[1].touch()
    os.utime(training.marks[1], ns=(later, later))
    training.train()
    assert training.saved() == [1, STEPS + 1]
    training.close()
