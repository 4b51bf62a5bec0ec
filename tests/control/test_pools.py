"""How many slots of a pool a group needs, as tables."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from airflow_training.control.pools import WaitingTask, needed_slots, refuse_small_pools
from airflow_training.errors import InputError


def reconcile(pool: str = "p", slots: int = 1) -> WaitingTask:
    return WaitingTask(task_id="reconcile", pool=pool, slots=slots)


def run(role: str, pool: str = "p", slots: int = 1) -> WaitingTask:
    return WaitingTask(task_id=f"{role}.run", pool=pool, slots=slots, role=role)


def sensor(role: str, upstream: str, pool: str = "p") -> WaitingTask:
    return WaitingTask(task_id=f"{role}.await_{upstream}", pool=pool, role=role, sensor=True)


@pytest.mark.parametrize(
    ("tasks", "needed"),
    [
        pytest.param([reconcile()], {"p": 1}, id="a-job-without-roles"),
        pytest.param([reconcile(), run("a"), run("b")], {"p": 3}, id="all-roles-at-once"),
        pytest.param(
            [reconcile(), run("a"), sensor("b", "a"), run("b")], {"p": 3}, id="sensor-then-role"
        ),
        pytest.param(
            [reconcile(), run("a"), run("b"), sensor("c", "a"), sensor("c", "b"), run("c")],
            {"p": 5},
            id="two-sensors-of-a-role-wait-together",
        ),
        pytest.param(
            [reconcile(), run("a"), sensor("b", "a"), run("b"), sensor("c", "b"), run("c")],
            {"p": 4},
            id="a-chain-waits-all-at-once",
        ),
        pytest.param(
            [reconcile("x"), run("a", "y"), sensor("b", "a", "x"), run("b", "y")],
            {"x": 2, "y": 2},
            id="each-pool-has-its-own-count",
        ),
        pytest.param(
            [reconcile(slots=2), run("a", slots=3)], {"p": 5}, id="tasks-that-take-several-slots"
        ),
    ],
)
def test_the_slots_that_a_group_holds_at_the_same_time(
    tasks: list[WaitingTask], needed: Mapping[str, int]
):
    assert needed_slots(tasks) == needed


GROUP = [reconcile(), run("a"), sensor("b", "a"), run("b")]


@pytest.mark.parametrize(
    "pools",
    [
        pytest.param({}, id="no-pool-counts-deferred-tasks"),
        pytest.param({"other": 0}, id="another-pool-does"),
        pytest.param({"p": 3}, id="just-large-enough"),
    ],
)
def test_a_pool_that_holds_the_group_is_no_matter(pools: Mapping[str, int]):
    refuse_small_pools(GROUP, pools)


def test_a_pool_that_is_too_small_is_refused_with_the_way_out():
    with pytest.raises(InputError) as refused:
        refuse_small_pools(GROUP, {"p": 2})
    (problem,) = refused.value.problems
    assert (problem.code, problem.value) == ("not_supported", "p")
    for part in ("2 slots", "include_deferred", "up to 3", "reconcile, a.run, b.await_a, b.run"):
        assert part in problem.message
    for part in ("at least 3 slots", "another pool", "include_deferred off"):
        assert part in problem.hint


def test_every_pool_that_is_too_small_is_named():
    tasks = [reconcile("x"), run("a", "x"), run("b", "y"), run("c", "y")]
    with pytest.raises(InputError) as refused:
        refuse_small_pools(tasks, {"x": 1, "y": 0})
    assert [problem.value for problem in refused.value.problems] == ["x", "y"]
