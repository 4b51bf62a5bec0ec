"""What may be reserved, by whom, and what is said to whoever may not."""

from __future__ import annotations

from decimal import Decimal

import pytest

from airflow_training.accounts import operations
from airflow_training.accounts.limits import balance_of, standings
from airflow_training.accounts.refusals import AccountRefused
from airflow_training.accounts.run_bills import bill
from airflow_training.errors import InputError
from tests.accounts.samples import (
    HOUR,
    Training,
    a_price,
    add_account,
    reserve_for,
    reserved_training,
    set_limit,
    workers,
)


def standing_of(store, account="alice"):
    operations.settle(store)
    (found,) = standings(store.reservations.facts(account))
    return found.used, found.reserved


def refused(store, name="one more", **asked):
    with pytest.raises(AccountRefused) as error:
        reserve_for(store, name, **asked)
    return error.value.refusal


def test_a_reservation_is_held_until_the_limit_is_full(store):
    add_account(store)
    set_limit(store, "10")
    reserve_for(store, "first", hours="3", roles=[workers(2)])
    assert standing_of(store) == (0, 6)
    refusal = refused(store, hours="5")
    assert (refusal.names, refusal.limit, refusal.account) == ("quota", "gpu_hours", "alice")
    assert (refusal.amount, refusal.used, refusal.reserved, refusal.asked) == (10, 0, 6, 5)
    assert (refusal.free, refusal.fitting_hours) == (4, 4)
    assert (
        "alice may use 10 GPU-hours in all: 0 used, 6 reserved, 5 asked, 4 free" in refusal.message
    )
    assert "would fit for 4 h" in refusal.message
    assert refusal.next_command == "airflow-training accounts usage alice"
    reserve_for(store, "fits", hours="4")
    assert standing_of(store) == (0, 10)


@pytest.mark.parametrize(
    ("kind", "asked", "words"),
    [
        ("instance_hours", 6, "alice may use 2 instance-hours in all"),
        ("gpu_hours", 12, "alice may use 2 GPU-hours in all"),
        ("concurrent_gpus", 4, "alice may use 2 GPUs at a time: 0 used"),
        ("money", 24, "alice may use 2 EUR in all"),
    ],
)
def test_every_kind_of_limit_refuses_by_its_name(store, kind, asked, words):
    add_account(store)
    store.accounts.set_price(a_price("2"))
    set_limit(store, "2", kind)
    refusal = refused(store, hours="3", roles=[workers(2, gpus=2)])
    assert (refusal.limit, refusal.asked) == (kind, asked)
    assert words in refusal.message


def test_a_limit_refuses_nobody_who_needs_nothing_of_it(store):
    add_account(store)
    set_limit(store, "0")
    refused(store)
    reserve_for(store, "without a gpu", roles=[workers(gpus=0)])


def test_a_prepaid_account_is_refused_by_balance_and_threshold(store):
    add_account(store, prepaid=True, threshold=Decimal(5))
    store.accounts.set_price(a_price("2"))
    store.accounts.pay("alice", Decimal(10))
    refusal = refused(store, hours="3")
    assert (refusal.names, refusal.threshold, refusal.free) == ("balance", 5, 5)
    assert (
        "the balance of alice is 10 EUR and may not go below its threshold of 5: "
        "0 reserved, 6 asked, 5 free" in refusal.message
    )
    assert refusal.next_command == "airflow-training accounts pay alice 1"
    store.accounts.pay("alice", Decimal(1))
    reserve_for(store, "first", hours="3")
    assert refused(store, hours="1").free == 0


def test_whoever_owes_is_told_to_pay_what_it_owes_too(store):
    add_account(store, prepaid=True, threshold=Decimal(5))
    store.accounts.set_price(a_price("2"))
    assert refused(store).next_command == "airflow-training accounts pay alice 7"
    store.accounts.pay("alice", Decimal(7))
    reserve_for(store, "one more")


