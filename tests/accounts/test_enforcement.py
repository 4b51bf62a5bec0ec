"""What becomes of runs whose account reaches a limit while they run."""

from __future__ import annotations

from decimal import Decimal

import pytest

from airflow_training.accounts.operations import enforce
from tests.accounts.samples import (
    HOUR,
    a_price,
    add_account,
    reserve_for,
    reserved_training,
    set_limit,
    workers,
)


def asked(store, uid):
    return [(each.kind, each.by) for each in store.requests(uid)]


def reached(store, uid):
    return [each.event for each in store.events(uid) if each.event.reason == "AccountAtLimit"]


def a_run_at_its_limit(store, clock, **account):
    add_account(store, **account)
    set_limit(store, "2")
    training = reserved_training(store, "first", hours="2")
    training.start()
    clock.advance(HOUR)
    assert enforce(store) == []
    clock.advance(HOUR)
    return training


@pytest.mark.parametrize(
    ("at_limit", "requests"),
    [
        ("finish", []),
        ("checkpoint_and_pause", [("pause", "accounts")]),
        ("kill", [("kill", "accounts")]),
    ],
)
def test_a_run_at_the_limit_gets_what_its_account_says_once(store, clock, at_limit, requests):
    training = a_run_at_its_limit(store, clock, at_limit=at_limit)
    for _ in range(3):
        enforce(store)
    assert asked(store, training.uid) == requests
    (event,) = reached(store, training.uid)
    assert event.message.startswith("alice is at its limit of gpu hours: 2 of 2 used, 0 reserved")
    assert event.data == {"account": "alice", "limit": "gpu_hours", "action": at_limit}


def test_who_resumes_without_more_is_paused_again_and_with_more_goes_on(store, clock):
    training = a_run_at_its_limit(store, clock)
    enforce(store)
    store.add_request(training.uid, "resume", by="alice")
    enforce(store)
    enforce(store)
    assert [kind for kind, _ in asked(store, training.uid)] == ["pause", "resume", "pause"]
    store.add_request(training.uid, "resume", by="alice")
    set_limit(store, "5")
    enforce(store)
    assert asked(store, training.uid)[-1] == ("resume", "alice")


def test_what_does_not_run_is_left_alone(store, clock):
    training = a_run_at_its_limit(store, clock)
    training.finish()
    assert enforce(store) == []
    training.restart()
    assert [each.run for each in enforce(store)] == [training.uid]


def test_who_goes_beyond_its_reservation_makes_room_for_others(store, clock):
    add_account(store)
    set_limit(store, "4")
    training = reserved_training(store, "first", hours="1")
    training.start()
    clock.advance(2 * HOUR)
    assert enforce(store) == []  # nobody else wants it
    other = reserved_training(store, "second", hours="2")
    other.start()
    clock.advance(HOUR / 2)
    (action,) = enforce(store)
    assert (action.run, action.request) == (training.uid, "pause")


def test_a_limit_that_is_lowered_stops_what_runs(store, clock):
    add_account(store)
    set_limit(store, "4", "concurrent_gpus")
    training = reserved_training(store, "first", roles=[workers(gpus=1)])
    training.start()
    assert enforce(store) == []
    set_limit(store, "0", "concurrent_gpus")
    assert [each.limit for each in enforce(store)] == ["concurrent_gpus"]


def test_who_keeps_to_its_reservation_is_not_stopped_for_who_does_not(store, clock):
    add_account(store)
    set_limit(store, "2", "concurrent_gpus")
    late = reserved_training(store, "late", roles=[workers(2)], wait_hours=Decimal(1))
    clock.advance(HOUR)
    in_time = [reserved_training(store, name) for name in ("one", "two")]
    for training in (*in_time, late):
        training.start()
    assert [each.run for each in enforce(store)] == [late.uid]


def test_the_strictest_of_user_and_team_counts(store, clock):
    add_account(store, at_limit="finish")
    add_account(store, "research", "team", at_limit="kill")
    store.accounts.add_member("research", "alice")
    for account in ("alice", "research"):
        set_limit(store, "1", account=account)
    training = reserved_training(store, "first")
    training.start()
    clock.advance(HOUR)
    (action,) = enforce(store)
    assert (action.account, action.request) == ("research", "kill")


def test_a_prepaid_balance_stops_at_its_threshold(store, clock):
    add_account(store, prepaid=True, threshold=Decimal(1))
    store.accounts.pay("alice", Decimal(3))
    store.accounts.set_price(a_price("2"))
    training = reserved_training(store, "first")
    training.start()
    clock.advance(HOUR - 60)
    assert enforce(store) == []
    clock.advance(60)
    (action,) = enforce(store)
    assert action.message == "the balance of alice is 1 EUR, its threshold 1"


def test_only_the_runs_that_are_named_are_stopped(store, clock):
    training = a_run_at_its_limit(store, clock)
    reserve_for(store, "waits", roles=[workers(gpus=0)])
    assert enforce(store, runs=["another"]) == []
    assert [each.run for each in enforce(store, runs=[training.uid])] == [training.uid]
