"""How many spares a role should have, and who gets the place of one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_training.control.observations import RefusedAttempt
from airflow_training.control.spares import SpareDemand, spare_demand
from airflow_training.documents.resolved import ResolvedSpot
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


def test_who_backs_off_will_want_its_place_again():
    bench = started()
    bench.end("worker", 1, exit_code=1)
    bench.step()
    assert bench.of("worker", 1).reason == "RestartBackOff"
    assert demand(bench) == SpareDemand(number=1, may_wait=False)


def test_who_is_refused_for_a_quota_gets_what_a_spare_has_of_it():
    bench = started()
    bench.lose("worker", 1)
    for _ in range(3):
        bench.decide(seconds=60)  # the next attempt is ordered, and is not made
    bench.refused = [
        RefusedAttempt(
            key=bench.of("worker", 1).key,
            attempt_id=bench.of("worker", 1).attempt_id,
            reason="QuotaExceeded",
            message="quota few is used up",
        )
    ]
    bench.decide()
    attempt = bench.of("worker", 1).attempt_key
    assert demand(bench) == SpareDemand(number=1, unplaced=frozenset({attempt}), may_wait=False)


def test_who_is_refused_for_another_reason_gets_none():
    bench = started()
    bench.lose("worker", 1)
    for _ in range(3):
        bench.decide(seconds=60)
    entry = bench.of("worker", 1)
    words = {"reason": "WebhookUnavailable", "message": "connection refused"}
    bench.refused = [RefusedAttempt(key=entry.key, attempt_id=entry.attempt_id, **words)]
    bench.decide()
    assert demand(bench) == SpareDemand(number=1, may_wait=False)


def test_a_role_that_begins_soon_finds_its_places_free():
    bench = Bench(job(role("worker", 2, "ps"), role("ps", warm_spares=1)))
    bench.step()
    assert bench.states()["worker"] == "Waiting"
    found = spare_demand(bench.job, bench.ledger, snapshot(*bench.objects.values()))
    assert not found["ps"].may_wait


def test_a_run_that_was_made_smaller_has_its_spares_as_before():
    bench = Bench(job(role(replicas=3, warm_spares=1))).settle()
    bench.request("scale", "worker", replicas=2).settle()
    assert demand(bench) == SpareDemand(number=1)


def test_a_role_without_spares_gets_the_place_of_another_roles():
    bench = started()
    bench.set("ps", 0, scheduled=False, reason="Unschedulable")
    attempt = bench.of("ps").attempt_key
    assert demand(bench) == SpareDemand(number=1, unplaced=frozenset({attempt}), may_wait=False)


@pytest.mark.parametrize(("index", "served"), [(0, False), (1, True)])
def test_of_a_role_partly_on_spot_those_on_spot_have_spares(index: int, served: bool):
    spot = ResolvedSpot(from_index=1, label="capacity", value="spot")
    bench = Bench(job(role(replicas=2, warm_spares=1, spot=spot))).settle()
    bench.set("worker", index, scheduled=False, reason="Unschedulable")
    assert bool(demand(bench).unplaced) == served


def test_a_role_of_no_instances_has_no_spares():
    bench = Bench(job(role(replicas=0, warm_spares=1), role("ps"))).settle()
    assert demand(bench) == SpareDemand()