def test_what_fits_exactly_is_not_refused_for_a_rounding(store, clock):
    add_account(store)
    set_limit(store, "8")
    for number, seconds in enumerate((2568.0, 1502.0)):  # of which the hours are rounded up
        training = reserved_training(store, f"run-{number}", hours="2")
        training.start()
        clock.advance(seconds)
        training.finish()
    reserve_for(store, "the rest", hours="4")
    assert refused(store, hours="0.00001").free < Decimal("1e-9")


def test_a_team_submits_nothing_itself(store):
    add_account(store, "research", "team")
    set_limit(store, "0", account="research")
    refusal = refused(store, account="research")
    assert (refusal.names, refusal.message) == ("login", "research is a team; users submit")


def test_a_reservation_that_waited_too_long_holds_nothing_when_its_run_begins(store, clock):
    add_account(store)
    set_limit(store, "2", "concurrent_gpus")
    training = reserved_training(
        store, "first", hours="9", roles=[workers(gpus=2)], wait_hours=Decimal(1)
    )
    clock.advance(HOUR)
    reserve_for(store, "second")
    training.start()
    assert standing_of(store) == (1, 1)


def test_a_team_pays_for_its_users_and_limits_them_together(store):
    for user in ("alice", "bob"):
        add_account(store, user, prepaid=True)
    add_account(store, "research", "team", prepaid=True)
    for user in ("alice", "bob"):
        store.accounts.add_member("research", user)
    store.accounts.set_price(a_price("1"))
    store.accounts.pay("research", Decimal(10))
    set_limit(store, "4", account="research")
    assert reserve_for(store, "first", hours="3").team == "research"
    refusal = refused(store, account="bob", hours="2")
    assert (refusal.account, refusal.limit, refusal.reserved) == ("research", "gpu_hours", 3)
    reserve_for(store, "second", account="bob", hours="1")


def test_who_is_in_several_teams_names_one(store):
    add_account(store)
    for team in ("red", "blue"):
        add_account(store, team, "team")
        store.accounts.add_member(team, "alice")
    with pytest.raises(InputError, match="is in several teams"):
        reserve_for(store, "first")
    with pytest.raises(InputError, match="alice is not in team 'green'"):
        reserve_for(store, "first", team="green")
    assert reserve_for(store, "first", team="blue").team == "blue"


def test_who_has_no_account_is_told_to_log_in(store):
    refusal = refused(store, account="mallory")
    assert (refusal.names, refusal.next_command) == (
        "login", "airflow-training accounts add mallory",
    )  # fmt: skip


def test_the_same_key_is_the_same_reservation(store):
    add_account(store)
    set_limit(store, "1")
    first = reserve_for(store, "first")
    assert reserve_for(store, "first") == first
    assert standing_of(store) == (0, 1)
    training = Training(store, "first")
    store.reservations.attach(first.id, training.uid)
    assert reserve_for(store, "first").run == training.uid


@pytest.mark.parametrize("other", [{"hours": "2"}, {"roles": [workers(2)]}])
def test_the_same_key_holds_nothing_else(store, other):
    add_account(store)
    reserve_for(store, "first")
    with pytest.raises(InputError, match="'first' holds something else already"):
        reserve_for(store, "first", **other)


@pytest.mark.parametrize(
    ("key", "hours"), [("", "1"), ("k" * 129, "1"), ("k", "NaN"), ("k", "Infinity"), ("k", "0")]
)
def test_a_reservation_without_a_name_or_an_end_is_a_mistake(store, key, hours):
    add_account(store)
    with pytest.raises(InputError, match=r"1 to 128 characters|more than nothing"):
        reserve_for(store, key, hours=hours)


def test_what_was_for_a_run_that_never_came_is_given_up_and_held_again(store, clock):
    add_account(store)
    set_limit(store, "1")
    uid = "never" * 4
    held = reserve_for(store, "first")
    store.reservations.attach(held.id, uid)
    assert standing_of(store) == (0, 1)
    store.reservations.release(held.id)
    assert standing_of(store) == (0, 0)
    assert reserve_for(store, "first").run is None
    assert standing_of(store) == (0, 1)
    store.reservations.attach(held.id, uid)
    clock.advance(24 * HOUR)
    assert standing_of(store) == (0, 0)
    reserve_for(store, "first")
    assert standing_of(store) == (0, 1)


