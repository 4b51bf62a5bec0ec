"""Bitmaps over processes: one place for every rank, moved along one table by whoever knows newer."""

from __future__ import annotations

import random

import pytest

from airflow_training.control.reports import ProcessReport
from airflow_training.control.subtasks import (
    MOST_RANKS,
    NEXT,
    OF_INSTANCE,
    STATES,
    STEPS_KEPT,
    Subtasks,
    apply_instance_states,
    apply_reports,
    new_subtasks,
    rank_states,
)
from tests.builders import restorable

WORLD = 3


def line(state, sequence=1, *, rank=0, generation=1, **more):
    return ProcessReport(rank=rank, generation=generation, sequence=sequence, state=state, **more)


def at(state, *, sequence=5):
    """Return three processes of which rank 0 stands in `state`."""
    others = 0b110
    bitmaps = dict.fromkeys(STATES, 0)
    bitmaps["PENDING"] = others
    bitmaps[state] |= 1
    return Subtasks(
        world=WORLD, generation=1, bitmaps=bitmaps, sequences=(sequence, 0, 0), full=(), partial={}
    )


def assert_sound(subtasks):
    """Every rank in exactly one bitmap."""
    seen = 0
    for bitmap in subtasks.bitmaps.values():
        assert not seen & bitmap, "two states at once"
        seen |= bitmap
    assert seen == (1 << subtasks.world) - 1, "a rank without a state"


# the table ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("after", STATES)
@pytest.mark.parametrize("before", STATES)
def test_a_state_follows_only_where_the_table_says_so(before, after):
    found = apply_reports(at(before), [line(after, 6)])
    expected = after if after in NEXT[before] else before
    assert rank_states(found)[0] == expected
    assert found.sequences[0] == (6 if after in NEXT[before] else 5)
    assert_sound(found)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param("PENDING", "SAVING", "SAVING", id="lines-were-missed"),
        pytest.param("SAVING", "SAVING", "SAVING", id="a-whole-save-was-missed"),
        pytest.param("RUNNING", "STARTING", "RUNNING", id="no-way-back"),
        pytest.param("FAILED", "RUNNING", "FAILED", id="failed-stays-failed"),
        pytest.param("DONE", "RUNNING", "DONE", id="done-is-done"),
    ],
)
def test_a_gap_in_the_numbers_may_hide_several_steps_of_the_table(before, after, expected):
    assert rank_states(apply_reports(at(before), [line(after, 9)]))[0] == expected


# who may say something -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    "late",
    [
        pytest.param(line("SAVING", 5), id="repeated"),
        pytest.param(line("SAVING", 4), id="older"),
        pytest.param(line("SAVING", 6, generation=0), id="older-generation"),
        pytest.param(line("STARTING", 1, rank=WORLD), id="no-such-rank"),
        pytest.param(line("STARTING", 1, rank=-1), id="negative-rank"),
        pytest.param(line("STARTING", 1, rank=9, generation=2), id="new-generation-of-no-rank"),
        pytest.param(
            line("STARTING", generation=2, world=MOST_RANKS + 1), id="more-ranks-than-any-job"
        ),
        pytest.param(line("STARTING", generation=10**8), id="a-generation-no-key-holds"),
        pytest.param(line("SAVING", 0, rank=1), id="number-before-the-first"),
    ],
)
def test_what_is_old_or_broken_changes_nothing(late):
    before = at("RUNNING")
    assert apply_reports(before, [late]) == before


def test_a_dropped_line_verifies_nothing():
    before = apply_reports(new_subtasks(1, generation=1), [line("STARTING"), line("RUNNING", 2)])
    assert restorable(apply_reports(before, [line("RUNNING", 2, verified=(7,))])) is None


def test_a_new_generation_begins_with_everybody_pending_and_nothing_verified():
    before = apply_reports(
        new_subtasks(2, generation=1), [line("RUNNING", 3, rank=r, verified=(7,)) for r in (0, 1)]
    )
    assert restorable(before) == 7
    after = apply_reports(before, [line("STARTING", generation=4, rank=2, world=3)])
    assert (after.generation, after.world, after.sequences) == (4, 3, (0, 0, 1))
    assert rank_states(after) == ["PENDING", "PENDING", "STARTING"]
    assert restorable(after) is None
    assert apply_reports(after, [line("SAVED", 99, generation=1)]) == after


