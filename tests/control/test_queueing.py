"""Who makes room for a run of a higher priority: a choice over data, with no store."""

from collections.abc import Mapping, Sequence, Set
from typing import Any

import pytest

from airflow_training.control.queueing import QueueEntry, StartClaim, choose_preempted


def entry(name: str, *, priority: int = 0, number: int = 1, **more: Any) -> QueueEntry:
    fields = {"runtime": "local", "wants": {"cpu": 2.0}, "state": "Running", **more}
    return QueueEntry(
        uid=name, priority=priority, ticket=number, started_at=float(number), **fields
    )


def claim(*, slots: int = 0, cpus: float = 4.0, free: float | None = 0.0) -> StartClaim:
    return StartClaim(
        priority=10,
        slots=slots,
        ahead=(),
        runtime="local",
        wants={"cpu": cpus},
        free=None if free is None else {"cpu": free},
    )


A, B, C = (entry(name, number=number) for number, name in enumerate("abc", 1))
ELSEWHERE = entry("far", runtime="kubernetes")


def chosen(
    wanted: StartClaim,
    running: Sequence[QueueEntry],
    *,
    leaving: Set[str] = frozenset(),
    finishing: Set[str] = frozenset(),
) -> str:
    found = choose_preempted(wanted, running, leaving=leaving, finishing=finishing)
    return "".join(run.uid for run in found)


@pytest.mark.parametrize(
    ("running", "known", "expected"),
    [
        pytest.param([A, B, C], {}, "cb", id="the-latest"),
        pytest.param([A, B, C], {"leaving": {"c"}}, "b", id="one-is-leaving"),
        pytest.param([A, B, C], {"leaving": {"b", "c"}}, "", id="enough-are-leaving"),
        pytest.param([A, B, C], {"finishing": {"c"}}, "b", id="one-ends-by-itself"),
        pytest.param([A, B, C], {"finishing": {"a", "c"}}, "", id="enough-end-by-themselves"),
        pytest.param([A, ELSEWHERE], {}, "", id="another-machine-makes-no-room"),
        pytest.param([A, entry("x", wants={"cpu": 4.0})], {}, "x", id="one-that-is-enough-alone"),
        pytest.param(
            [A, B, entry("p", state="Paused", wants={})], {}, "ba", id="who-is-paused-stays"
        ),
        pytest.param([A, entry("s", state="Starting")], {}, "", id="what-starts-frees-nothing"),
    ],
)
def test_as_few_as_are_enough_make_room(
    running: Sequence[QueueEntry], known: Mapping[str, Set[str]], expected: str
):
    assert chosen(claim(), running, **known) == expected


def test_what_those_that_start_will_take_is_not_free():
    waits = claim(cpus=3.0, free=4.0)
    assert waits.is_met([A])
    assert not waits.is_met([entry("s", state="Starting")])


def test_who_has_not_said_what_it_wants_is_waited_for():
    assert not claim(cpus=1.0, free=4.0).is_met([entry("s", state="Starting", wants=None)])


def test_what_is_not_counted_holds_nothing_back():
    assert claim(free=None).is_met([A])
    assert not claim(slots=1, free=None).is_met([A])
