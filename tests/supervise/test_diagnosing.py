"""The last diagnosis of a failed job: all instances count, and places are those of the whole log."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from airflow_training.control.attempts import AttemptKey
from airflow_training.control.model import FinalPhase, JobEntry, Ledger
from airflow_training.control.reason_facts import OWN_REASONS
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import RunRef
from airflow_training.errors import RuntimeUnavailable
from airflow_training.logs.diagnosis.facts import failed as failed_by
from airflow_training.runtimes.port import Capabilities, Cursor, InstanceRef, LogChunk, Runtime
from airflow_training.supervise.followers import diagnosing, first_lost
from airflow_training.supervise.followers.diagnosing import Diagnoser, facts_of
from tests.builders import entry, job, role, seen

OOM = b"""\
Traceback (most recent call last):
  File "train.py", line 3, in <module>
torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB
"""
LOST = (
    b"RuntimeError: [../gloo/transport/tcp/pair.cc:589] Connection closed by peer [10.0.0.3]:2345\n"
)


@pytest.fixture(autouse=True)
def no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no answer come too late because this machine is busy."""
    for limit in ("_LONGEST_SECONDS", "_PEERS_SECONDS", "_STEP_SECONDS", "_LAST_SECONDS"):
        monkeypatch.setattr(diagnosing, limit, 3600.0)


@dataclass
class Logs:
    """A runtime that has nothing but logs, by index."""

    written: dict[int, bytes]
    opaque: bool = False
    """Its cursors are tokens: an offset alone says nothing."""
    capabilities = Capabilities()

    async def read_log(self, ref: InstanceRef, cursor: Cursor, *, limit: int) -> LogChunk:
        start = int(cursor.token or 0) if self.opaque else cursor.offset
        data = self.written[ref.index][start : start + limit]
        token = str(start + len(data)) if self.opaque else ""
        end = Cursor(offset=cursor.offset + len(data), token=token)
        return LogChunk(data=data, next=end, end=len(data) < limit)

    async def tail_log(self, ref: InstanceRef, *, limit: int) -> bytes:
        return self.written[ref.index][-limit:]


def failed(*finished_at: float) -> Ledger:
    """Return the ledger of a job whose workers failed at these times."""
    team = [
        entry(
            "worker",
            index,
            uid=f"w{index}",
            state="failed",
            final=True,
            failure_class="user",
            exit_code=1,
            reason="Error",
            finished_at=at,
        )
        for index, at in enumerate(finished_at)
    ]
    return Ledger(
        job=JobEntry(state="Failed"),
        instances={InstanceKey(each.role, each.index): each for each in team},
    )


def diagnoser(written: dict[int, bytes] | Logs, *, scope: Any = "Instance") -> Diagnoser:
    logs = written if isinstance(written, Logs) else Logs(written)
    run = RunRef(uid="u", job="digits", namespace="default", controller="c", generation=1)
    spec = job(role("worker", len(logs.written), rank_offset=0), scope=scope)
    return Diagnoser(runtime=cast("Runtime", logs), run=run, job=spec, on_answer=lambda: None)


async def test_the_instance_that_was_first_is_told_not_the_one_that_ended_first():
    found = await diagnoser({0: LOST, 1: OOM}).root_cause(failed(10.0, 11.0))
    assert found is not None
    assert (found.id, found.role, found.index) == ("cuda-out-of-memory", "worker", 1)
    assert (found.rank, found.line) == (1, 3)


async def test_in_a_long_log_the_place_is_that_of_the_whole_log():
    before = b"step 1 of many\n" * 100_000
    found = await diagnoser({0: before + OOM}).root_cause(failed(10.0))
    assert found is not None
    assert found.offset == len(before) + OOM.index(b"torch.cuda")
    assert found.line is None


def losses(first: int, count: int, loss: str) -> bytes:
    return b"".join(b"step %d: loss %b\n" % (n, loss.encode()) for n in range(first, first + count))


async def test_a_loss_that_was_lost_is_the_cause_with_its_first_step():
    log = losses(1, 9, "2.5") + losses(10, 9, "nan") + b"the loss is lost\n"
    found = await diagnoser({0: log}).root_cause(failed(10.0))
    assert found is not None
    assert (found.id, found.role, found.index) == ("nan-loss", "worker", 0)
    assert (found.line, found.retryable) == (10, "no")
    assert found.evidence.startswith("loss is nan from here on (step 10)")


@pytest.mark.parametrize("well", [0, 9, 500, 3000])
async def test_the_first_step_of_a_lost_loss_may_stand_long_before_the_end(monkeypatch, well):
    monkeypatch.setattr(diagnosing, "_END_TAIL_BYTES", 2000)
    monkeypatch.setattr(first_lost, "_WINDOW_BYTES", 1000)
    log = losses(1, well, "2.5") + losses(well + 1, 4000, "nan")
    found = await diagnoser({0: log}).root_cause(failed(10.0))
    assert found is not None
    evidence = f"loss is nan from here on (step {well + 1}): step {well + 1}: loss nan"
    assert (found.id, found.evidence) == ("nan-loss", evidence)
    assert log[found.offset :].startswith(b"step %d:" % (well + 1))


