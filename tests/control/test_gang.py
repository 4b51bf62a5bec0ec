"""Waves, and the proof that gang and start order cannot deadlock, against a simulated scheduler."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import get_args

import pytest

from airflow_training.control.actions import Create
from airflow_training.control.gang import (
    choose_startup,
    first_created,
    gang_sizes,
    prove_startup,
)
from airflow_training.control.waves import cycle, waves
from airflow_training.documents.resolved import (
    ResolvedDependency,
    ResolvedJob,
    ResolvedRole,
    Startup,
)
from tests.builders import Bench, after, job, role


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        ([role("a")], [["a"]]),
        ([role("worker", 3, "master"), role("master")], [["master"], ["worker"]]),
        ([role("a"), role("b"), role("c", 1, "a", "b")], [["a", "b"], ["c"]]),
        ([role("a"), role("b", 1, "a"), role("c", 1, "a", "b")], [["a"], ["b"], ["c"]]),
        ([role("a"), role("b", 1, "a"), role("c", 1, "a")], [["a"], ["b", "c"]]),
    ],
)
def test_waves_are_levels_of_the_graph(roles, expected):
    assert waves(job(*roles)) == expected


def test_a_cycle_is_named():
    closed = job(role("a", 1, "c"), role("b", 1, "a"), role("c", 1, "b"), role("d"))
    with pytest.raises(ValueError, match="cycle: a -> c -> b -> a"):
        waves(closed)
    assert cycle({"a": ["b"], "b": ["c"], "c": ["b"]}) == ["b", "c", "b"]
    assert cycle({"a": ["b"], "b": []}) == []


@pytest.mark.parametrize(
    ("spec", "startup", "bound"),
    [
        pytest.param(job(role("m"), role("w", 3, "m")), "ordered", 0, id="no-gang"),
        pytest.param(
            job(role("m"), role("w", 3, "m"), gang="volcano"), "createAllHold", 1800, id="all"
        ),
        pytest.param(
            job(role("m"), role("w", 3, "m"), gang="kueue", min_available=1), "ordered", 0, id="one"
        ),
        pytest.param(
            job(role("m"), role("w", 3, after("m", "Complete")), gang="volcano"),
            "perWave",
            0,
            id="complete",
        ),
        pytest.param(
            job(role("m", 0), role("w", 3, "m"), gang="volcano"), "ordered", 0, id="empty"
        ),
    ],
)
def test_auto_is_ordered_where_that_is_safe(spec, startup, bound):
    choice = choose_startup(spec, "auto")
    assert (choice.startup, choice.idle_instance_seconds_bound) == (startup, bound)
    assert choice.reason
    assert prove_startup(spec, choice.startup) is None


def test_waiting_for_completion_inside_has_no_bound_but_the_deadline():
    roles = (role("m"), role("w", 3, after("m", "Complete")))
    spec = job(*roles, gang="volcano")
    assert choose_startup(spec, "createAllHold").idle_instance_seconds_bound is None
    limited = job(*roles, gang="volcano", active_deadline_seconds=100)
    assert choose_startup(limited, "createAllHold").idle_instance_seconds_bound == 400


def test_a_deadlock_is_refused_with_reason_and_way_out():
    spec = job(role("master"), role("worker", 3, "master"), gang="volcano")
    problem = prove_startup(spec, "ordered")
    assert problem is not None
    assert problem.code == "gang_order_deadlock"
    assert "4 instances" in problem.message
    assert "only 1" in problem.message
    assert "worker" in problem.message
    assert "minAvailable: 1" in problem.hint
    assert "createAllHold" in problem.allowed


def test_the_size_of_each_gang():
    spec = job(role("m"), role("w", 3, "m"), role("x", 2, "w"), gang="volcano")
    assert gang_sizes(spec, "ordered") == {"m": 6, "w": 6, "x": 6}
    assert gang_sizes(spec, "perWave") == {"m": 1, "w": 3, "x": 2}
    assert gang_sizes(spec, "firstWaveReserveAll") == {"m": 1, "w": 1, "x": 1}
    assert first_created(spec) == 1


# the brute force --------------------------------------------------------------------------------
def comes_up(spec: ResolvedJob, startup: Startup) -> bool:
    """Return whether every instance runs in the end under a gang scheduler, step by step.

    Pods of a role are created when its dependencies are met (at once under createAllHold). A gang
    that has not started yet starts when enough of its pods exist; then every pod of it is placed.
    A placed pod runs, unless it is held. A role that others wait for to be complete completes once
    all its pods run.
    """
    size = gang_sizes(spec, startup)
    gang_of = {
        name: number if startup == "perWave" else 0
        for number, wave in enumerate(waves(spec))
        for name in wave
    }
    created: set[str] = set()
    started: set[int] = set()
    running: set[str] = set()
    complete: set[str] = set()

    def met(needs: ResolvedDependency) -> bool:
        if spec.role(needs.role).replicas == 0:
            return needs.require == "All"
        return needs.role in (complete if needs.status == "Complete" else running)

    while True:
        before = (len(created), len(started), len(running), len(complete))
        for each in spec.roles:
            free = all(map(met, each.depends_on))
            if free or startup == "createAllHold":
                created.add(each.name)
            if free and each.name in created and gang_of[each.name] in started:
                running.add(each.name)
        for name, number in gang_of.items():
            pods = sum(spec.role(n).replicas for n in created if gang_of[n] == number)
            if pods >= size[name]:
                started.add(number)
        complete |= running
        if before == (len(created), len(started), len(running), len(complete)):
            return all(each.name in running for each in spec.roles if each.replicas)


def some_job(dice: Random) -> ResolvedJob:
    roles: list[ResolvedRole] = []
    for number in range(dice.randint(1, 4)):
        needs = [
            after(
                each.name,
                dice.choice(("Running", "AddressKnown", "Ready", "Complete")),
                # Any of none can never be met, and is refused for that
                require=dice.choice(("All", "Any")) if each.replicas else "All",
            )
            for each in roles
            if dice.random() < 0.5
        ]
        roles.append(role(f"r{number}", dice.choice((0, 1, 1, 2, 3)), *needs))
    dice.shuffle(roles)
    total = sum(each.replicas for each in roles)
    least = dice.choice((None, dice.randint(1, total) if total else None))
    return job(*roles, gang=dice.choice(("volcano", "coscheduling")), min_available=least)


def test_the_proof_agrees_with_a_simulated_gang_scheduler_on_thousands_of_jobs():
    dice = Random(20)
    refused = 0
    for _, startup in product(range(1500), get_args(Startup)):
        spec = some_job(dice)
        proven = prove_startup(spec, startup) is None
        assert comes_up(spec, startup) == proven, (spec.roles, spec.scheduling, startup)
        refused += not proven
    assert refused > 200


def test_what_is_chosen_always_comes_up():
    dice = Random(21)
    for _ in range(2000):
        spec = some_job(dice)
        assert comes_up(spec, choose_startup(spec, "auto").startup)


def test_roles_of_one_wave_are_created_together_when_they_are_one_gang():
    roles = (
        role("fast"),
        role("slow"),
        role("x", 1, after("fast", "Running")),
        role("y", 1, after("slow", "Complete", timeout_seconds=1e6)),
    )
    bench = Bench(job(*roles, gang="volcano", startup="perWave")).settle()
    assert bench.of("x").reason == "WaitingForWave"
    bench.end("slow").step()
    assert bench.actions(Create) == [("x", 0), ("y", 0)]
    ordered = Bench(job(*roles, gang="volcano", min_available=2)).settle()
    assert ordered.of("x").state == "running"
