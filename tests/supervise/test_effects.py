"""An effect that fails keeps no other from being done that does not need it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_training.control.actions import AwaitPeers, RevisePlan
from airflow_training.control.first_ledger import new_ledger
from airflow_training.documents.instances import InstanceKey
from airflow_training.errors import RuntimeUnavailable
from airflow_training.runtimes.memory import MemoryRuntime
from airflow_training.supervise.effects import Effects
from tests.supervise.test_lease_keeper import CREATE, effects, keeper


class Deaf(MemoryRuntime):
    """Agents cannot be told that they wait, though everything else can be done."""

    told = 0

    async def await_peers(self, *_: Any, **__: Any) -> None:
        self.told += 1
        raise RuntimeUnavailable("the cluster refuses: cannot patch resource pods")


class Older(MemoryRuntime):
    """An adapter of others, which knows nothing of waits."""

    await_peers = None  # type: ignore[assignment]


def act(chosen: Effects, *actions: Any, now: float) -> Any:
    ledger = new_ledger(chosen.job, now=1.0, activate_all=True)
    return chosen.perform(actions, ledger=ledger, seen=(), now=now)


@pytest.mark.parametrize("runtime", [Deaf, Older])
async def test_a_peer_is_made_though_nobody_can_be_told_that_it_is_waited_for(stage, runtime):
    stage.runtime = runtime()
    chosen = await effects(stage, keeper(seconds_left=10.0))
    await act(chosen, CREATE, now=1.0)
    uid = stage.runtime.live("r")["worker", 0].uid
    wait = AwaitPeers(key=InstanceKey("worker", 0), uid=uid, seconds=240.0, number=1)
    peer = replace(CREATE, key=InstanceKey("worker", 1))
    await act(chosen, wait, peer, now=2.0)
    assert stage.live("r") == {("worker", 0), ("worker", 1)}


async def test_who_could_not_be_told_of_a_wait_is_told_again_before_long_but_not_with_each_pass(
    stage,
):
    stage.runtime = Deaf()
    chosen = await effects(stage, keeper(seconds_left=10.0))
    wait = AwaitPeers(key=InstanceKey("worker", 0), uid="w", seconds=240.0, number=1)
    for second in range(60):
        await act(chosen, wait, now=float(second))
    assert stage.runtime.told == 2
    none_left = replace(wait, seconds=0.0, number=2)
    for second in range(60, 120):
        await act(chosen, none_left, now=float(second))
    assert stage.runtime.told == 4


async def test_who_waits_no_more_is_told_so_once(stage):
    class Told(MemoryRuntime):
        told: tuple[float, ...] = ()

        async def await_peers(self, *_: Any, seconds: float, **__: Any) -> None:
            self.told = (*self.told, seconds)

    stage.runtime = Told()
    chosen = await effects(stage, keeper(seconds_left=10.0))
    wait = AwaitPeers(key=InstanceKey("worker", 0), uid="w", seconds=240.0, number=1)
    await act(chosen, wait, now=1.0)
    for second in range(2, 60):
        await act(chosen, replace(wait, seconds=0.0, number=2), now=float(second))
    assert stage.runtime.told == (240.0, 0.0)


class Slow(MemoryRuntime):
    """Counts how often instances are given a plan; the first time nobody answers."""

    given = 0

    async def replace_files(self, given: Any) -> None:
        self.given += 1
        if self.given == 1:
            raise RuntimeUnavailable("no answer")
        await super().replace_files(given)


async def test_a_revised_plan_is_given_until_it_was_taken_and_never_again_by_the_same_holder(stage):
    stage.runtime = Slow()
    chosen = await effects(stage, keeper(seconds_left=10.0))
    await act(chosen, CREATE, now=1.0)
    uid = stage.runtime.live("r")["worker", 0].uid
    revise = RevisePlan(key=InstanceKey("worker", 0), uid=uid, number=1)
    with pytest.raises(RuntimeUnavailable):
        await act(chosen, revise, now=2.0)
    for second in range(3, 600, 60):
        await act(chosen, revise, now=float(second))
    assert stage.runtime.given == 2
    await act(chosen, replace(revise, number=2), now=700.0)
    assert stage.runtime.given == 3
