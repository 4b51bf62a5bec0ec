"""How many spares a role should have, and who gets the place of one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_training.control.spares import SpareDemand, spare_demand
from tests.builders import Bench, job, role, snapshot


def started(**unplaced: Any) -> Bench:
    """Return a job that runs, but for worker 1 where it is `unplaced`."""
    bench = Bench(job(role(replicas=2, warm_spares=1), role("ps")))
    bench.step()
    if unplaced:
        bench.set("worker", 1, scheduled=False, **unplaced)
    return bench.settle()


def demand(bench: Bench) -> SpareDemand:
    found = spare_demand(bench.job, bench.ledger, snapshot(*bench.objects.values()))
    assert set(found) == {"worker"}, "only roles that ask for spares"
    return found["worker"]


def test_a_role_that_runs_has_its_spares():
    assert demand(started()) == SpareDemand(number=1)


def test_who_finds_no_place_is_named():
    bench = started(reason="Unschedulable")
    unplaced = frozenset({bench.of("worker", 1).attempt_key})
    assert demand(bench) == SpareDemand(number=1, unplaced=unplaced, may_wait=False)
    bench.set("worker", 1, scheduled=True, reason="")
    assert demand(bench.settle()) == SpareDemand(number=1)


@pytest.mark.parametrize("reason", ["Scheduling", "SchedulingGated"])
def test_who_may_still_find_a_place_needs_none(reason: str):
    assert demand(started(reason=reason)) == SpareDemand(number=1, may_wait=False)


def test_a_run_that_is_paused_holds_no_place():
    assert demand(started().request("pause").settle()) == SpareDemand()


def test_a_role_that_waits_for_another_holds_no_place_yet():
    bench = Bench(job(role("worker", 2, "ps", warm_spares=1), role("ps")))
    bench.step()
    assert bench.states()["worker"] == "Waiting"
    assert demand(bench) == SpareDemand()


def test_a_role_that_is_over_holds_no_place():
    bench = started()
    over = replace(bench.ledger.roles["worker"], state="Succeeded")
    bench.ledger = replace(bench.ledger, roles={**bench.ledger.roles, "worker": over})
    assert demand(bench) == SpareDemand()