# observation ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("instance", OF_INSTANCE)
@pytest.mark.parametrize("before", STATES)
def test_a_look_at_an_instance_only_moves_its_processes_forward(before, instance):
    found = rank_states(apply_instance_states(at(before), {instance: [0]}))[0]
    if instance == "failed":
        assert found == "FAILED"
    elif instance == "succeeded":
        assert found == ("FAILED" if before == "FAILED" else "DONE")
    elif instance == "running":
        assert found == ("STARTING" if before == "PENDING" else before)
    else:
        assert found == before


def test_instances_that_tell_nothing_are_followed_through_every_attempt():
    seen = apply_instance_states(new_subtasks(2), {"failed": [0], "running": [1]})
    assert rank_states(seen) == ["FAILED", "STARTING"]
    assert rank_states(apply_instance_states(seen, {"pending": [0], "running": [1]})) == [
        "PENDING",
        "STARTING",
    ]


# verified steps ---------------------------------------------------------------------------------------
def test_a_step_is_restorable_when_the_last_rank_has_verified_it():
    seen = new_subtasks(3, generation=1)
    for rank in (2, 0):
        seen = apply_reports(seen, [line("SAVED", 4, rank=rank, verified=(10, 20))])
        assert restorable(seen) is None
    seen = apply_reports(seen, [line("SAVED", 4, rank=1, verified=(10,))])
    assert restorable(seen) == 10
    assert seen.partial == {20: 0b101}
    seen = apply_reports(seen, [line("SAVED", 8, rank=1, verified=(20,))])
    assert (restorable(seen), seen.full, seen.partial) == (20, (10, 20), {})


def test_only_the_newest_steps_are_kept():
    saves = [line("SAVED", 3 * step, verified=(step,)) for step in range(1, 40)]
    alone = apply_reports(new_subtasks(1, generation=1), saves)
    assert alone.full == (36, 37, 38, 39)
    ahead = apply_reports(new_subtasks(2, generation=1), saves)
    assert (len(ahead.partial), max(ahead.partial)) == (STEPS_KEPT, 39)


# any order --------------------------------------------------------------------------------------------
class Plain:
    """The same rules, said with a dictionary per rank and no bitmap."""

    def __init__(self, world):
        self.generation, self.world = 1, world
        self._begin(1, world)

    def _begin(self, generation, world):
        self.generation, self.world = generation, world
        self.state, self.sequence = ["PENDING"] * world, [0] * world
        self.verified = {}

    def _can(self, before, after, ahead):
        reach = {before}
        for _ in range(1 if ahead == 1 else len(STATES)):
            reach = {each for state in reach for each in NEXT[state]} | (
                reach if ahead > 1 else set()
            )
        if ahead > 1 and after == before:
            return any(before in self._closure(each) for each in NEXT[before])
        return after in reach

    def _closure(self, state):
        found = {state}
        for _ in STATES:
            found |= {each for known in found for each in NEXT[known]}
        return found

    def take(self, each):
        world = each.world or self.world
        if each.generation > self.generation and each.rank < world:
            self._begin(each.generation, world)
        if each.generation != self.generation or each.rank >= self.world:
            return
        ahead = each.sequence - self.sequence[each.rank]
        if ahead < 1 or not self._can(self.state[each.rank], each.state, ahead):
            return
        self.state[each.rank], self.sequence[each.rank] = each.state, each.sequence
        for step in each.verified:
            self.verified.setdefault(step, set()).add(each.rank)

    def restorable(self):
        return max((s for s, who in self.verified.items() if len(who) == self.world), default=None)


def events(chance, count, *, world):
    """Return lines as broken as a network, a clock and a restart can make them."""
    for _ in range(count):
        generation = chance.choice([1, 1, 1, 1, 2, 2, 2, 3])
        yield ProcessReport(
            rank=chance.randrange(world + 1),
            generation=generation,
            sequence=chance.randrange(1, 200),
            state=chance.choice(STATES),
            verified=tuple(chance.sample(range(3), chance.randrange(3))),
            world=chance.choice([None, None, world]),
        )


@pytest.mark.parametrize("seed", range(4))
def test_random_reordered_and_repeated_lines_keep_every_rank_in_one_place(seed):
    chance = random.Random(seed)
    world = chance.choice([1, 7, 8, 65])
    found, plain = new_subtasks(world, generation=1), Plain(world)
    some = list(events(chance, 2500, world=world))
    some += chance.sample(some, 2500)
    for start in range(0, len(some), 50):
        batch = some[start : start + 50]
        before, found = found, apply_reports(found, batch)
        for each in batch:
            plain.take(each)
        assert_sound(found)
        assert rank_states(found) == plain.state
        assert found.sequences == tuple(plain.sequence)
        assert restorable(found) == plain.restorable()
        assert found.generation >= before.generation
    assert apply_reports(found, some) == found
