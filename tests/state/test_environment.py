"""What instances had around them is kept in few rows: the last ten, the exit, what saves name."""

from __future__ import annotations

import json

import pytest

from airflow_training.documents.instances import InstanceKey
from airflow_training.errors import InputError
from airflow_training.state.environment import digest_of
from airflow_training.state.store import Store
from tests.state.samples import add_run

KEY, OTHER = InstanceKey("worker", 0), InstanceKey("worker", 1)


def line(number: int, on: str = "interval", *, attempt: int = 0) -> str:
    return json.dumps({"at": 1000.0 + number, "on": on, "attempt": attempt})


def kept(store: Store, uid: str, key=KEY) -> list[str]:
    return [json.dumps(each.body) for each in store.environments.of_run(uid)[key]]


def test_the_last_ten_records_are_kept(store: Store):
    uid = add_run(store).uid
    for first in range(0, 25, 5):
        store.environments.save(uid, {KEY: [line(n) for n in range(first, first + 5)]})
    assert kept(store, uid) == [line(n) for n in range(15, 25)]
    assert [each.number for each in store.environments.of_run(uid)[KEY]] == [*range(16, 26)]


def test_what_is_told_again_is_kept_once(store: Store):
    uid = add_run(store).uid
    store.environments.save(uid, {KEY: [line(1), line(2)]})
    store.environments.save(uid, {KEY: [line(1), line(2), line(3)]})
    assert kept(store, uid) == [line(1), line(2), line(3)]


def test_the_newest_exit_outlives_the_next_attempts_records(store: Store):
    uid = add_run(store).uid
    store.environments.save(uid, {KEY: [line(1), line(2, "exit")]})
    store.environments.save(uid, {KEY: [line(n, attempt=1) for n in range(30)]})
    assert kept(store, uid) == [line(2, "exit"), *(line(n, attempt=1) for n in range(20, 30))]


def test_the_records_that_the_newest_saves_name_are_kept(store: Store):
    uid = add_run(store).uid
    for n in range(40):
        store.environments.save(uid, {KEY: [line(n)]})
        if n % 5 == 0 and n < 25:
            store.environments.name(uid, {KEY: digest_of(line(n))})
            store.environments.name(uid, {KEY: digest_of(line(n)), OTHER: "sha256:none"})
    assert kept(store, uid) == [line(10), line(15), line(20), *(line(n) for n in range(30, 40))]


def test_instances_do_not_mix(store: Store):
    uid = add_run(store).uid
    store.environments.save(uid, {KEY: [line(1)], OTHER: [line(1), line(2)]})
    assert kept(store, uid) == [line(1)]
    assert kept(store, uid, OTHER) == [line(1), line(2)]


def test_what_is_no_record_is_left_out(store: Store):
    uid = add_run(store).uid
    store.environments.save(uid, {KEY: ["", "[]", "{", "[" * 100_000, line(1)]})
    assert kept(store, uid) == [line(1)]


def test_the_last_two_records_are_those_of_every_instance(store: Store):
    uid = add_run(store).uid
    assert store.environments.last_two(uid) == {}
    lines = [*map(line, range(24)), line(24, "exit")]
    store.environments.save(uid, {KEY: lines[-15:], OTHER: [line(1)]})
    found = store.environments.last_two(uid)
    assert [json.dumps(each.body) for each in found[KEY]] == lines[-2:]
    assert [json.dumps(each.body) for each in found[OTHER]] == [line(1)]


def test_the_newest_software_stands_beside_the_records(store: Store):
    uid = add_run(store).uid
    old, new = (json.dumps({"on": "software", "python": each * 4000}) for each in ("3.10", "3.11"))
    too_long = json.dumps({"on": "software", "python": "3" * 30_000})
    records = [line(n) for n in range(1, 14)]
    store.environments.save(uid, {KEY: [old, *records[:3]]})
    store.environments.save(uid, {KEY: [new, *records[3:], too_long], OTHER: ["9" * 9000]})
    assert store.environments.software(uid) == {KEY: json.loads(new)}
    assert kept(store, uid) == records[-10:]
    assert [each.number for each in store.environments.of_run(uid)[KEY]] == [*range(4, 14)]


def test_an_unknown_run_is_refused(store: Store):
    with pytest.raises(InputError):
        store.environments.save("nobody", {KEY: [line(1)]})


def test_snapshots_of_subtasks_are_replaced_by_group(store: Store):
    uid = add_run(store).uid
    assert store.subtasks.of_run(uid) == {}
    store.subtasks.save(uid, {"": {"world": 2}, "worker-0": {"world": 1}})
    store.subtasks.save(uid, {"": {"world": 3}})
    assert store.subtasks.of_run(uid) == {"": {"world": 3}, "worker-0": {"world": 1}}


def test_ends_are_told_once_and_newest_records_for_whom_they_are_wanted(store: Store):
    uid = add_run(store).uid
    store.environments.save(uid, {KEY: [line(1), line(2, "exit"), line(3)], OTHER: [line(4)]})
    (end,) = store.environments.ends(uid, known={}).values()
    assert json.dumps(end.body) == line(2, "exit")
    assert store.environments.ends(uid, known={KEY: end.digest}) == {}
    store.environments.save(uid, {KEY: [line(5, "exit")]})
    assert [*store.environments.ends(uid, known={KEY: end.digest})] == [KEY]
    found = store.environments.newest(uid, {OTHER})
    assert [(key, json.dumps(each.body)) for key, each in found.items()] == [(OTHER, line(4))]
    assert store.environments.newest(uid, ()) == {}


def used(number: int, seconds: float) -> str:
    """Return the record of an instance that has used so much processor time, two a minute."""
    about = {"at": 60.0 + 30.0 * number, "on": "interval", "number": number}
    return json.dumps({**about, "cgroup": "own", "cpu": {"used_seconds": seconds}})


@pytest.mark.parametrize(("at_once", "told"), [(1, [*range(2, 24, 2)]), (3, [2, 8, 14, 20])])
def test_what_instances_use_is_counted_from_the_record_before_wherever_that_is_kept(
    store: Store, at_once: int, told: list[int]
):
    """Of each minute the first record counts, where it comes last."""
    uid = add_run(store).uid
    paces = {KEY: 0.5, OTHER: 2.0, InstanceKey("ps", 0): 1.0}
    lines = {key: [used(n, 30.0 * n * pace) for n in range(24)] for key, pace in paces.items()}
    store.environments.save(uid, {OTHER: [line(-60)]})  # its records lie one place further
    for first in range(0, 24, at_once):
        fresh = {key: each[first : first + at_once] for key, each in lines.items()}
        store.environments.save(uid, fresh)
        store.environments.save(uid, fresh)
    found = store.metrics.series(uid, name="system/cpu_cores")
    assert {InstanceKey(each.role, each.index): each.value for each in found} == paces
    assert {each.at for each in found} == {60.0 + 30.0 * n for n in told}