def test_what_has_its_run_is_not_given_up(store):
    add_account(store)
    set_limit(store, "1")
    held = reserve_for(store, "first")
    store.reservations.attach(held.id, Training(store, "first").uid)
    store.reservations.release(held.id)
    assert standing_of(store) == (0, 1)


def test_what_waits_for_no_run_ends(store, clock):
    add_account(store)
    set_limit(store, "1")
    first = reserve_for(store, "first", wait_hours=Decimal(1))
    store.reservations.release(reserve_for(store, "second", roles=[workers(gpus=0)]).id)
    clock.advance(HOUR)
    with pytest.raises(InputError, match="it has ended"):
        store.reservations.attach(first.id, Training(store, "late").uid)
    again = reserve_for(store, "first")
    assert again.id == first.id
    assert store.reservations.attach(again.id, Training(store, "in time").uid)


def test_a_reservation_is_for_one_run(store):
    add_account(store)
    held = reserve_for(store, "first")
    training = Training(store, "first")
    store.reservations.attach(held.id, training.uid)
    assert store.reservations.attach(held.id, training.uid).run == training.uid
    with pytest.raises(InputError, match="it is that of run"):
        store.reservations.attach(held.id, Training(store, "another").uid)
    other = reserve_for(store, "second")
    with pytest.raises(InputError, match="has another one"):
        store.reservations.attach(other.id, training.uid)


def test_what_a_run_uses_is_no_longer_reserved_and_its_end_frees_the_rest(store, clock):
    add_account(store)
    set_limit(store, "10")
    training = reserved_training(store, "first", hours="4")
    training.start()
    clock.advance(HOUR)
    assert standing_of(store) == (1, 3)
    training.finish()
    assert standing_of(store) == (1, 3)
    clock.advance(HOUR / 2)  # back-off
    training.restart()
    clock.advance(HOUR)
    training.finish(state="succeeded")
    assert standing_of(store) == (2, 2)
    training.end()
    assert standing_of(store) == (2, 0)
    clock.advance(50 * HOUR)
    assert standing_of(store) == (2, 0)


def test_its_hours_end_a_reservation_whose_run_goes_on(store, clock):
    add_account(store)
    set_limit(store, "2", "concurrent_gpus")
    training = reserved_training(store, "first", hours="1", roles=[workers(gpus=2)])
    clock.advance(5 * HOUR)  # it waits in the queue, and is not asked for that
    assert standing_of(store) == (0, 2)
    training.start()
    clock.advance(HOUR)
    assert standing_of(store) == (1, 0)


def test_a_run_is_charged_once_however_often_it_is_settled(store, clock):
    add_account(store)
    store.accounts.set_price(a_price("2"))
    training = reserved_training(store, "first", hours="4")
    training.start()
    clock.advance(HOUR)
    training.finish(state="succeeded")
    training.end()
    assert operations.settle(store) == 1
    assert operations.settle(store) == 0
    (charge,) = operations.charges(store, "alice")
    assert (charge.instance_seconds, charge.money) == (HOUR, Decimal(2))
    assert bill(store, training.uid).total == 2


def test_a_run_that_is_started_again_is_charged_for_all_that_it_used(store, clock):
    add_account(store)
    store.accounts.set_price(a_price("2"))
    set_limit(store, "10")
    training = reserved_training(store, "first", hours="4")
    training.start()
    clock.advance(HOUR)
    training.finish(state="succeeded")
    training.end()
    assert standing_of(store) == (1, 0)
    clock.advance(HOUR)
    store.requeue(training.uid)
    training.restart()  # its state is Running again
    clock.advance(HOUR)
    assert standing_of(store) == (2, 0)
    training.finish(state="succeeded")
    training.end()
    assert standing_of(store) == (2, 0)
    (charge,) = operations.charges(store, "alice")
    assert charge.money == 4


