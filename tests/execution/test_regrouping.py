"""Ranks of the engine that outlive another one: their processes stay, and what they learn is what they would have learned."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.execution.regrouping import BATCH, Ranks, never_interrupted
from tests.ports import free_port
from tests.waiting import PATIENCE

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

STEPS = 16
FOUR = {"dp": 4, "zero": 0}


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Ranks]:
    made = Ranks(folder=tmp_path, port=free_port(), steps=STEPS)
    try:
        yield made
    finally:
        made.stop()


def start_four(ranks: Ranks, strategy: dict[str, int]) -> list[str]:
    names = [f"i{number}" for number in range(4)]
    for rank, name in enumerate(names):
        ranks.plan(name, strategy)
        ranks.start(name, rank=rank, world=4)
    return names


def assert_as_never_interrupted(ranks: Ranks, names: list[str], *, steps: int = STEPS) -> None:
    losses, weights = never_interrupted(steps)
    told = ranks.losses()
    assert set(told) == set(range(1, steps + 1))
    for step, found in told.items():
        assert all(each == pytest.approx(losses[step - 1], rel=1e-10) for each in found), step
    for state in ranks.weights(names):
        for name, tensor in weights.items():
            assert float((state[name] - tensor).norm() / tensor.norm()) <= 1e-10, name


@pytest.mark.parametrize("victim", ["i2", pytest.param("i0", marks=pytest.mark.soak)])
def test_replicas_go_on_where_one_was_killed_and_no_step_is_lost(ranks, victim):
    names = start_four(ranks, FOUR)
    ranks.wait_for("i1", lambda: ranks.step("i1") >= 5)
    survivors = {name: ranks.processes[name].pid for name in names if name != victim}
    ranks.kill(victim)
    ranks.start(victim, rank=names.index(victim), world=4)
    ranks.end()
    assert {name: ranks.processes[name].pid for name in survivors} == survivors
    (told,) = ranks.regrouped()
    assert told["lost_steps"] == 0
    assert told["step"] >= 5
    assert told["source"].startswith("rank ")
    assert_as_never_interrupted(ranks, names)


@pytest.mark.parametrize(
    ("split", "sources"),
    [
        pytest.param({"dp": 2, "tp": 2, "zero": 0}, "ranks 0, 1", id="tp"),
        pytest.param({"dp": 2, "pp": 2, "zero": 0}, "ranks 0, 3", id="pp"),
    ],
)
def test_each_part_of_a_split_state_comes_from_the_replica_that_is_left(ranks, split, sources):
    names = start_four(ranks, split)
    ranks.wait_for("i1", lambda: ranks.step("i1") >= 5)
    survivors = {name: ranks.processes[name].pid for name in names if name != "i2"}
    ranks.kill("i2")
    ranks.start("i2", rank=2, world=4)
    ranks.end()
    assert {name: ranks.processes[name].pid for name in survivors} == survivors
    (told,) = ranks.regrouped()
    assert (told["lost_steps"], told["source"]) == (0, sources)
    assert told["step"] >= 5
    assert told["moved_bytes"] > 0
    assert_as_never_interrupted(ranks, names)


def test_a_split_state_is_put_together_for_another_split(ranks):
    """A rank of two tensor parallel replicas is lost: three plain ones go on, and each needs all parts."""
    start_four(ranks, {"dp": 2, "tp": 2, "zero": 0})
    ranks.wait_for("i0", lambda: ranks.step("i0") >= 4)
    ranks.kill("i1")
    for rank, name in enumerate(["i0", "i2", "i3"]):
        place = {"number": 1, "rank": rank, "world": 3, "port": ranks.port}
        ranks.plan(name, {"dp": 3, "zero": 0}, revision=place)
    for name in ("i0", "i2", "i3"):
        ranks.wait_for(name, lambda name=name: ranks.step(name) >= STEPS)
    ranks.end()
    (told,) = ranks.regrouped()
    assert (told["ranks"], told["lost_steps"], told["source"]) == (3, 0, "ranks 0, 2")
    assert_as_never_interrupted(ranks, ["i0", "i2", "i3"])


def test_more_ranks_split_a_state_that_none_of_them_has_lost(ranks):
    """Nobody holds a part twice, but nobody is lost."""
    for rank, name in enumerate(["i0", "i1", "i2"]):
        ranks.plan(name, {"dp": 3, "zero": 3})
        ranks.start(name, rank=rank, world=3)
    ranks.wait_for("i0", lambda: ranks.step("i0") >= 4)
    names = ["i0", "i1", "i2", "i3"]
    for rank, name in enumerate(names):
        place = {"number": 1, "rank": rank, "world": 4, "port": ranks.port}
        ranks.plan(name, {"dp": 4, "zero": 3}, revision=place)
    ranks.start("i3", rank=3, world=4)
    ranks.end()
    (told,) = ranks.regrouped()
    assert (told["ranks"], told["lost_steps"], told["source"]) == (4, 0, "ranks 0, 1, 2")
    assert_as_never_interrupted(ranks, names)


def test_four_ranks_become_three_and_four_again_by_revisions_of_their_plan(ranks):
    start_four(ranks, FOUR)
    ranks.wait_for("i0", lambda: ranks.step("i0") >= 4)
    ranks.kill("i1")
    three = {"dp": 3, "zero": 0}
    for rank, name in enumerate(["i0", "i2", "i3"]):
        place = {"number": 1, "rank": rank, "world": 3, "port": ranks.port}
        ranks.plan(name, three, revision=place)
    ranks.wait_for("i0", lambda: ranks.step("i0") >= 9)
    for rank, name in enumerate(["i0", "i2", "i3", "i1"]):
        place = {"number": 2, "rank": rank, "world": 4, "port": ranks.port}
        ranks.plan(name, FOUR, revision=place)
    ranks.start("i1", rank=3, world=4)
    ranks.end()
    shrunk, grown = ranks.regrouped()
    assert (shrunk["ranks"], shrunk["lost_steps"], shrunk["revision"]) == (3, 0, 1)
    assert (grown["ranks"], grown["lost_steps"], grown["revision"]) == (4, 0, 2)
    assert_as_never_interrupted(ranks, ["i0", "i1", "i2", "i3"])


@pytest.mark.parametrize("zero", [1, pytest.param(3, marks=pytest.mark.soak)])
def test_where_a_part_is_lost_all_go_on_from_the_newest_checkpoint(ranks, tmp_path, zero):
    ranks.checkpoint = {"root": str(tmp_path / "root"), "every": {"steps": 3}}
    names = start_four(ranks, {"dp": 4, "zero": zero})
    ranks.wait_for("i1", lambda: ranks.step("i1") >= 8)
    survivors = {name: ranks.processes[name].pid for name in names if name != "i2"}
    ranks.kill("i2")
    ranks.start("i2", rank=2, world=4)
    ranks.end()
    assert {name: ranks.processes[name].pid for name in survivors} == survivors
    (told,) = ranks.regrouped()
    assert told["source"] == "checkpoint"
    assert told["step"] % 3 == 0
    assert told["lost_steps"] <= 3
    assert_as_never_interrupted(ranks, names)


def test_what_is_no_loss_of_a_peer_is_not_tried_again(ranks):
    ranks.plan("i0", {"dp": 1, "micro_batch": BATCH - 1})
    ranks.start("i0", rank=0, world=1)
    ranks.processes["i0"].join(PATIENCE)
    assert ranks.processes["i0"].exitcode == 2
    assert "no multiple" in ranks.log("i0")
