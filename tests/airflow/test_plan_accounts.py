"""`plan` holds a run in the account of who has triggered it."""

from __future__ import annotations

from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException
from sqlalchemy import update

from airflow_training.accounts import operations
from airflow_training.compiler.dag import job_to_dag
from airflow_training.state.account_models import ReservationRow
from airflow_training.state.account_records import Account, AccountLimit, ReservedRole
from airflow_training.state.store import Store
from airflow_training.triggers.access import run_key
from tests.airflow.jobs import shell
from tests.airflow.worker_tasks import context


def by(user: str, run_id: str = "manual") -> Any:
    seen = context(run_id=run_id)
    return {**seen, "dag_run": SimpleNamespace(triggering_user_name=user, conf={})}


def test_a_run_is_held_in_the_account_of_who_has_triggered_it(store: Store):
    store.accounts.save(Account(name="ann"))
    document = shell("hello", "true", activeDeadlineSeconds=1800)
    plan = job_to_dag(document).get_task("plan")
    reference = plan.execute(by("ann"))
    held = store.reservations.of_run(reference["run"])
    assert held is not None
    assert (held.account, held.hours) == ("ann", Decimal("0.5"))
    assert [(each.role, each.replicas) for each in held.roles] == [("worker", 1)]
    assert plan.execute(by("ann")) == reference
    assert len(store.reservations.live(account="ann")) == 1


def test_what_an_account_may_not_have_is_refused_before_there_is_a_run(store: Store):
    store.accounts.save(Account(name="ann"))
    limit = AccountLimit(account="ann", kind="instance_hours", period="total", amount=Decimal(1))
    store.accounts.set_limit(limit)
    plan = job_to_dag(shell("hello", "true")).get_task("plan")
    with pytest.raises(AirflowFailException, match="quota: ann may use 1 instance-hours"):
        plan.execute(by("ann"))
    with pytest.raises(AirflowFailException, match="login: eve has no account here") as refused:
        plan.execute(by("eve"))
    assert "airflow-training accounts add eve" in str(refused.value)
    assert store.runs() == []
    assert store.reservations.live() == []


def test_a_run_of_a_schedule_is_in_no_account(store: Store):
    store.accounts.save(Account(name="ann"))
    reference = job_to_dag(shell("hello", "true")).get_task("plan").execute(by(""))
    assert store.reservations.of_run(reference["run"]) is None


def sent_by_ann(store: Store, uid: str) -> str:
    """Hold it for a run as whoever sends it does; returns the reservation."""
    role = ReservedRole(role="worker", replicas=1, resources={}, node_labels={})
    held = operations.reserve(
        store,
        account="ann",
        roles=[role],
        hours=Decimal(1),
        key="submission",
        wait_hours=Decimal(2),
    )
    store.reservations.attach(held.id, uid)
    return held.id


def test_a_run_that_began_later_than_it_was_held_for_goes_on_in_its_reservation(store: Store):
    store.accounts.save(Account(name="ann"))
    plan = job_to_dag(shell("hello", "true")).get_task("plan")
    uid = run_key(store, by("ann")["ti"], group_id="").uid
    held = sent_by_ann(store, uid)
    with store._db.write() as connection:  # two hours later
        connection.execute(update(ReservationRow).values(expires_at=0.0))
    assert operations.settle(store, account="ann") == 1
    assert plan.execute(by("ann"))["run"] == uid
    [live] = store.reservations.live(account="ann")
    assert (live.reservation.id, live.reservation.run) == (held, uid)


def test_a_run_whose_reservation_was_given_up_is_held_anew(store: Store):
    store.accounts.save(Account(name="ann"))
    plan = job_to_dag(shell("hello", "true")).get_task("plan")
    uid = run_key(store, by("ann")["ti"], group_id="").uid
    store.reservations.release(sent_by_ann(store, uid))
    assert plan.execute(by("ann"))["run"] == uid
    [live] = store.reservations.live(account="ann")
    assert (live.reservation.run, live.reservation.hours) == (uid, Decimal(24))


def test_the_team_that_pays_stands_in_the_job(store: Store):
    for team in ("red", "blue"):
        store.accounts.save(Account(name=team, kind="team"))
    store.accounts.save(Account(name="ann"))
    for team in ("red", "blue"):
        store.accounts.add_member(team, "ann")
    document = shell("hello", "true")
    with pytest.raises(AirflowFailException, match="several teams"):
        job_to_dag(document).get_task("plan").execute(by("ann"))
    document["metadata"]["annotations"] = {"airflow-training/team": "red"}
    reference = job_to_dag(document).get_task("plan").execute(by("ann"))
    held = store.reservations.of_run(reference["run"])
    assert held is not None
    assert held.team == "red"
