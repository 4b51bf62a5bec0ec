"""A holder knows by its own clock whether it may act, and acts on nothing once it may not."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import subprocess
from pathlib import Path

import pytest

from airflow_training.control.actions import Action, Create, Delete, Release
from airflow_training.control.attempts import AttemptId
from airflow_training.control.first_ledger import new_ledger
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import RunRef
from airflow_training.errors import LeaseLost
from airflow_training.runtimes.clock import steady_now
from airflow_training.state.store import Lease
from airflow_training.supervise.effects import Effects
from airflow_training.supervise.lease_keeper import LeaseKeeper
from airflow_training.supervise.owners import Owner, forget_owner, is_provably_dead, new_owner
from tests.builders import job, role
from tests.waiting import until

LEASE = Lease(run="r", owner="me", generation=1, expires_at=0.0)
CREATE = Create(key=InstanceKey("worker", 0), attempt_id=AttemptId(attempt=0))


class Asked(LeaseKeeper):
    """Counts how often it was asked whether it is good."""

    questions = 0

    @property
    def good(self) -> bool:
        self.questions += 1
        return super().good


def keeper(*, seconds_left: float) -> Asked:
    return Asked(LEASE, seconds=15.0, taken_at=steady_now() - 15.0 + seconds_left)


async def effects(stage, held: LeaseKeeper) -> Effects:
    made = job(role("worker", 2), runtime="memory")
    run = RunRef(uid="r", job=made.name, namespace="default", controller="here", generation=1)
    addresses = await stage.runtime.prepare(run, made)
    return Effects(
        runtime=stage.runtime,
        run=run,
        job=made,
        addresses=addresses,
        prepared_for=AttemptId(),
        keeper=held,
    )


def act(chosen: Effects, *actions: Action):
    ledger = new_ledger(chosen.job, now=1.0, activate_all=True)
    return chosen.perform(actions or [CREATE], ledger=ledger, seen=(), now=1.0)


async def test_a_good_lease_acts(stage):
    await act(await effects(stage, keeper(seconds_left=10.0)))
    assert stage.live("r") == {("worker", 0)}


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(
            lambda uid: dataclasses.replace(CREATE, key=InstanceKey("worker", 1)), id="create"
        ),
        pytest.param(
            lambda uid: Delete(key=InstanceKey("worker", 0), uid=uid, grace_seconds=0, reason="x"),
            id="delete",
        ),
        pytest.param(
            lambda uid: Release(
                key=InstanceKey("worker", 0), uid=uid, attempt=0, answer="Confirmation"
            ),
            id="release",
        ),
    ],
)
async def test_a_lost_lease_acts_on_nothing(stage, make):
    held = keeper(seconds_left=10.0)
    chosen = await effects(stage, held)
    await act(chosen, dataclasses.replace(CREATE, held=True))
    before = stage.runtime.live("r")
    held.renewed(None, asked_at=steady_now())
    with pytest.raises(LeaseLost):
        await act(chosen, make(before["worker", 0].uid))
    assert stage.runtime.live("r") == before


async def test_a_lease_that_ran_out_waits_for_its_renewal_before_it_acts(stage):
    """As after a stall: nobody knows yet whether another has taken over."""
    held = keeper(seconds_left=-1.0)
    acting = asyncio.ensure_future(act(await effects(stage, held)))
    await until(lambda: held.questions)
    held.renewed(LEASE, asked_at=steady_now() - 20.0)
    await until(lambda: held.questions > 1)
    assert not stage.live("r"), "an answer to an old question is worth nothing"
    held.renewed(LEASE, asked_at=steady_now())
    await asyncio.wait_for(acting, 5)
    assert stage.live("r") == {("worker", 0)}


async def test_a_renewal_that_was_asked_long_ago_is_worth_little():
    held = keeper(seconds_left=-1.0)
    held.renewed(LEASE, asked_at=steady_now() - 20.0)
    assert not held.good


def myself() -> Owner:
    owner = Owner.parse(new_owner())
    assert owner is not None
    return owner


# who is dead ---------------------------------------------------------------------------------------
def test_this_process_is_alive_until_it_says_that_its_holder_has_ended():
    owner = new_owner()
    assert not is_provably_dead(owner)
    forget_owner(owner)
    assert is_provably_dead(owner)


@pytest.mark.e2e
def test_a_process_that_is_gone_is_dead_and_a_reused_pid_is_no_other():
    mine = myself()
    with subprocess.Popen(["sleep", "60"]) as child:
        stat = Path(f"/proc/{child.pid}/stat").read_text()
        started = int(stat.rpartition(")")[2].split()[19])
        theirs = dataclasses.replace(mine, pid=child.pid, start_time=started)
        assert not is_provably_dead(str(theirs))
        assert is_provably_dead(str(dataclasses.replace(theirs, start_time=started - 1)))
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert is_provably_dead(str(theirs)), "a zombie holds nothing"
    assert is_provably_dead(str(theirs))


@pytest.mark.parametrize(
    "doubtful",
    [
        pytest.param({"host": "elsewhere"}, id="another-host-or-pid-namespace"),
        pytest.param({"boot_id": "another"}, id="another-boot"),
    ],
)
def test_what_cannot_be_seen_from_here_is_not_called_dead(doubtful):
    mine = myself()
    assert not is_provably_dead(str(dataclasses.replace(mine, pid=2**22 + 1, **doubtful)))
    assert is_provably_dead(str(dataclasses.replace(mine, pid=2**22 + 1)))


@pytest.mark.parametrize("text", ["", "x", "a/b/c/d/e", "a/b/1/2"])
def test_an_owner_of_another_kind_is_not_called_dead(text):
    assert not is_provably_dead(text)
