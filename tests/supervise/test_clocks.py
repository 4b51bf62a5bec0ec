"""Every clock of a run against every state of an instance: it runs for its own cause, and stands for all others.

Over the memory runtime, on a simulated clock: `a` is in one state for minutes, `b` waits for it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from typing import Any

import pytest

from airflow_training.control import reasons
from airflow_training.control.clocks import (
    DEADLINE,
    DEPENDENCY,
    SCHEDULE,
    STANDINGS,
    UNKNOWN,
    Standing,
    StateClock,
)
from airflow_training.control.model import Ledger
from airflow_training.control.rollup import trained_seconds
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.runtimes.clock import VirtualClock
from airflow_training.runtimes.faults import Behaviour, Fault, Script
from airflow_training.runtimes.memory import MemoryRuntime
from airflow_training.supervise.loop import Supervisor
from tests.builders import after, job, role
from tests.supervise.conftest import Stage

LONG, LIMIT, NEVER = 250.0, 100.0, 1e6
SHORT = {"ready_seconds": 5.0, "run_seconds": 30.0}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Situation:
    """How `a` comes to be in a state for minutes."""

    standing: Standing
    behaves: dict[str, float] = dataclasses.field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Of the job."""
    hangs_after: float | None = None
    """When one that waits for `a` waits no more, where it still runs long after: from then on it may hang."""


def killed(**fields: Any) -> Fault:
    return Fault(kind="kill", role="a", index=0, attempt=0, exit_code=1, **fields)


SITUATIONS = {
    "queued": Situation(standing="queued"),
    "paused": Situation(standing="paused", facts={"suspend": True}),
    "refused-by-a-quota": Situation(
        standing="notCreated",
        faults=(Fault(kind="refuse", role="a", at=0, seconds=LONG),),
        hangs_after=LONG,  # it gave its place back meanwhile, and has begun anew
    ),
    "no-place": Situation(standing="noPlace", behaves={"place_seconds": LONG}),
    "placed-but-its-image-is-slow": Situation(standing="starting", behaves={"start_seconds": LONG}),
    "depends-itself": Situation(standing="waiting"),
    "in-back-off": Situation(
        standing="backingOff", faults=(killed(after=1),), facts={"backoff_initial_seconds": LONG}
    ),
    "its-old-instance-ends": Situation(
        standing="oldEnding",
        behaves={"stop_seconds": LONG, "run_seconds": NEVER},
        # the second attempt ends by itself, the first only when it is told to
        faults=(
            killed(after=1),
            Fault(kind="kill", role="a", attempt=1, after=30, exit_code=0),
        ),
        facts={"grace_seconds": LONG},
    ),
    "runs": Situation(
        standing="running",
        behaves={"ready_seconds": LONG, "run_seconds": LONG + 100},
        hangs_after=0.0,
    ),
    "not-heard-from": Situation(
        standing="unknown",
        behaves={"run_seconds": LONG + 100},
        faults=(Fault(kind="lose", role="a", after=1, seconds=LONG),),
    ),
}
ENDS: dict[StateClock, tuple[str, str, str]] = {
    # reason of the end, words of its message, id of its root cause
    DEADLINE: (reasons.DEADLINE_EXCEEDED, "activeDeadlineSeconds 100", "time-limit"),
    DEPENDENCY: (reasons.DEPENDENCY_TIMEOUT, "a was running for 100 s", "dependency-timeout"),
    SCHEDULE: (reasons.SCHEDULE_TIMEOUT, "within 100 s", "unschedulable"),
    UNKNOWN: (reasons.MAX_RESTARTS_EXCEEDED, "unknown for 100 s", "node-lost"),
}
FIELDS: dict[StateClock, str] = {
    DEADLINE: "active_deadline_seconds",
    DEPENDENCY: "timeout_seconds",
    SCHEDULE: "schedule_timeout_seconds",
    UNKNOWN: "unknown_seconds",
}


def job_in(situation: Situation, limits: dict[str, float]) -> ResolvedJob:
    limits = {**dict.fromkeys(FIELDS.values(), NEVER), **limits}
    needs = after("a", "Ready", timeout_seconds=limits.pop("timeout_seconds"))
    own = [after("c", "Ready", timeout_seconds=NEVER)] if situation.standing == "waiting" else []
    roles = [
        role("a", 2, *own),
        role("b", 1, needs),
        *([role("c", tracked=False)] if own else []),
    ]
    kills = sum(bool(each.exit_code) for each in situation.faults)
    facts = {"scope": "Job", "runtime": "memory", "max_restarts": kills, **situation.facts}
    return job(*roles, **facts, **limits)


def script_of(situation: Situation) -> Script:
    a: dict[str, Any] = {**SHORT, **situation.behaves}
    quick = Behaviour(run_seconds=20.0)
    slow = Behaviour(ready_seconds=LONG, run_seconds=None)
    first = Behaviour(run_seconds=LONG)
    survivor = Behaviour(run_seconds=LONG + 50)
    roles = {"a": Behaviour(**a), "b": quick, "c": slow, "first": first, "s": survivor}
    return Script(roles=roles, faults=situation.faults)


