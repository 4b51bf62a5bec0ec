"""What is fetched before somebody asks."""

from __future__ import annotations

import random

from airflow_training.remote_data.order import ReadOrder

NAMES = [f"/data/{number:03}" for number in range(100)] + ["/other/0", "/other/1"]


def test_one_read_says_nothing_about_the_next():
    assert ReadOrder(NAMES).after("/data/010") == ()


def test_neighbours_in_a_row_are_followed_further_and_further():
    order = ReadOrder(NAMES)
    assert [order.after(NAMES[each]) for each in (9, 10, 11)] == [(), (), ()]
    assert order.after("/data/012") == NAMES[13:17]
    assert order.after("/data/013") == NAMES[14:22]
    assert len([order.after(NAMES[number]) for number in range(14, 20)][-1]) == 32


def test_the_first_two_of_a_folder_are_enough():
    order = ReadOrder(["/data/a/0", "/data/b/0", "/data/b/1", "/data/b/2", "/data/c/0"])
    assert [order.after(f"/data/{each}") for each in ("b/0", "b/1")] == [(), ["/data/b/2"]]
    order = ReadOrder(NAMES)
    assert [order.after(NAMES[each]) for each in (0, 1)] == [(), NAMES[2:6]]
    assert [order.after(NAMES[each]) for each in (50, 51)] == [(), ()], "not in its middle"


def test_workers_that_take_turns_are_in_order_too():
    order = ReadOrder(NAMES)
    assert [order.after(NAMES[number]) for number in (10, 12, 11, 13, 15)][-1]


def test_a_file_that_is_read_again_says_nothing_new():
    order = ReadOrder(NAMES)
    assert [order.after("/data/010") for _ in range(5)] == [()] * 5


def test_readers_that_jump_get_nothing_that_they_do_not_ask_for():
    dice = random.Random(16)
    for _ in range(50):
        order = ReadOrder(NAMES)
        asked = dice.sample(NAMES[:100], 20)
        extra = {each for name in asked for each in order.after(name)} - set(asked)
        assert len(extra) <= 4


def test_it_stays_in_the_folder():
    order = ReadOrder(NAMES)
    order.after("/data/095")
    order.after("/data/096")
    order.after("/data/097")
    assert order.after("/data/098") == ["/data/099"]


def test_what_is_not_ours_is_no_read():
    assert ReadOrder(NAMES).after("/somewhere") == ()
