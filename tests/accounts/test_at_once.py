"""Many who submit at the same time never get more than a limit allows."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from airflow_training.accounts.limits import standings
from airflow_training.accounts.refusals import AccountRefused
from airflow_training.errors import InputError
from airflow_training.state.store import Store
from tests.accounts.samples import add_account, reserve_for, set_limit
from tests.waiting import PATIENCE

pytestmark = pytest.mark.e2e

SUBMISSIONS = 100
SUBMIT = """
import sys
from airflow_training.accounts.refusals import AccountRefused
from airflow_training.state.store import Store
from tests.accounts.samples import reserve_for

store, name = Store(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
held = 0
for number in range(int(sys.argv[3])):
    try:
        reserve_for(store, f"{name}-{number}", account=name)
        held += 1
    except AccountRefused as error:
        assert error.refusal.names == "quota", error
print(held)
"""
"""Of one user, so many submissions of one GPU-hour."""


def two_users_of_a_team(store: Store, *, each: str, together: str) -> None:
    add_account(store, "research", "team")
    set_limit(store, together, account="research")
    set_limit(store, together, "concurrent_gpus", account="research")
    for user in ("alice", "zoe"):  # before and after the team in the order of names
        add_account(store, user)
        store.accounts.add_member("research", user)
        set_limit(store, each, account=user)


def reserved(store: Store, account: str) -> list[int]:
    return [int(each.reserved) for each in standings(store.reservations.facts(account))]


def test_threads_at_once_fill_a_limit_and_no_more(store: Store) -> None:
    two_users_of_a_team(store, each="25", together="40")

    def submit(number: int) -> str:
        user = ("alice", "zoe")[number % 2]
        try:
            reserve_for(store, f"run-{number}", account=user)
        except AccountRefused:
            return ""
        return user

    with ThreadPoolExecutor(SUBMISSIONS) as pool:
        granted = [*pool.map(submit, range(SUBMISSIONS))]
    assert sum(map(bool, granted)) == 40
    assert reserved(store, "research") == [40, 40]
    for user in ("alice", "zoe"):
        assert reserved(store, user) == [granted.count(user)]
        assert granted.count(user) <= 25


def test_processes_at_once_fill_a_limit_and_no_more(store: Store, url: str) -> None:
    two_users_of_a_team(store, each="25", together="40")
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SUBMIT, url, ("alice", "zoe")[number % 2], "25"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        for number in range(4)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
    # two processes of a user use the same keys: those are the same submissions
    assert reserved(store, "research") == [40, 40]
    assert reserved(store, "alice")[0] + reserved(store, "zoe")[0] == 40
    assert max(reserved(store, "alice")[0], reserved(store, "zoe")[0]) <= 25


def test_runs_at_once_do_not_share_a_reservation(store: Store) -> None:
    add_account(store)
    for number in range(20):
        held = reserve_for(store, f"key-{number}")

        def attach(run: int, held_id: str = held.id) -> int:
            try:
                store.reservations.attach(held_id, f"{held_id[:18]}{run:02}")
            except InputError:
                return 0
            return 1

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(attach, range(8))) == 1


def test_the_same_submission_at_once_is_one_reservation(store: Store) -> None:
    add_account(store)
    set_limit(store, "1")
    with ThreadPoolExecutor(20) as pool:
        found = {each.id for each in pool.map(lambda _: reserve_for(store, "same"), range(20))}
    assert len(found) == 1
    assert reserved(store, "alice") == [1]