async def test_where_the_first_step_is_not_found_it_is_not_claimed(monkeypatch):
    monkeypatch.setattr(diagnosing, "_END_TAIL_BYTES", 2000)
    logs = Logs({0: losses(1, 900, "nan")})
    asked = diagnoser(logs)

    async def unreadable(*_: Any, **__: Any) -> None:
        raise RuntimeUnavailable("no")

    monkeypatch.setattr(diagnosing, "find_first_lost", unreadable)
    found = await asked.root_cause(failed(10.0))
    assert found is not None
    assert found.evidence.startswith("loss is nan by here (step ")


async def test_the_first_step_is_not_looked_for_where_no_offset_can_be_read_from(monkeypatch):
    monkeypatch.setattr(diagnosing, "_END_TAIL_BYTES", 2000)
    monkeypatch.setattr(first_lost, "_WINDOW_BYTES", 1000)
    log = losses(1, 20, "2.5") + losses(21, 4000, "nan")
    found = await diagnoser(Logs({0: log}, opaque=True)).root_cause(failed(10.0))
    assert found is not None
    assert found.evidence.startswith("loss is nan by here (step ")
    assert found.offset is not None
    assert found.offset >= len(log) - 2000
    assert log[found.offset :].startswith(b"step ")


async def test_a_lost_loss_explains_an_attempt_as_well():
    asked = diagnoser({0: losses(1, 9, "2.5") + losses(10, 9, "nan")})
    ledger = Ledger(
        instances={InstanceKey("worker", 0): entry(uid="w0", desired=True, state="running")}
    )
    await asked.ask(ledger, [seen(state="failed", exit_code=1, reason="Error")], {})
    for task in asked._asked.values():
        await task
    (answer,) = asked.answers
    assert answer.cause.id == "nan-loss"


async def test_what_ended_the_process_goes_before_a_lost_loss():
    found = await diagnoser({0: losses(1, 9, "nan") + OOM}).root_cause(failed(10.0))
    assert found is not None
    assert found.id == "cuda-out-of-memory"


async def test_no_log_is_no_answer():
    assert await diagnoser({0: b""}).root_cause(failed(10.0)) is None


async def test_a_log_that_cannot_be_read_keeps_no_job_from_ending(caplog: pytest.LogCaptureFixture):
    assert await diagnoser({}).root_cause(failed(10.0)) is None
    assert "the log of worker-0 could not be read" in caplog.text


async def test_an_attempt_is_diagnosed_once_and_its_answer_waits_to_be_taken_in():
    asked = diagnoser({0: OOM})
    ledger = Ledger(
        instances={InstanceKey("worker", 0): entry(uid="w0", desired=True, state="running")}
    )
    objects: list[Any] = [seen(state="failed", exit_code=1, reason="Error")]
    await asked.ask(ledger, objects, {})
    for task in asked._asked.values():
        await task
    (answer,) = asked.answers
    assert (answer.cause.id, answer.attempt, answer.exit_code) == ("cuda-out-of-memory", 0, 1)
    await asked.ask(ledger, objects, {})
    assert len(asked._asked) == 1
    asked.forget([answer], ledger)
    assert asked.answers == (answer,), (
        "its attempt is not judged yet: it may wait for what others say"
    )
    asked.forget([answer], failed(10.0))
    assert not asked.answers


@dataclass
class LateLogs(Logs):
    """Logs that can be read once somebody says so."""

    readable: asyncio.Event = field(default_factory=asyncio.Event)

    async def read_log(self, ref: InstanceRef, cursor: Cursor, *, limit: int) -> LogChunk:
        await self.readable.wait()
        return await super().read_log(ref, cursor, limit=limit)


@pytest.mark.parametrize(
    ("end", "restart_waits", "decision_waits"),
    [
        pytest.param({"exit_code": 1}, True, False, id="error"),
        pytest.param({"exit_code": None, "signal": 6}, True, False, id="aborted"),
        pytest.param({"exit_code": 134}, True, False, id="aborted-as-shells-say"),
        pytest.param({"exit_code": None, "signal": 9}, False, False, id="killed"),
        pytest.param({"exit_code": 127}, True, True, id="a-shell-found-no-command"),
        pytest.param({"exit_code": 127, "message": "no x"}, True, False, id="its-words-are-known"),
    ],
)
async def test_what_waits_for_a_diagnosis_that_comes_late(
    monkeypatch: pytest.MonkeyPatch, end: dict[str, Any], restart_waits: bool, decision_waits: bool
):
    monkeypatch.setattr(diagnosing, "_PATIENCE_SECONDS", 0)
    logs = LateLogs({0: OOM})
    asked = diagnoser(logs)
    ledger = Ledger(
        instances={InstanceKey("worker", 0): entry(uid="w0", desired=True, state="running")}
    )
    asking = asyncio.ensure_future(asked.ask(ledger, [seen(state="failed", **end)], {}))
    for _ in range(20):
        await asyncio.sleep(0)
    assert asking.done() is not decision_waits
    assert set(asked.pending) == (
        {AttemptKey(InstanceKey("worker", 0), 0, 0)} if restart_waits else set()
    )
    logs.readable.set()
    await asking
    for task in asked._asked.values():
        await task
    assert not asked.pending


