"""Every sample exactly once per epoch, over any kills and any change of the world."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_training.checkpoints.errors import CheckpointError
from airflow_training.checkpoints.permutation import Permutation
from airflow_training.checkpoints.sampler import ResumableSampler


def ranks(length: int, *, world: int, **options) -> list[ResumableSampler]:
    return [ResumableSampler(length, rank=r, world=world, **options) for r in range(world)]


def step(samplers: list[ResumableSampler]) -> list[list[int]]:
    """Let every rank take one batch and count it; return the batches."""
    batches = [next(iter(sampler)) for sampler in samplers]
    for sampler in samplers:
        sampler.advance()
    return batches


def restored(samplers: list[ResumableSampler], *, world: int, **options) -> list[ResumableSampler]:
    """Return fresh samplers of another world with the cursor of the old ones."""
    states = [sampler.state_dict() for sampler in samplers]
    assert all(state == states[0] for state in states), "the cursor is the same on all ranks"
    new = ranks(samplers[0].length, world=world, **options)
    for sampler in new:
        sampler.load_state_dict(states[0])
    return new


def one_epoch(samplers: list[ResumableSampler]) -> list[list[list[int]]]:
    epoch, steps = samplers[0].epoch, []
    while samplers[0].epoch == epoch:
        steps.append(step(samplers))
    return steps


def flat(steps: list[list[list[int]]]) -> list[int]:
    return [sample for batches in steps for batch in batches for sample in batch]


def test_living_samplers_may_be_divided_among_other_ranks():
    """As restored ones are: what was consumed stays so."""
    samplers = ranks(100, world=2, batch_size=4)
    taken = [sample for _ in range(3) for batch in step(samplers) for sample in batch]
    for rank, sampler in enumerate(samplers):
        sampler.divide_among(rank=rank, world=3)
    third = ResumableSampler(100, rank=2, world=3, batch_size=4)
    third.load_state_dict(samplers[0].state_dict())
    assert sorted(taken + flat(one_epoch([*samplers, third]))) == list(range(100))


def test_a_place_outside_of_the_world_is_refused():
    (sampler,) = ranks(100, world=1, batch_size=4)
    with pytest.raises(ValueError, match="rank is 3, allowed: 0 to 2"):
        sampler.divide_among(rank=3, world=3)


@pytest.mark.parametrize("length", [1, 2, 3, 10, 97, 1437, 4096])
def test_an_order_has_every_index_once_and_is_the_same_each_time(length):
    order = [Permutation(length, "0:0")[i] for i in range(length)]
    assert sorted(order) == list(range(length))
    assert order == list(Permutation(length, "0:0"))


def test_the_first_numbers_of_an_order_stay_what_they_are():
    """A checkpoint of an older version must go on in the same order."""
    assert list(Permutation(12, "7:3")) == [11, 5, 3, 7, 4, 1, 6, 0, 2, 10, 8, 9]


@pytest.mark.parametrize("length", [4, 5])
def test_all_orders_of_a_few_samples_are_equally_likely(length):
    orders = list(itertools.permutations(range(length)))
    tries = 100 * len(orders)
    seen = Counter(tuple(Permutation(length, f"{seed}:0")) for seed in range(tries))
    assert chi_squared(seen, orders, tries) < limit(len(orders) - 1)


def test_a_shuffle_favours_no_place_and_no_neighbour():
    length, epochs = 60, 2000
    places: Counter[tuple[int, int]] = Counter()
    gaps: Counter[int] = Counter()
    for epoch in range(epochs):
        order = list(Permutation(length, f"11:{epoch}"))
        places.update(enumerate(order))
        gaps.update((b - a) % length for a, b in itertools.pairwise(order))
    every_place = list(itertools.product(range(length), repeat=2))
    assert chi_squared(places, every_place, epochs * length) < limit((length - 1) ** 2)
    assert chi_squared(gaps, range(1, length), epochs * (length - 1)) < limit(length - 2)


def test_two_epochs_are_as_different_as_chance():
    same = sum(
        a == b
        for epoch in range(200)
        for a, b in zip(
            Permutation(500, f"0:{epoch}"), Permutation(500, f"0:{epoch + 1}"), strict=True
        )
    )
    assert 140 < same < 260  # 200 expected, standard deviation 14


def chi_squared(seen: Counter[Any], cells: Collection[Any], total: int) -> float:
    expected = total / len(cells)
    return sum((seen[cell] - expected) ** 2 / expected for cell in cells)


def limit(freedom: int) -> float:
    """Return what chi squared exceeds by chance in about one of 30,000 cases."""
    return freedom + 4 * math.sqrt(2 * freedom)


@given(
    length=st.integers(1, 200),
    world=st.integers(1, 9),
    batch_size=st.integers(1, 9),
    shuffle=st.booleans(),
)
def test_an_epoch_has_every_sample_once_and_as_many_steps_on_every_rank(
    length, world, batch_size, shuffle
):
    samplers = ranks(length, world=world, batch_size=batch_size, shuffle=shuffle)
    steps = [list(sampler) for sampler in samplers]
    assert {len(each) for each in steps} == {len(samplers[0])}
    assert all(batch for each in steps for batch in each)
    used = Counter(sample for each in steps for batch in each for sample in batch)
    assert set(used) == set(range(length))
    if length >= world:
        assert set(used.values()) == {1}
    if batch_size > 1:
        assert max(len(batch) for each in steps for batch in each) <= batch_size


def test_dropping_the_last_leaves_only_full_batches():
    samplers = ranks(100, world=3, batch_size=8, drop_last=True)
    steps = one_epoch(samplers)
    assert {len(batch) for batches in steps for batch in batches} == {8}
    assert len(steps) == len(samplers[0]) == 4
    assert len(set(flat(steps))) == len(flat(steps)) == 96


def test_samples_are_used_exactly_once_over_a_hundred_random_kills():
    """A kill loses the steps since the last commit: they are made again from its cursor."""
    dice = random.Random(3)
    length, epochs = 1440, 12
    used: list[list[int]] = [[] for _ in range(epochs)]
    committed = ranks(length, world=4, batch_size=4)
    kills = -1
    while committed[0].epoch < epochs:
        kills += 1
        samplers = restored(committed, world=dice.choice([1, 2, 4]), batch_size=4)
        uncommitted: list[tuple[int, list[list[int]]]] = []
        for _ in range(dice.randint(1, 40)):
            uncommitted.append((samplers[0].epoch, step(samplers)))
            if dice.random() < 0.1 or samplers[0].epoch == epochs:
                for epoch, batches in uncommitted:
                    used[epoch] += flat([batches])
                uncommitted.clear()
                committed = restored(samplers, world=samplers[0].world, batch_size=4)
            if samplers[0].epoch == epochs:
                break
    assert kills >= 100
    assert all(sorted(epoch) == list(range(length)) for epoch in used)


@pytest.mark.parametrize("length", [1437, 1000, 127, 64])
def test_the_world_may_shrink_and_grow_within_an_epoch(length):
    samplers = ranks(length, world=4, batch_size=4, seed=5)
    steps = [step(samplers) for _ in range(2)]
    samplers = restored(samplers, world=2, batch_size=4, seed=5)
    steps += [step(samplers) for _ in range(3)]
    samplers = restored(samplers, world=4, batch_size=4, seed=5)
    steps += [each for each in one_epoch(samplers) if each]
    assert sorted(flat(steps)) == list(range(length))
    assert samplers[0].epoch == 1
    assert samplers[0].samples == length


def test_the_order_does_not_depend_on_who_takes_it():
    alone = flat(one_epoch(ranks(40, world=1, batch_size=4, seed=9)))
    four = one_epoch(ranks(40, world=4, batch_size=2, seed=9))
    together = [batch[place] for batches in four for place in range(2) for batch in batches]
    assert together == alone


def test_a_rank_without_a_sample_of_its_own_repeats_one_of_the_step():
    batches = step(ranks(2, world=4, batch_size=3))
    assert sorted(map(tuple, batches)) == [(0,), (0,), (1,), (1,)]


def test_a_world_that_grows_before_the_end_of_an_epoch_with_full_batches_only_turns_it():
    samplers = ranks(10, world=1, batch_size=2, drop_last=True)
    for _ in range(4):
        step(samplers)
    (first, *_) = restored(samplers, world=2, batch_size=2, drop_last=True)
    assert first.epoch == 1


def test_the_cursor_counts_what_the_loop_took_and_not_what_workers_fetched():
    def prefetching(sampler: ResumableSampler) -> Iterator[list[int]]:
        yield from list(sampler)  # a loader that fetches everything at once

    sampler = ResumableSampler(100, batch_size=10, rank=0, world=1)
    for number, _batch in enumerate(sampler.batches(prefetching(sampler))):
        assert sampler.state_dict()["consumed"] == 10 * (number + 1) % 100
        if number == 3:
            break
    assert sampler.samples == 40


@pytest.mark.e2e
def test_a_loader_with_workers_resumes_where_the_loop_was():
    torch_data = pytest.importorskip("torch.utils.data")

    def loader(sampler):
        return torch_data.DataLoader(range(50), batch_sampler=sampler, num_workers=2)

    first = ResumableSampler(50, batch_size=4, rank=0, world=1)
    used = []
    for number, batch in enumerate(first.batches(loader(first))):
        used += batch.tolist()
        if number == 4:
            break
    second = ResumableSampler(50, batch_size=4, rank=0, world=1)
    second.load_state_dict(first.state_dict())
    for batch in second.batches(loader(second)):
        used += batch.tolist()
    assert sorted(used) == list(range(50))
    assert second.epoch == 1


def test_going_on_within_an_epoch_draws_no_random_number():
    torch = pytest.importorskip("torch")

    def loop(sampler: ResumableSampler, *, until: int) -> list[float]:
        loader = torch.utils.data.DataLoader(range(20), batch_sampler=sampler)
        drawn = []
        while sampler.epoch < 2 and sampler.samples < until:
            for _batch in sampler.batches(loader):
                drawn.append(torch.rand(1).item())
                if sampler.samples == until:
                    break
        return drawn

    torch.manual_seed(0)
    straight = loop(ResumableSampler(20, batch_size=4, rank=0, world=1), until=40)
    torch.manual_seed(0)
    killed = ResumableSampler(20, batch_size=4, rank=0, world=1)
    drawn = loop(killed, until=28)
    random_state, cursor = torch.get_rng_state(), killed.state_dict()
    torch.manual_seed(1)
    torch.set_rng_state(random_state)
    resumed = ResumableSampler(20, batch_size=4, rank=0, world=1)
    resumed.load_state_dict(cursor)
    assert drawn + loop(resumed, until=40) == straight


def test_a_loop_that_counts_nothing_is_told_so_at_the_first_save():
    sampler = ResumableSampler(10, batch_size=2, rank=0, world=1)
    next(iter(sampler))
    with pytest.raises(CheckpointError, match=r"sampler\.batches\(loader\)"):
        sampler.state_dict()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        pytest.param({"length": 11}, "length 10, this one has 11", id="other data"),
        pytest.param({"seed": 1}, "seed 0, this one has 1", id="other order"),
        pytest.param({"shuffle": False}, "shuffle True, this one has False", id="no shuffle"),
    ],
)
def test_a_cursor_of_other_data_is_refused(changed, message):
    state = ResumableSampler(10, batch_size=2, rank=0, world=1).state_dict()
    options = {"length": 10, "batch_size": 2, "rank": 0, "world": 1, **changed}
    with pytest.raises(CheckpointError, match=message):
        ResumableSampler(**options).load_state_dict(state)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 0}, "length is 0, allowed: 1 and more"),
        ({"batch_size": 0}, "batch_size is 0, allowed: 1 and more"),
        ({"world": 0}, "world is 0, allowed: 1 and more"),
        ({"rank": 2}, "rank is 2, allowed: 0 to 1"),
        ({"batch_size": 6, "drop_last": True}, "10 samples, and 2 ranks with batch_size 6 take 12"),
    ],
)
def test_numbers_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ResumableSampler(**{"length": 10, "batch_size": 2, "rank": 0, "world": 2, **options})


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, (0, 1)),
        ({"TRAINING_RANK": "1", "TRAINING_WORLD_SIZE": "2"}, (1, 2)),
        (
            {"RANK": "3", "WORLD_SIZE": "4", "TRAINING_RANK": "1", "TRAINING_WORLD_SIZE": "2"},
            (3, 4),
        ),
    ],
)
def test_rank_and_world_are_those_of_the_process(monkeypatch, variables, expected):
    for name in ("RANK", "WORLD_SIZE", "TRAINING_RANK", "TRAINING_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    sampler = ResumableSampler(10, batch_size=2)
    assert (sampler.rank, sampler.world) == expected
