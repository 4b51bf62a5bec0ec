"""Files are cut evenly, and each sample is trained once in an epoch, whatever is killed and however many ranks go on."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping

import pytest

from airflow_training.networks.trainer.shares import ShareOrder, cut, fill_passes, left_over, loads


def test_ten_thousand_files_over_sixteen_instances_are_within_five_per_cent():
    sizes = [int(1000 * random.Random(n).paretovariate(1.3)) for n in range(10_000)]
    shares = cut(sizes, 16, splittable=True)
    mean = sum(sizes) / 16
    assert max(abs(each - mean) for each in loads(shares)) <= 0.05 * mean
    covered: Counter[int] = Counter()
    for share in shares:
        for part in share:
            covered[part.file] += part.stop - part.start
    assert [covered[file] for file in range(10_000)] == sizes


def test_files_stay_whole_where_that_is_even():
    assert loads(cut([10, 20, 10, 20], 2, splittable=True)) == [30, 30]
    assert all(part.start == 0 for share in cut([5] * 8, 4, splittable=True) for part in share)


def test_one_large_file_is_cut_without_gaps():
    parts = [part for share in cut([1001], 3, splittable=True) for part in share]
    assert [(each.start, each.stop) for each in parts] == [(0, 333), (333, 667), (667, 1001)]


def test_a_file_that_cannot_be_split_is_read_by_one():
    assert loads(cut([1000, 1], 3, splittable=False)) == [1000, 1, 0]


def order_of(rank: int, files: str = "f", recipe: Mapping[str, str] | None = None) -> ShareOrder:
    return ShareOrder(
        rank=rank, batch_size=4, seed=7, shuffle=True, files=files, recipe=recipe or {}
    )


def one_stage(state, counts, world, stop, taken):
    """Train as `world` ranks until `stop` steps or the end of the epoch; note what each took. Return the state."""
    orders = [order_of(rank) for rank in range(world)]
    for order in orders:
        if state is not None:
            order.load_state_dict(state)
    epoch = orders[0].epoch
    for order in orders:
        same = order.resume(world)
        sizes = counts[world]
        if order.before:
            base = len(order.before[0].counts)
            wanted = left_over(order.before, world, seed=7, epoch=order.epoch, shuffle=True)
            held = [[(base, int(share), int(n)) for share, n in each] for each in wanted]
            sizes = [len(each) for each in held]
        else:
            held = [[(world, rank, n) for n in range(size)] for rank, size in enumerate(sizes)]
        if not (same and order.done):
            order.begin(sizes)
        for done, (number, chosen) in enumerate(order.batches(), 1):
            taken += [(epoch, held[order.rank][n]) for n in chosen]
            order.advance(number)
            if done == stop or order.epoch != epoch:
                break
    states = [order.state_dict() for order in orders]
    assert all(each == states[0] for each in states)
    return states[0]


@pytest.mark.parametrize("seed", range(100))
def test_each_sample_is_trained_once_over_kills_and_other_numbers_of_ranks(seed):
    draw = random.Random(seed)
    total = draw.randint(1, 90)
    counts = {}
    for world in (1, 2, 3, 5):
        cuts = sorted(draw.randint(0, total) for _ in range(world - 1))
        counts[world] = [b - a for a, b in zip([0, *cuts], [*cuts, total], strict=True)]
    state = None
    taken: list[tuple[int, tuple[int, int, int]]] = []
    first = draw.choice([1, 2, 3, 5])
    world = first
    while state is None or state["epoch"] == 0:
        state = one_stage(state, counts, world, draw.randint(1, 6), taken)
        world = draw.choice([world, 1, 2, 3, 5])
    mine = [each for epoch, each in taken if epoch == 0]
    assert len(mine) == len(set(mine)) == total


def test_all_ranks_make_the_same_steps_and_end_together():
    order = order_of(0)
    order.begin([10, 3, 0])
    assert order.steps == 3
    assert [sum(order.sizes(step)) for step in range(3)] == [4, 4, 5]


def test_a_checkpoint_of_other_files_is_refused():
    with pytest.raises(ValueError, match="another list of files"):
        order_of(0, "other").load_state_dict(
            {"epoch": 0, "stages": [], "seed": 7, "shuffle": True, "files": "f"}
        )


def test_a_checkpoint_of_another_network_or_reading_is_refused():
    state = order_of(0, recipe={"network": "n", "trainer.data": "d"}).state_dict()
    order_of(0, recipe={"network": "n", "trainer.data": "d"}).load_state_dict(state)
    with pytest.raises(ValueError, match=r"another network and trainer\.data: begin a new run"):
        order_of(0, recipe={"network": "o", "trainer.data": "e"}).load_state_dict(state)


@pytest.mark.parametrize(
    ("count", "size", "passes"),
    [(7, 4, 8), (31, 4, 10), (32, 4, 8), (5, 2, 4), (1, 4, 2), (0, 4, 2)],
)
def test_samples_that_fill_no_pass_come_again_equally_often(count, size, passes):
    filled = fill_passes(count, size, passes)
    assert len(filled) <= passes
    counted: Counter[int] = Counter()
    for rows, weight in filled:
        assert len(rows) == size
        for row in rows:
            counted[int(row)] += weight / size
    assert counted == pytest.approx(dict.fromkeys(range(count), 1.0))


def test_without_passes_enough_the_first_samples_count_more():
    filled = fill_passes(7, 4, 2)
    assert [rows.tolist() for rows, _ in filled] == [[0, 1, 2, 3], [4, 5, 6, 4]]
    assert [weight for _, weight in filled] == [4, 3]
