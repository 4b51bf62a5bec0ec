"""Ranks that share nothing but a store tell each other values."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_training.checkpoints.agreement import SingleProcessAgreement, StoreAgreement
from airflow_training.checkpoints.errors import CheckpointError
from airflow_training.checkpoints.store import open_store
from tests.checkpoints.groups import by_ranks


def ranks(root: str, world: int, **options: Any) -> list[StoreAgreement]:
    return [StoreAgreement(root, rank=rank, world=world, **options) for rank in range(world)]


def talk(all_ranks: list[StoreAgreement]) -> list[tuple[object, ...]]:
    def one(rank: int) -> tuple[object, ...]:
        mine = all_ranks[rank]
        first = mine.gather({"rank": rank})
        told = mine.broadcast(f"from {rank}")
        return first, told, mine.gather(rank * 10)

    return by_ranks(len(all_ranks), one)


def test_one_process_agrees_with_itself():
    assert SingleProcessAgreement().broadcast(1) == 1
    assert SingleProcessAgreement().gather(1) == [1]


@pytest.mark.parametrize("world", [1, 2, 4])
def test_every_rank_gets_every_value(tmp_path, world):
    everyone = [{"rank": rank} for rank in range(world)]
    expected = (everyone, "from 0", [rank * 10 for rank in range(world)])
    assert talk(ranks(str(tmp_path), world)) == [expected] * world


def test_processes_started_again_do_not_read_what_was_left(tmp_path):
    for value in ("old", "new"):
        everyone = ranks(str(tmp_path), 3, incarnation="0.0.0")
        assert by_ranks(3, lambda rank: everyone[rank].broadcast(value)) == [value] * 3  # noqa: B023  # called before the next turn


def test_little_is_left_behind(tmp_path):
    everyone = ranks(str(tmp_path), 3)
    by_ranks(3, lambda rank: [everyone[rank].gather(turn) for turn in range(10)])
    assert len(open_store(str(tmp_path)).list("agreements/")) == 3  # the last values


@pytest.mark.parametrize("missing", [0, 1])
def test_a_rank_that_does_not_come_is_an_error_after_the_deadline(tmp_path, missing):
    there = ranks(str(tmp_path), 2, seconds=0.2)[1 - missing]
    with pytest.raises(CheckpointError, match=r"waited 0\.2 s for"):
        there.gather(1)


def test_a_rank_that_goes_away_is_an_error_after_the_deadline(tmp_path):
    both = ranks(str(tmp_path), 2, seconds=5)
    by_ranks(2, lambda rank: both[rank].gather(rank))
    both[0]._seconds = 0.2
    with pytest.raises(CheckpointError, match="all ranks of 2 ranks"):
        both[0].gather(1)
