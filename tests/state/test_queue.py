"""Priority, then first come; what holds a run back, and what does not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

import pytest
from sqlalchemy import select

from airflow_training.state.models import QueueRow
from airflow_training.state.queue import PATIENCE_SECONDS
from airflow_training.state.store import Store
from tests.state.samples import START, Clock, add_run, end_run, take


def ask(
    store: Store,
    uid: str,
    *,
    slots: int = 1,
    runtime: str = "local",
    wants: Mapping[str, float] | None = None,
    free: Mapping[str, float] | None = None,
    preempts: bool = False,
) -> bool:
    return store.queue.try_start(
        uid, max_running_jobs=slots, runtime=runtime, wants=wants, free=free, preempts=preempts
    )


def queue_up(store: Store, **priorities: int) -> Mapping[str, str]:
    """Add runs in this order; return name -> uid."""
    return {name: add_run(store, name, priority=p).uid for name, p in priorities.items()}


def set_state(store: Store, uid: str, state: str) -> None:
    end_run(store, uid, state=state, at=START, drained=False)


@pytest.mark.parametrize(
    ("priorities", "order"),
    [
        pytest.param({"a": 0, "b": 0, "c": 0}, "abc", id="first-come"),
        pytest.param({"a": 0, "b": 5, "c": 1}, "bca", id="higher-first"),
        pytest.param({"a": -1, "b": 0, "c": 0}, "bca", id="below-the-default"),
        pytest.param({"a": 2, "b": 7, "c": 7, "d": 2}, "bcad", id="first-come-among-equals"),
    ],
)
def test_runs_start_by_priority_then_first_come(
    store: Store, priorities: Mapping[str, int], order: Sequence[str]
):
    uids = queue_up(store, **priorities)
    started: list[str] = []
    while len(started) < len(uids):
        allowed = [name for name in uids if name not in started and ask(store, uids[name])]
        assert len(allowed) == 1
        started += allowed
        end_run(store, uids[allowed[0]], at=START)
    assert started == [*order]


@pytest.mark.parametrize(
    ("slots", "started"),
    [
        pytest.param(0, "abc", id="no-limit"),
        pytest.param(2, "ab", id="two"),
        pytest.param(9, "abc", id="more-than-runs"),
    ],
)
def test_at_most_so_many_jobs_run(store: Store, slots: int, started: Sequence[str]):
    uids = queue_up(store, a=0, b=0, c=0)
    assert [name for name in "cba" if ask(store, uids[name], slots=slots)] != []
    assert [name for name in "abc" if ask(store, uids[name], slots=slots)] == [*started]


def test_asking_again_after_the_start_is_a_yes(store: Store):
    uids = queue_up(store, a=0, b=9)
    assert ask(store, uids["b"])
    assert ask(store, uids["b"])
    assert not ask(store, uids["a"])


def test_a_run_that_never_queued_starts_at_once(store: Store):
    queue_up(store, a=0)
    record = add_run(store, "first")
    direct = store.create_run(
        record.key.__class__(source="cli", run_id="direct"),
        store.job(record.uid),
        store.ledger(record.uid),
        controller="here",
        queue=False,
    )
    assert not direct.queued
    assert ask(store, direct.uid)


def test_a_run_whose_holder_died_still_takes_its_place(store: Store, clock: Clock):
    uids = queue_up(store, a=0, b=0)
    assert ask(store, uids["a"])
    store.acquire(uids["a"], owner="dies now")
    clock.advance(100_000)
    assert not ask(store, uids["b"])
    end_run(store, uids["a"], at=clock.now, drained=False)
    assert not ask(store, uids["b"])  # over, but something of it may be alive
    end_run(store, uids["a"], at=clock.now)
    assert ask(store, uids["b"])


def test_a_run_that_was_removed_frees_its_place(store: Store):
    uids = queue_up(store, a=0, b=0)
    assert ask(store, uids["a"])
    end_run(store, uids["a"], state="Stopped", at=START, drained=False)
    assert not ask(store, uids["b"])
    store.tombstone(uids["a"], reason="removed")
    assert ask(store, uids["b"])


def test_a_run_nobody_waits_for_holds_nobody_back_but_keeps_its_number(store: Store, clock: Clock):
    uids = queue_up(store, a=0, b=0, c=0)
    clock.advance(PATIENCE_SECONDS + 1)  # who enqueued a is gone
    assert ask(store, uids["b"])
    assert not ask(store, uids["a"])
    end_run(store, uids["b"], at=START)
    assert not ask(store, uids["c"])  # a has asked again, and is still before c
    assert ask(store, uids["a"])


def test_a_killed_run_never_starts_and_holds_nobody_back(store: Store):
    uids = queue_up(store, a=0, b=0)
    store.tombstone(uids["a"], reason="killed by ann")
    record = store.run(uids["a"])
    assert record is not None
    assert (record.tombstone, record.tombstone_reason, record.queued) == (
        True,
        "killed by ann",
        False,
    )
    assert not ask(store, uids["a"], slots=0)
    assert ask(store, uids["b"])


def test_a_reopened_run_queues_again_behind_the_others(store: Store):
    uids = queue_up(store, a=0, b=0)
    assert ask(store, uids["a"])
    end_run(store, uids["a"], at=START)
    store.tombstone(uids["a"], reason="removed")
    store.requeue(uids["a"])
    set_state(store, uids["a"], "Queued")  # the new epoch
    record = store.run(uids["a"])
    assert record is not None
    assert record.queued
    assert not ask(store, uids["a"])
    assert ask(store, uids["b"])
    end_run(store, uids["b"], at=START)
    assert ask(store, uids["a"])


def test_requeueing_a_run_that_waits_changes_nothing(store: Store):
    uids = queue_up(store, a=0, b=0)
    store.requeue(uids["a"])
    assert not ask(store, uids["b"])
    assert ask(store, uids["a"])


MACHINE = {"cpu": 8.0, "memory": 100.0}


@pytest.mark.parametrize(
    ("starting", "ahead", "mine", "starts"),
    [
        pytest.param([], [], {"cpu": 8}, True, id="alone"),
        pytest.param([{"cpu": 4}], [], {"cpu": 4}, True, id="beside-another"),
        pytest.param([{"cpu": 5}], [], {"cpu": 4}, False, id="too-little-left"),
        pytest.param([{"cpu": 1}], [], {"cpu": 1, "memory": 101}, False, id="each-resource"),
        pytest.param([{"cpu": 5}], [{"cpu": 8}], {"cpu": 1}, False, id="small-one-never-overtakes"),
        pytest.param([{"cpu": 7}], [{"cpu": 2}], {}, True, id="wants-nothing"),
        pytest.param([{"cpu": 7}], [{"cpu": 2}], {"gpu": 1}, True, id="not-counted-here"),
        pytest.param([{"memory": 60}], [{"memory": 50}], {"cpu": 1}, True, id="another-resource"),
    ],
)
def test_what_others_claim_of_the_machine_holds_back(
    store: Store,
    starting: Sequence[Mapping[str, float]],
    ahead: Sequence[Mapping[str, float]],
    mine: Mapping[str, float],
    starts: bool,
):
    for number, wants in enumerate(starting):
        uid = add_run(store, f"starting-{number}").uid
        assert ask(store, uid, slots=0, wants=wants, free=MACHINE)
    for number, wants in enumerate(ahead):
        uid = add_run(store, f"ahead-{number}").uid
        assert not ask(store, uid, slots=0, wants=wants, free=MACHINE)
    uid = add_run(store, "mine").uid
    assert ask(store, uid, slots=0, wants=mine, free=MACHINE) is starts


@pytest.mark.parametrize(
    ("state", "counted"),
    [
        pytest.param("Queued", True, id="just-started"),
        pytest.param("Starting", True, id="not-complete"),
        pytest.param("Running", False, id="seen-by-the-runtime"),
        pytest.param("Restarting", True, id="comes-back"),
        pytest.param("Paused", True, id="will-be-resumed"),
    ],
)
def test_what_the_runtime_sees_itself_is_not_counted_twice(store: Store, state: str, counted: bool):
    uids = queue_up(store, a=0, b=0)
    assert ask(store, uids["a"], slots=0, wants={"cpu": 4}, free=MACHINE)
    set_state(store, uids["a"], state)
    assert ask(store, uids["b"], slots=0, wants={"cpu": 5}, free=MACHINE) is not counted
    assert not ask(store, add_run(store, "c").uid, slots=0, wants={"cpu": 5}, free={"cpu": 4.0})


def test_a_run_ahead_that_has_not_said_what_it_wants_is_waited_for(store: Store):
    uids = queue_up(store, a=0, b=0)
    assert not ask(store, uids["b"], slots=0, wants={"cpu": 1}, free=MACHINE)
    assert ask(store, uids["a"], slots=0, wants={"cpu": 7}, free=MACHINE)
    assert ask(store, uids["b"], slots=0, wants={"cpu": 1}, free=MACHINE)


def test_another_runtime_takes_nothing_of_this_machine(store: Store):
    uids = queue_up(store, a=0, b=0)
    assert ask(store, uids["a"], slots=0, runtime="kubernetes", wants={"cpu": 99}, free=None)
    assert ask(store, uids["b"], slots=0, wants={"cpu": 8}, free=MACHINE)


def test_many_who_ask_at_once_never_share_a_place(open_another: Callable[[], Store]):
    first = open_another()
    uids = [add_run(first, f"run-{number}").uid for number in range(8)]
    stores = [open_another() for _ in uids]
    together = threading.Barrier(len(uids))
    started: list[str] = []

    def poll(store: Store, uid: str) -> None:
        together.wait()
        for _ in range(6):
            if ask(store, uid, slots=3):
                started.append(uid)
                return

    threads = [threading.Thread(target=poll, args=pair) for pair in zip(stores, uids, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(started) <= set(uids[:3])  # never one that is behind, never more than three
    assert sum(ask(first, uid, slots=3) for uid in uids) == 3


def test_many_who_come_at_once_get_a_number_each(open_another: Callable[[], Store]):
    stores = [open_another() for _ in range(8)]
    together = threading.Barrier(len(stores))

    def come(number: int) -> None:
        together.wait()
        for turn in range(3):
            add_run(stores[number], f"run-{number}-{turn}")

    threads = [threading.Thread(target=come, args=(number,)) for number in range(len(stores))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with stores[0]._db.read() as connection:
        tickets = sorted(connection.execute(select(QueueRow.ticket)).scalars())
    assert tickets == [*range(1, 25)]


def started(store: Store, **priorities: int) -> Mapping[str, str]:
    """Runs that run, started in this order; name -> uid."""
    uids = {}
    for name, priority in priorities.items():
        uids[name] = add_run(store, name, priority=priority).uid
        assert ask(store, uids[name], slots=0)
        set_state(store, uids[name], "Running")
    return uids


def asked_to_leave(store: Store, uids: Mapping[str, str]) -> Sequence[str]:
    return [
        name
        for name, uid in uids.items()
        for request in store.requests(uid)
        if request.kind == "preempt"
    ]


@pytest.mark.parametrize(
    ("running", "slots", "preempted"),
    [
        pytest.param({"a": 0}, 1, "a", id="the-only-one"),
        pytest.param({"a": 5, "b": 0, "c": 3}, 3, "b", id="the-lowest"),
        pytest.param({"a": 0, "b": 0}, 2, "b", id="the-latest-of-equals"),
        pytest.param({"a": 10, "b": 11}, 2, "", id="none-of-its-own-priority"),
        pytest.param({"a": 0, "b": 11}, 1, "", id="not-where-it-is-not-enough"),
        pytest.param({"a": 0, "b": 1, "c": 2}, 2, "ab", id="as-many-as-are-needed"),
        pytest.param({"a": 0}, 2, "", id="not-where-there-is-room"),
    ],
)
def test_the_first_in_line_asks_lower_ones_for_their_places(
    store: Store, running: Mapping[str, int], slots: int, preempted: str
):
    uids = started(store, **running)
    high = add_run(store, "high", priority=10).uid
    there_is_room = len(running) < slots
    for _ in range(3):  # asked once, however often it tries
        assert ask(store, high, slots=slots, preempts=True) is there_is_room
    assert asked_to_leave(store, uids) == [*preempted]
    if preempted:
        reason = store.requests(uids[preempted[0]])[0].reason
        assert reason == "makes room for run high, whose priority is 10"


@pytest.mark.parametrize(
    ("ago", "preempted"),
    [pytest.param(5, [], id="it-ends"), pytest.param(90, ["b"], id="it-does-not-end")],
)
def test_nobody_is_asked_while_another_run_ends(store: Store, ago: float, preempted: list[str]):
    uids = started(store, a=0, b=0)
    end_run(store, uids["a"], at=store.now() - ago, drained=False)
    high = add_run(store, "high", priority=10).uid
    assert not ask(store, high, slots=2, preempts=True)
    assert asked_to_leave(store, uids) == preempted


def test_without_its_policy_nobody_is_asked(store: Store):
    uids = started(store, a=0)
    assert not ask(store, add_run(store, "high", priority=10).uid)
    assert asked_to_leave(store, uids) == []


def test_who_is_not_first_in_line_asks_nobody(store: Store):
    uids = started(store, a=0)
    assert not ask(store, add_run(store, "first", priority=20).uid)
    assert not ask(store, add_run(store, "high", priority=10).uid, preempts=True)
    assert asked_to_leave(store, uids) == []


@pytest.mark.parametrize("state", ["Paused", "Succeeded"])
def test_a_run_without_instances_of_its_own_keeps_its_place(store: Store, state: str):
    uids = started(store, a=0)
    set_state(store, uids["a"], state)
    assert not ask(store, add_run(store, "high", priority=10).uid, preempts=True)
    assert asked_to_leave(store, uids) == []


@pytest.mark.parametrize(
    ("has", "wants", "preempted"),
    [
        pytest.param({"a": 2, "b": 6}, 6, "b", id="one-that-is-enough"),
        pytest.param({"a": 2, "b": 6}, 2, "b", id="the-latest"),
        pytest.param({"a": 2, "b": 2}, 8, "ab", id="all"),
        pytest.param({"a": 4, "b": 4}, 9, "", id="not-where-it-is-not-enough"),
    ],
)
def test_lower_ones_make_room_on_the_machine(
    store: Store, has: Mapping[str, float], wants: float, preempted: str
):
    uids = {}
    for name, cpus in has.items():
        uids[name] = add_run(store, name).uid
        assert ask(store, uids[name], slots=0, wants={"cpu": cpus}, free=MACHINE)
        set_state(store, uids[name], "Running")
    free = {"cpu": 8.0 - sum(has.values())}
    high = add_run(store, "high", priority=1).uid
    for _ in range(2):
        assert not ask(store, high, slots=0, wants={"cpu": wants}, free=free, preempts=True)
    assert asked_to_leave(store, uids) == [*preempted]
    for name in preempted:  # it ends, and something of it is still seen
        end_run(store, uids[name], state="Paused", at=START, drained=False, reason="QueuePreempted")
    assert not ask(store, high, slots=0, wants={"cpu": wants}, free=free, preempts=True)
    assert asked_to_leave(store, uids) == [*preempted]


def test_who_gives_its_place_up_waits_under_its_old_number(store: Store):
    uids = started(store, a=0)
    behind, high = (add_run(store, name, priority=p).uid for name, p in (("b", 0), ("high", 10)))
    assert not ask(store, high, preempts=True)
    lease = take(store, uids["a"])
    assert not store.queue.give_up(uids["a"], generation=lease.generation - 1)
    assert not ask(store, high, preempts=True)
    assert store.queue.give_up(uids["a"], generation=lease.generation)
    assert not ask(store, uids["a"])
    assert ask(store, high, preempts=True)
    end_run(store, high, at=START)
    assert not ask(store, behind)
    assert ask(store, uids["a"])