async def test_an_answer_that_comes_after_its_restart_is_taken_in_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(diagnosing, "_PATIENCE_SECONDS", 0)
    monkeypatch.setattr(diagnosing, "_LONGEST_SECONDS", 0)
    logs = LateLogs({0: OOM})
    asked = diagnoser(logs)
    key = InstanceKey("worker", 0)
    ledger = Ledger(instances={key: entry(uid="w0", desired=True, state="running")})
    await asked.ask(ledger, [seen(state="failed", exit_code=1)], {})
    (task,) = asked._asked.values()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not asked.pending
    assert not task.done(), "its restart waits no longer; it is looked for all the same"
    logs.readable.set()
    await task
    assert [each.cause.id for each in asked.answers] == ["cuda-out-of-memory"]


class SlowLogs(Logs):
    """Of which some never come, and the others one after the other."""

    def __init__(self, written: dict[int, bytes], *, never: int) -> None:
        super().__init__(written)
        self._never = never

    async def read_log(self, ref: InstanceRef, cursor: Cursor, *, limit: int) -> LogChunk:
        if ref.index == self._never:
            await asyncio.Event().wait()
        return await super().read_log(ref, cursor, limit=limit)


async def test_one_log_that_does_not_come_takes_no_cause_from_a_job(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(diagnosing, "_STEP_SECONDS", 0.2)
    found = await diagnoser(SlowLogs({0: LOST, 1: OOM}, never=0)).root_cause(failed(10.0, 11.0))
    assert found is not None
    assert (found.id, found.index) == ("cuda-out-of-memory", 1)
    assert "the log of worker-0 could not be read" in caplog.text


async def test_a_run_that_waits_for_its_cause_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(diagnosing, "_LONGEST_SECONDS", 0)
    monkeypatch.setattr(diagnosing, "_LAST_SECONDS", 0.01)

    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(diagnosing.Diagnoser, "_explain", never)
    assert await diagnoser({0: OOM}).root_cause(failed(10.0)) is None
    assert "why it failed is looked for in its logs" in caplog.text
    assert "logs diagnose reads them again" in caplog.text


@pytest.mark.parametrize("state", ["Succeeded", "Failed", "Stopped"])
def test_what_was_ended_after_its_job_had_succeeded_is_no_failure(state):
    ended = entry("worker", 1, state="succeeded", reason="StoppedAfterSuccess")
    ended = replace(ended, phase=FinalPhase())
    ledger = Ledger(job=JobEntry(state=state), instances={ended.key: ended})
    assert not any(failed_by(fact) for fact in facts_of(ledger, OWN_REASONS) if fact.role)


def test_of_a_job_that_no_instance_ended_its_own_reason_is_the_fact():
    ledger = Ledger(job=JobEntry(state="Failed", reason="DeadlineExceeded", message="too long"))
    (fact,) = facts_of(ledger, OWN_REASONS)
    assert (fact.reason, fact.message) == ("DeadlineExceeded", "too long")
    assert fact.who == "the job"


ERROR = b"""\
Traceback (most recent call last):
  File "/app/train.py", line 3, in <module>
    labels[7]
ValueError: batch 7 has no labels
"""


@pytest.mark.parametrize(
    ("scope", "other", "named"),
    [
        pytest.param("Job", ERROR, "worker-1", id="an-error"),
        pytest.param("Role", OOM, "worker-1", id="memory"),
        pytest.param("Job", LOST, None, id="who-only-lost-others-too"),
        pytest.param("Job", b"step 1 loss 0.5\n", None, id="at-work"),
        pytest.param("Instance", ERROR, None, id="each-alone-fails-for-itself"),
    ],
)
async def test_who_only_lost_others_names_the_one_that_failed_first(scope, other, named):
    asked = diagnoser({0: LOST, 1: other}, scope=scope)
    team = [entry("worker", i, uid=f"w{i}", released=True, was_running=True) for i in (0, 1)]
    ledger = Ledger(instances={each.key: each for each in team})
    await asked.ask(ledger, [seen(state="failed", exit_code=1, reason="Error")], {})
    for task in asked._asked.values():
        await task
    (answer,) = asked.answers
    assert answer.cause.id == "peer-connection-lost"
    assert (answer.origin and f"{answer.origin.role}-{answer.origin.index}") == named