def drive(stage: Stage, spec: ResolvedJob, situation: Situation) -> tuple[str, float]:
    """Drive a run to its end; return its uid, and when it began."""
    clock = VirtualClock(time.time())
    stage.runtime = MemoryRuntime(script=script_of(situation), clock=clock)

    def begin(uid: str) -> Supervisor:
        return stage.supervisor(uid, clock=clock, max_running_jobs=1)

    async def run() -> str:
        if situation.standing != "queued":
            uid = stage.launch(spec)

            def resume() -> None:
                stage.store.add_request(uid, "resume")

            if situation.standing == "paused":
                clock.call_at(clock.now() + LONG, resume)
            await begin(uid).run()
            return uid
        first = job(role("first"), name="first", runtime="memory")
        before = asyncio.ensure_future(begin(stage.launch(first, run_id="first")).run())
        uid = stage.launch(spec)
        await asyncio.gather(before, begin(uid).run())
        return uid

    began = clock.now()
    return clock.run(run()), began


@pytest.mark.parametrize("clock", FIELDS, ids=lambda clock: clock.name)
@pytest.mark.parametrize("name", SITUATIONS)
def test_a_clock_runs_only_for_its_own_cause(stage, clock, name):
    situation = SITUATIONS[name]
    spec = job_in(situation, {FIELDS[clock]: LIMIT})
    uid, began = drive(stage, spec, situation)
    ended = stage.store.ledger(uid).job
    if situation.standing not in clock.counts:
        assert (ended.state, ended.root_cause) == ("Succeeded", None), ended.message
        assert ended.finished_at > began + LONG
        return
    reason, words, cause = ENDS[clock]
    assert (ended.state, ended.reason) == ("Failed", reason)
    assert words in ended.message
    assert ended.root_cause is not None
    assert ended.root_cause.id == cause
    assert ended.root_cause.at == pytest.approx(began + LIMIT, abs=10)
    if clock is SCHEDULE:
        assert STANDINGS[situation.standing] in ended.message


FOREVER = {
    # a state that outlasts every limit, and the clock that counts it
    "not-heard-from": {"run_seconds": NEVER},
    "refused-by-a-quota": {},
    "no-place": {"place_seconds": NEVER},
    "runs": {"ready_seconds": NEVER, "run_seconds": NEVER},
}


@pytest.mark.parametrize(
    ("name", "clock"),
    [
        ("not-heard-from", UNKNOWN),
        ("refused-by-a-quota", SCHEDULE),
        ("no-place", SCHEDULE),
        ("runs", DEPENDENCY),
        ("runs", DEADLINE),
    ],
    ids=lambda each: each if isinstance(each, str) else each.name,
)
def test_what_a_clock_does_while_the_runtime_does_not_answer(stage, name, clock):
    outage = Fault(kind="unreachable", at=20, seconds=LONG)
    situation = SITUATIONS[name]
    faults = tuple(dataclasses.replace(each, seconds=NEVER) for each in situation.faults)
    situation = dataclasses.replace(
        situation, faults=(*faults, outage), behaves=situation.behaves | FOREVER[name]
    )
    spec = job_in(situation, {FIELDS[clock]: LIMIT})
    uid, began = drive(stage, spec, situation)
    ended = stage.store.ledger(uid).job
    assert (ended.state, ended.reason) == ("Failed", ENDS[clock][0])
    assert ended.root_cause is not None
    counted = {"runs": 0, "stands": LONG, "begins anew": LONG + 20}[clock.in_outage]
    # whoever watches asks again every ten seconds
    assert began + LIMIT + counted - 1 <= ended.root_cause.at <= began + LIMIT + counted + 15


@pytest.mark.parametrize(
    "name",
    # in the others no survivor runs: the job is not there yet, or all of it is started again
    sorted(set(SITUATIONS) - {"queued", "paused", "its-old-instance-ends"}),
)
def test_who_waits_for_another_does_not_hang(stage, name):
    """`s` gets no further from its first second on; it could only hang."""
    situation = SITUATIONS[name]
    stalls = Fault(kind="stall", role="s", after=1, seconds=LIMIT)
    situation = dataclasses.replace(
        situation,
        faults=(*situation.faults, stalls),
        facts=situation.facts | {"scope": "Instance", "checkpoint": {"uri": "/checkpoints"}},
    )
    spec = job_in(situation, {})
    roles = [dataclasses.replace(each, tracked=each.name == "a") for each in spec.roles]
    spec = dataclasses.replace(spec, roles=(*roles, role("s", env={"WORLD_SIZE": "3"})))
    uid, began = drive(stage, spec, situation)
    ledger: Ledger = stage.store.ledger(uid)
    if situation.hangs_after is not None:
        assert ledger.job.reason == reasons.MAX_RESTARTS_EXCEEDED
        assert ledger.job.root_cause is not None
        assert ledger.job.root_cause.reason == reasons.HANG
        assert ledger.job.root_cause.at is not None
        waited = ledger.job.root_cause.at - began - situation.hangs_after
        assert LIMIT <= waited + 10 <= LIMIT + 60  # creating is tried again later
        return
    assert ledger.job.state == "Succeeded"
    assert not [each for each in stage.store.events(uid) if "Hang" in each.event.message]
    assert {each.role for each in ledger.job.restarts} <= {"a"}


@pytest.mark.parametrize("name", sorted(set(SITUATIONS) - {"not-heard-from"}))
def test_only_the_time_in_which_a_job_trains_is_told_as_trained(stage, name):
    situation = SITUATIONS[name]
    uid, _ = drive(stage, job_in(situation, {}), situation)
    ledger: Ledger = stage.store.ledger(uid)
    assert ledger.job.state == "Succeeded"
    trained = trained_seconds(ledger, now=time.time() + 10 * LONG)
    if situation.standing == "running":
        assert trained == pytest.approx(20 + 80, abs=1)
    else:
        assert trained == pytest.approx(20 + 5, abs=1)
