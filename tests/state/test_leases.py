"""One holder at a time; what a former holder writes is refused as a whole."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import create_engine, select

from airflow_training.documents.instances import InstanceKey
from airflow_training.errors import InputError, LeaseLost
from airflow_training.state.models import Base
from airflow_training.state.store import Lease, Store, upgrade
from tests.examples import examples
from tests.state.samples import START, Clock, a_ledger, add_run, an_event, take, worker


def everything(url: str) -> dict[str, list[tuple[object, ...]]]:
    """Return all rows of all tables."""
    engine = create_engine(url)
    with engine.connect() as connection:
        rows = {
            table.name: sorted(map(tuple, connection.execute(select(table))), key=repr)
            for table in Base.metadata.sorted_tables
        }
    engine.dispose()
    return rows


def test_a_lease_is_refused_while_another_holds_it(store: Store, clock: Clock):
    uid = add_run(store).uid
    first = take(store, uid, "a")
    assert first == Lease(run=uid, owner="a", generation=1, expires_at=START + 15)
    clock.advance(14.9)
    assert store.acquire(uid, owner="b") is None
    clock.advance(0.2)
    assert take(store, uid, "b").generation == 2


def test_a_renewed_lease_holds_longer(store: Store, clock: Clock):
    uid = add_run(store).uid
    lease = take(store, uid, "a")
    clock.advance(10)
    (renewed,) = store.renew_all([lease])
    assert renewed is not None
    assert renewed.expires_at == START + 25
    clock.advance(10)
    assert store.acquire(uid, owner="b") is None


def test_an_overdue_lease_that_nobody_took_can_be_renewed(store: Store, clock: Clock):
    uid = add_run(store).uid
    lease = take(store, uid, "a")
    clock.advance(100)
    (renewed,) = store.renew_all([lease])
    assert renewed is not None
    assert renewed.generation == lease.generation


def test_a_dead_owner_is_replaced_at_once(store: Store):
    uid = add_run(store).uid
    take(store, uid, "dead")
    assert store.acquire(uid, owner="b", dead_owners=["somebody else"]) is None
    taken = store.acquire(uid, owner="b", dead_owners=["dead"])
    assert taken is not None
    assert taken.generation == 2


def test_a_released_lease_is_free_at_once_and_its_generation_is_used_up(store: Store):
    uid = add_run(store).uid
    store.release(take(store, uid, "a"))
    assert store.lease(uid) is None
    assert take(store, uid, "b").generation == 2


def test_releasing_a_lost_lease_says_and_does_nothing(store: Store, clock: Clock):
    uid = add_run(store).uid
    old = take(store, uid, "a")
    clock.advance(20)
    new = take(store, uid, "b")
    store.release(old)
    assert store.lease(uid) == new


def test_many_leases_are_renewed_at_once_and_lost_ones_are_told_apart(store: Store, clock: Clock):
    uids = [add_run(store, f"run-{number}").uid for number in range(3)]
    held = [take(store, uid, "a") for uid in uids]
    clock.advance(20)
    take(store, uids[1], "b")
    renewed = store.renew_all(held)
    assert [None if lease is None else lease.generation for lease in renewed] == [1, None, 1]


def test_a_run_that_does_not_exist_cannot_be_leased(store: Store):
    with pytest.raises(InputError, match="no run is called 'nothing'"):
        store.acquire("nothing", owner="a")


def test_a_former_holder_writes_nothing(store: Store, url: str, clock: Clock):
    uid = add_run(store).uid
    stalled = take(store, uid, "a")
    old = store.ledger(uid)
    clock.advance(20)
    take(store, uid, "b")
    before = everything(url)
    new = a_ledger(worker(0, attempt=1, started_at=START, address_live=True, address="h:1"))
    new = dataclasses.replace(
        new, job=dataclasses.replace(new.job, state="Succeeded", drained=True)
    )
    with pytest.raises(LeaseLost):
        store.commit(uid, lease=stalled, old=old, new=new, events=[an_event()], resources={})
    with pytest.raises(LeaseLost):
        store.replace_job(uid, store.job(uid), new, generation=stalled.generation)
    assert store.renew_all([stalled]) == [None]
    assert everything(url) == before


def test_of_many_who_want_a_lease_one_gets_it(open_another: Callable[[], Store]):
    uid = add_run(open_another()).uid
    stores = [open_another() for _ in range(6)]
    together = threading.Barrier(len(stores))
    won: list[Lease] = []

    def grab(number: int) -> None:
        together.wait()
        lease = stores[number].acquire(uid, owner=f"owner-{number}")
        if lease is not None:
            won.append(lease)

    threads = [threading.Thread(target=grab, args=(number,)) for number in range(len(stores))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [lease.generation for lease in won] == [1]


class TwoOwners(RuleBasedStateMachine):
    """Two owners take, renew, release and write while the clock moves as it likes."""

    owners = st.sampled_from(["a", "b"])

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.held: dict[str, Lease] = {}
        self.holder: str | None = None
        self.generation = 0
        self.written = 0
        self.store: Store | None = None

    @initialize()
    def open(self) -> None:
        self.store = Store(self.database, clock=self.clock)
        # unique within the shared file: one run per example
        type(self).runs += 1
        self.uid = add_run(self.store, f"run-{self.runs}").uid
        self.ledger = self.store.ledger(self.uid)

    database = ""
    runs = 0

    @rule(seconds=st.floats(min_value=-20, max_value=40))
    def move_clock(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(owner=owners, dead=st.booleans())
    def acquire(self, owner: str, dead: bool) -> None:
        assert self.store is not None
        other = "b" if owner == "a" else "a"
        stored = self.store.lease(self.uid)
        free = stored is None or stored.owner == owner or stored.expires_at <= self.clock.now
        lease = self.store.acquire(self.uid, owner=owner, dead_owners=[other] if dead else [])
        assert (lease is not None) == (free or dead)
        if lease is not None:
            assert lease.generation == self.generation + 1
            self.generation = lease.generation
            self.held[owner], self.holder = lease, owner

    @rule(owner=owners)
    def renew(self, owner: str) -> None:
        assert self.store is not None
        if owner not in self.held:
            return
        (renewed,) = self.store.renew_all([self.held[owner]])
        assert (renewed is not None) == (owner == self.holder)
        if renewed is not None:
            self.held[owner] = renewed
            assert renewed.expires_at == self.clock.now + 15

    @rule(owner=owners)
    def release(self, owner: str) -> None:
        assert self.store is not None
        if owner in self.held:
            self.store.release(self.held.pop(owner))
            self.holder = None if owner == self.holder else self.holder

    @rule(owner=owners)
    def write(self, owner: str) -> None:
        assert self.store is not None
        if owner not in self.held:
            return
        new = dataclasses.replace(
            self.ledger, instances={InstanceKey("worker", 0): worker(0, restarts=self.written + 1)}
        )
        events = [an_event(str(self.written + 1))]
        if owner == self.holder:
            self.store.commit(
                self.uid, lease=self.held[owner], old=self.ledger, new=new, events=events
            )
            self.ledger, self.written = new, self.written + 1
        else:
            with pytest.raises(LeaseLost):
                self.store.commit(
                    self.uid, lease=self.held[owner], old=self.ledger, new=new, events=events
                )

    @invariant()
    def only_the_holder_wrote(self) -> None:
        if self.store is None:
            return
        assert self.store.ledger(self.uid).instances == self.ledger.instances
        assert [each.seq for each in self.store.events(self.uid)] == [*range(1, self.written + 1)]

    def teardown(self) -> None:
        if self.store is not None:
            self.store.close()


def test_two_owners_never_both_write(tmp_path: Path):
    class OnFile(TwoOwners):
        database = f"sqlite:///{tmp_path}/store.db"

    upgrade(OnFile.database)
    run_state_machine_as_test(
        OnFile,
        settings=settings(
            max_examples=examples(40),
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=[*HealthCheck],
        ),
    )
