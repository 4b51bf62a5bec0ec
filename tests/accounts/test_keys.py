"""Who a key lets in, and for how long."""

from __future__ import annotations

import sqlite3

import pytest

from airflow_training.accounts.operations import add_key, authenticate
from airflow_training.accounts.refusals import AccountRefused
from airflow_training.errors import InputError
from tests.accounts.samples import add_account


def problem(store, key, **scope):
    with pytest.raises(AccountRefused) as error:
        authenticate(store, key, **scope)
    assert error.value.refusal.names == "login"
    return error.value.refusal.message


def test_a_key_is_its_users_until_it_expires(store, clock):
    add_account(store)
    key, kept = add_key(store, "alice", days=30)
    assert key.startswith(f"{kept.prefix}_")
    assert authenticate(store, key).name == "alice"
    clock.advance(30 * 86_400)
    assert problem(store, key) == f"the key {kept.prefix} has expired at 2023-12-14T22:13:20Z"


def test_a_revoked_key_lets_nobody_in(store):
    add_account(store)
    key, kept = add_key(store, "alice")
    other, _ = add_key(store, "alice")
    assert store.accounts.revoke_key(kept.prefix)
    assert "was revoked at" in problem(store, key)
    assert authenticate(store, other).name == "alice"
    assert not store.accounts.revoke_key("atk_00000000")


def test_a_key_that_reads_does_not_submit(store):
    add_account(store)
    key, _ = add_key(store, "alice", scope="read")
    assert authenticate(store, key, scope="read").name == "alice"
    assert problem(store, key).endswith("may only read")


def test_whoever_guesses_learns_nothing(store):
    add_account(store)
    key, kept = add_key(store, "alice")
    store.accounts.revoke_key(kept.prefix)
    guesses = [
        "",
        "alice",
        f"{kept.prefix}_{'0' * 64}",
        f"atk_00000000_{key[-64:]}",
        key[:-1],
        key + "0",
    ]
    assert {problem(store, each) for each in guesses} == {"no such key"}


def test_keys_are_of_users(store):
    add_account(store, "research", "team")
    with pytest.raises(InputError, match="research is a team; keys are of users"):
        add_key(store, "research")


def test_the_store_does_not_know_the_key(store):
    if not store.url.startswith("sqlite"):
        pytest.skip("looks into the file")
    add_account(store)
    key, _ = add_key(store, "alice")
    with sqlite3.connect(store.url.removeprefix("sqlite:///")) as connection:
        dump = "\n".join(connection.iterdump())
    connection.close()
    assert key[:12] in dump
    assert key[-64:] not in dump
    again, _ = add_key(store, "alice")
    assert again != key
