"""Whether live ranks may give their state away, from what each rank says alone."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_training.checkpoints.rejoin_decision import (
    CopyFromPeer,
    PeerState,
    RestoreFromStore,
    SaveInFlight,
    can_commit,
    choose,
    choose_parts,
    overlaps,
)


def rank(step: int | None, *, model: str = "a", order: int = 1, **more: Any) -> PeerState:
    told = {"epoch": 0, "order": order, "not_after": more.pop("not_after", None)}
    sections = {} if step is None else {"model": model, "data": "d"}
    return PeerState(step=step, sections=sections, orders=told, **more)


NEW = rank(None, order=2)


@pytest.mark.parametrize(
    ("everyone", "expected"),
    [
        pytest.param(
            [rank(7), rank(7), NEW], CopyFromPeer(step=7, source=0, newcomers=(2,)), id="one-new"
        ),
        pytest.param(
            [NEW, rank(7)], CopyFromPeer(step=7, source=1, newcomers=(0,)), id="a-single-one-holds"
        ),
        pytest.param(
            [rank(7), rank(7)], CopyFromPeer(step=7, source=0, newcomers=()), id="nobody-new"
        ),
        pytest.param(
            [rank(0), NEW], CopyFromPeer(step=0, source=0, newcomers=(1,)), id="nothing-done-yet"
        ),
        pytest.param(
            [rank(None, began=True, why="lost"), rank(7)],
            CopyFromPeer(step=7, source=1, newcomers=(0,)),
            id="a-survivor-without-a-whole-state-is-as-new",
        ),
        pytest.param([NEW, NEW], RestoreFromStore("no rank holds a whole state"), id="all-new"),
        pytest.param(
            [rank(None, why="lost"), NEW],
            RestoreFromStore("no rank holds a whole state; lost"),
            id="lost",
        ),
        pytest.param(
            [rank(7), rank(8), NEW],
            RestoreFromStore("rank 0 holds step 7, rank 1 step 8"),
            id="a-step-apart",
        ),
        pytest.param(
            [rank(7), rank(7), rank(7, model="b")],
            RestoreFromStore("ranks 0 and 2 hold different model"),
            id="no-majority-counts",
        ),
        pytest.param(
            [rank(7), rank(None, order=2, not_after=4)],
            RestoreFromStore("the job goes back to step 4"),
            id="the-job-steps-back",
        ),
        pytest.param(
            [rank(7, order=2, not_after=4), rank(None, order=2, not_after=4)],
            CopyFromPeer(step=7, source=0, newcomers=(1,)),
            id="the-survivor-has-stepped-back-already",
        ),
    ],
)
def test_where_a_group_goes_on_from(everyone, expected):
    assert choose(everyone) == expected


def test_what_a_rank_says_arrives_as_it_was_said():
    holding = rank(7, header=(100, "sha256:0"), began=True)
    assert PeerState.from_json(holding.to_json()) == holding


@pytest.mark.parametrize(
    ("everyone", "expected"),
    [
        pytest.param(
            [rank(7), rank(8), rank(8), NEW],
            CopyFromPeer(step=8, source=1, newcomers=(0, 3)),
            id="who-is-a-step-behind-takes-the-newer-state",
        ),
        pytest.param(
            [rank(7), rank(7), NEW], CopyFromPeer(step=7, source=0, newcomers=(2,)), id="all-alike"
        ),
        pytest.param(
            [rank(6), rank(8)],
            RestoreFromStore("rank 0 holds step 6, rank 1 step 8"),
            id="two-steps-apart-is-no-lost-word",
        ),
        pytest.param(
            [rank(8), rank(8, model="b"), rank(7)],
            RestoreFromStore("ranks 0 and 1 hold different model"),
            id="the-newer-ones-differ",
        ),
        pytest.param([NEW], RestoreFromStore("no rank holds a whole state"), id="nobody"),
    ],
)
def test_where_a_step_is_done_or_not_the_newer_state_counts(everyone, expected):
    found = choose_parts(everyone)
    assert found == (expected if isinstance(expected, RestoreFromStore) else {"": expected})


def part(name: str, step: int | None = 7, **more: Any) -> PeerState:
    """One of two parts of a state that is split."""
    return rank(step, part=name, parts=2, **more)


@pytest.mark.parametrize(
    ("everyone", "expected"),
    [
        pytest.param(
            [part("a"), part("b"), NEW, part("b")],
            {"a": (0, (1, 2, 3)), "b": (1, (0, 2))},
            id="one-of-two-replicas-is-lost",
        ),
        pytest.param(
            [part("a"), part("b"), part("a", 6), part("b")],
            {"a": (0, (1, 2, 3)), "b": (1, (0, 2))},
            id="one-is-a-step-behind",
        ),
        pytest.param(
            [part("a"), NEW], "live ranks hold 1 of the 2 parts of the state", id="a-part-is-lost"
        ),
        pytest.param(
            [part("a"), part("b", 6), part("a")],
            "live ranks hold 1 of the 2 parts of the state",
            id="of-a-part-there-is-the-step-before-only",
        ),
        pytest.param(
            [part("a"), part("b", 5)],
            "parts of the state are after step 7, and 5",
            id="parts-of-unlike-steps",
        ),
        pytest.param(
            [part("a"), rank(7, part="of-three", parts=3), part("b")],
            "live ranks hold parts of unlike splits, of 2 and 3 parts",
            id="a-plan-was-gone-over-to-by-some",
        ),
        pytest.param(
            [part("a"), part("b"), part("otherwise-split")],
            "live ranks hold 3 of the 2 parts of the state",
            id="a-plan-of-as-many-parts-was-gone-over-to-by-some",
        ),
        pytest.param(
            [part("a"), part("b"), part("b", model="x")],
            "ranks 1 and 2 hold different model",
            id="replicas-differ",
        ),
    ],
)
def test_a_split_state_is_gone_on_from_where_each_part_is_held(everyone, expected):
    found = choose_parts(everyone)
    if isinstance(expected, str):
        assert found == RestoreFromStore(expected)
        return
    assert found == {
        name: CopyFromPeer(step=7, source=source, newcomers=newcomers)
        for name, (source, newcomers) in expected.items()
    }


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        ({"w": ((0, 2), (4, 2))}, True),
        ({"w": ((2, 0), (2, 4))}, False),
        ({"w": ((0, 0), (0, 4))}, False),
        ({"other": ((0, 0), (2, 4))}, False),
        ({"w": ((2, 0), (2, 4)), "scalar": ((), ())}, True),
    ],
)
def test_parts_overlap_where_a_number_is_in_both(second, expected):
    first = {"w": ((0, 0), (2, 4)), "scalar": ((), ())}
    assert overlaps(first, second) is expected
    assert overlaps(second, first) is expected


def saves(rank: int, *, missing: list[int] | None = None, save: str = "50") -> SaveInFlight:
    return SaveInFlight(save=save, rank=rank, missing=missing)


@pytest.mark.parametrize(
    ("in_flight", "expected"),
    [
        pytest.param([saves(0, missing=[])], True, id="all-is-written"),
        pytest.param([saves(0, missing=[0, 1]), saves(1)], True, id="all-who-write-are-left"),
        pytest.param([saves(0, missing=[2]), saves(1)], False, id="who-was-to-write-is-lost"),
        pytest.param([saves(1), saves(2)], False, id="who-commits-is-lost"),
        pytest.param(
            [saves(0, missing=[1]), saves(1, save="40")], False, id="who-was-to-write-is-at-another"
        ),
        pytest.param([saves(0, missing=[], save="40"), saves(1)], False, id="another-is-committed"),
        pytest.param([], False, id="none"),
    ],
)
def test_a_save_is_waited_for_where_ranks_that_are_left_can_commit_it(in_flight, expected):
    assert can_commit("50", in_flight) is expected


def test_a_save_arrives_as_it_was_told():
    assert SaveInFlight(**saves(0, missing=[2]).to_json()) == saves(0, missing=[2])
