"""What is fetched before somebody asks."""

from __future__ import annotations

from airflow_training.remote_data.order import ReadOrder

NAMES = [f"/data/{number:03}" for number in range(100)] + ["/other/0", "/other/1"]


def test_one_read_says_nothing_about_the_next():
    assert ReadOrder(NAMES).after("/data/010") == ()


def test_neighbours_in_a_row_are_followed_further_and_further():
    order = ReadOrder(NAMES)
    order.after("/data/010")
    assert order.after("/data/011") == NAMES[12:16]
    assert order.after("/data/012") == NAMES[13:21]
    for number in range(13, 20):
        last = order.after(NAMES[number])
    assert len(last) == 32


def test_workers_that_take_turns_are_in_order_too():
    order = ReadOrder(NAMES)
    order.after("/data/010")
    order.after("/data/012")
    assert order.after("/data/011")
    assert order.after("/data/014")


def test_readers_that_jump_get_nothing_that_they_do_not_ask_for():
    order = ReadOrder(NAMES)
    assert [order.after(NAMES[each]) for each in (50, 3, 80, 20, 99)] == [()] * 5


def test_it_stays_in_the_folder():
    order = ReadOrder(NAMES)
    order.after("/data/097")
    assert order.after("/data/098") == ["/data/099"]


def test_what_is_not_ours_is_no_read():
    assert ReadOrder(NAMES).after("/somewhere") == ()
