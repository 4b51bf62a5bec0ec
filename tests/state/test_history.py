"""Events and requests: numbered 1, 2, 3, ... per run, in the order in which they became visible."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable

import pytest

from airflow_training.control.model import Event
from airflow_training.documents.instances import InstanceKey
from airflow_training.errors import RunChanged
from airflow_training.state.models import EventRow, table_of
from airflow_training.state.store import RunMark, Store
from tests.state.samples import START, add_run, an_event, take, worker


def test_events_come_back_as_they_were_told(store: Store):
    uid = add_run(store).uid
    told = [
        an_event("one", role="worker", index=0, attempt=2, rule="backoffLimit", level="warning"),
        an_event("two", data={"exit_code": 137, "tail": ["a", "b"]}),
    ]
    store.add_events(uid, told)
    stored = store.events(uid)
    assert [each.event for each in stored] == told
    assert [each.seq for each in stored] == [1, 2]


def test_text_that_no_database_takes_is_made_harmless(store: Store):
    uid = add_run(store).uid
    store.add_events(uid, [an_event("nul \0 and \ud800", reason="x" * 300)])
    [stored] = store.events(uid)
    assert stored.event.message == "nul \ufffd and ?"
    assert len(stored.event.reason) == 250


def test_every_field_of_an_event_has_a_column():
    fields = {each.name for each in dataclasses.fields(Event)}
    assert fields == set(table_of(EventRow).columns.keys()) - {"run", "seq"}


def test_events_are_read_after_a_number_by_role_and_in_portions(store: Store):
    uid = add_run(store).uid
    store.add_events(uid, [an_event(str(n), role="ab"[n % 2]) for n in range(10)])
    assert [each.event.message for each in store.events(uid, after=7)] == ["7", "8", "9"]
    assert [each.event.message for each in store.events(uid, role="b", limit=2)] == ["1", "3"]


def test_events_of_a_commit_continue_the_count(store: Store):
    uid = add_run(store).uid
    store.add_events(uid, [an_event("planned")])
    old, lease = store.ledger(uid), take(store, uid)
    store.commit(uid, lease=lease, old=old, new=old, events=[an_event("a"), an_event("b")])
    store.add_events(uid, [an_event("cleaned up")])
    assert [(each.seq, each.event.message) for each in store.events(uid)] == [
        (1, "planned"),
        (2, "a"),
        (3, "b"),
        (4, "cleaned up"),
    ]


def test_requests_are_read_after_a_number(store: Store):
    uid = add_run(store).uid
    assert store.add_request(uid, "pause", reason="lunch", by="ann") == 1
    assert store.add_request(uid, "scale", role="worker", replicas=3) == 2
    first, second = store.requests(uid)
    assert (first.kind, first.reason, first.by, first.at) == ("pause", "lunch", "ann", START)
    assert (second.role, second.replicas) == ("worker", 3)
    assert store.requests(uid, after=1) == [second]
    assert store.requests(add_run(store, "other").uid) == []


@pytest.mark.parametrize("kind", ["events", "requests"])
def test_numbers_have_no_gaps_and_are_seen_in_order(kind: str, open_another: Callable[[], Store]):
    first = open_another()
    uid = add_run(first).uid
    writers = [open_another() for _ in range(4)]
    rounds = 15
    seen: list[int] = []
    over = threading.Event()

    def write(store: Store) -> None:
        for _ in range(rounds):
            if kind == "events":
                store.add_events(uid, [an_event()])
            else:
                store.add_request(uid, "pause")

    def follow() -> None:
        done = False
        while not done:
            done = over.is_set()  # one more look after the last write
            after = seen[-1] if seen else 0
            if kind == "events":
                seen.extend(each.seq for each in first.events(uid, after=after))
            else:
                seen.extend(each.id for each in first.requests(uid, after=after))

    follower = threading.Thread(target=follow)
    threads = [threading.Thread(target=write, args=(store,)) for store in writers]
    for thread in (follower, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    over.set()
    follower.join()
    assert seen == [*range(1, rounds * len(writers) + 1)]


def test_commits_and_others_share_one_count(open_another: Callable[[], Store]):
    store, other = open_another(), open_another()
    uid = add_run(store).uid
    lease = take(store, uid)
    old = store.ledger(uid)

    def add() -> None:
        for _ in range(20):
            other.add_events(uid, [an_event("other")])

    thread = threading.Thread(target=add)
    thread.start()
    for restarts in range(20):
        new = dataclasses.replace(
            old, instances={InstanceKey("worker", 0): worker(0, restarts=restarts)}
        )
        store.commit(uid, lease=lease, old=old, new=new, events=[an_event("mine")])
        old = new
    thread.join()
    assert [each.seq for each in store.events(uid)] == [*range(1, 41)]


def test_a_request_is_refused_that_is_about_another_state_of_the_run(store: Store):
    uid = add_run(store).uid
    seen = store.overviews([uid])[uid].mark
    store.add_request(uid, "activate", role="worker")  # as a task of Airflow does when it begins
    assert store.add_request(uid, "pause", seen=seen) == 2
    with pytest.raises(RunChanged):
        store.add_request(uid, "scale", role="worker", replicas=3, seen=seen)
    assert [each.kind for each in store.requests(uid)] == ["activate", "pause"]
    now = store.overviews([uid])[uid].mark
    assert store.add_request(uid, "resume", seen=now) == 3, "what was refused left no gap"


def test_a_request_about_an_earlier_epoch_is_refused(store: Store):
    uid = add_run(store).uid
    seen = store.overviews([uid])[uid].mark
    old, lease = store.ledger(uid), take(store, uid)
    new = dataclasses.replace(old, job=dataclasses.replace(old.job, epoch=1))
    store.commit(uid, lease=lease, old=old, new=new, events=())
    with pytest.raises(RunChanged):
        store.add_request(uid, "stop", seen=seen)


def test_the_same_key_again_adds_nothing(store: Store):
    uid = add_run(store).uid
    seen = store.overviews([uid])[uid].mark
    told = an_event("asked")
    assert store.add_request(uid, "pause", key="k", seen=seen, event=told) == 1
    assert store.add_request(uid, "pause", key="k", seen=seen, event=told) == 1
    assert store.add_request(uid, "pause", key="other") == 2
    assert store.add_request(uid, "pause") == store.add_request(uid, "pause") - 1
    assert len(store.events(uid)) == 1
    other = add_run(store, "other").uid
    assert store.add_request(other, "pause", key="k") == 1, "a key is a run's"


@pytest.mark.parametrize("keys", [["same"] * 6, list("abcdef")], ids=["retries", "users"])
def test_of_many_who_ask_at_once_one_is_heard(keys: list[str], open_another: Callable[[], Store]):
    first = open_another()
    uid = add_run(first).uid
    stores = [open_another() for _ in keys]
    for _ in range(10):
        seen = first.overviews([uid])[uid].mark
        answers: list[int | None] = []
        together = threading.Barrier(len(keys))

        def ask(
            store: Store,
            key: str,
            seen: RunMark = seen,
            answers: list[int | None] = answers,
            together: threading.Barrier = together,
        ) -> None:
            together.wait()
            try:
                answers.append(store.add_request(uid, "pause", seen=seen, key=f"{key}{seen}"))
            except RunChanged:
                answers.append(None)

        threads = [
            threading.Thread(target=ask, args=pair) for pair in zip(stores, keys, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        heard = [each for each in answers if each is not None]
        assert set(heard) == {seen.request + 1}
        assert len(heard) == (len(keys) if len(set(keys)) == 1 else 1)
    assert len(first.requests(uid)) == 10