def test_a_host_whose_clock_is_behind_is_charged_too(store, clock):
    add_account(store)
    store.accounts.set_price(a_price("2"))
    training = reserved_training(store, "first", hours="4")
    training.start()
    clock.advance(HOUR)
    training.finish(state="succeeded")
    training.end()
    clock.advance(HOUR)
    operations.settle(store)
    clock.advance(-HOUR)  # as another host sees it
    store.requeue(training.uid)
    training.restart()
    clock.advance(HOUR / 2)
    training.finish(state="succeeded")
    training.end()
    clock.advance(HOUR)
    assert operations.settle(store) == 1
    assert [each.money for each in store.reservations.charges("alice")] == [3]


def test_a_pruned_run_stays_charged_when_another_has_its_name(store, clock):
    add_account(store)
    store.accounts.set_price(a_price("2"))

    def train(training, seconds):
        training.start()
        clock.advance(seconds)
        training.finish(state="succeeded")
        training.end()
        clock.advance(1.0)
        operations.settle(store)

    train(reserved_training(store, "first"), HOUR)
    assert store.prune(older_than_seconds=0) == 1
    again = Training(store, "first")
    train(again, HOUR / 2)
    assert [each.money for each in store.reservations.charges("alice")] == [2]
    held = reserve_for(store, "first")
    with pytest.raises(InputError, match="was charged before it was pruned"):
        store.reservations.attach(held.id, again.uid)


def test_no_later_price_changes_what_was_charged(store, clock):
    add_account(store)
    store.accounts.set_price(a_price("2"))
    began = store.now()
    training = reserved_training(store, "first")
    training.start()
    clock.advance(HOUR)
    training.finish(state="succeeded")
    training.end()
    store.accounts.set_price(a_price("3", since=began + HOUR / 2))  # nothing is charged yet
    operations.settle(store)
    clock.advance(HOUR)
    for since in (0.0, began):
        with pytest.raises(InputError, match="runs were charged until 2023-11-14T23:13:20Z"):
            store.accounts.set_price(a_price("9", since=since))
    store.accounts.set_price(a_price("9", since=store.now()))
    (charge,) = operations.charges(store, "alice")
    assert bill(store, training.uid).total == charge.money == Decimal("2.5")


def test_charges_outlive_the_run(store, clock):
    add_account(store)
    store.accounts.set_price(a_price("2"))
    store.accounts.pay("alice", Decimal(10))
    training = reserved_training(store, "first")
    training.start()
    clock.advance(HOUR)
    training.finish(state="succeeded")
    training.end()
    clock.advance(1.0)
    assert store.prune(older_than_seconds=0) == 0  # what was not charged yet stays
    operations.settle(store)
    assert store.prune(older_than_seconds=0) == 1
    assert balance_of(store.reservations.facts("alice")) == 8
    (charge,) = operations.charges(store, "alice")
    assert charge.run == training.uid


def test_a_run_that_was_killed_before_it_began_holds_nothing(store):
    add_account(store)
    set_limit(store, "1")
    training = reserved_training(store, "first")
    store.tombstone(training.uid, reason="killed")
    assert standing_of(store) == (0, 0)


def test_a_limit_of_a_month_begins_anew(store, clock):
    add_account(store)
    set_limit(store, "2", period="month")
    training = reserved_training(store, "first", hours="2")
    training.start()
    clock.advance(2 * HOUR)
    training.finish(state="succeeded")
    training.end()
    assert refused(store).period == "month"
    assert "this month" in refused(store).message
    clock.advance(31 * 24 * HOUR)
    reserve_for(store, "next month", hours="2")


def test_an_estimate_says_what_it_rests_on(store, clock):
    add_account(store)
    store.accounts.set_price(a_price("2"))
    roles = [workers(2)]

    def estimate(**known):
        found = operations.estimate(store, roles, hours=Decimal(10), **known)
        return found.basis, found.hours, found.amounts.money

    assert estimate(job="digits") == ("asked", 10, 40)
    for number in range(3):
        training = Training(store, f"run-{number}")
        training.start()
        clock.advance((number + 1) * HOUR)
        training.finish(state="succeeded")
        training.end()
    assert estimate(job="digits") == ("history", 2, 8)
    assert estimate(job="digits", planned_seconds=1.5 * HOUR) == ("plan", Decimal("1.5"), 6)
    assert estimate(planned_seconds=99 * HOUR) == ("plan", 10, 40)
