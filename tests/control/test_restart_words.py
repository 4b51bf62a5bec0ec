"""What the event of a restart says: how it failed and why, how many restarts that makes, and when the next try is."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_training.control import reasons
from airflow_training.control.attempts import AttemptId, AttemptKey
from airflow_training.control.causes import DiagnosedCause, RootCause
from airflow_training.control.failure_chain import first_failure
from airflow_training.control.model import JobEntry, RestartRecord
from airflow_training.control.observations import InstanceDiagnosis
from airflow_training.control.root_cause import with_root_cause
from airflow_training.documents.instances import InstanceKey
from tests.builders import Bench, job, role

WORKER = InstanceKey("worker", 0)
FULL = DiagnosedCause(
    id="disk-full",
    category="resource",
    retryable="once",
    confidence=0.7,
    evidence="OSError: [Errno 28] No space left on device",
    file="worker-0",
    line=5,
    advice="Free space.",
)


def diagnosis(cause: DiagnosedCause) -> InstanceDiagnosis:
    return InstanceDiagnosis(key=WORKER, attempt_id=AttemptId(), cause=cause, exit_code=1)


@pytest.mark.parametrize(
    ("words", "end", "found", "told"),
    [
        pytest.param(None, {}, None, "exit code 1; restart", id="nothing-known"),
        pytest.param("bye", {}, None, "exit code 1: last line: bye; restart", id="last-line"),
        pytest.param("", {}, None, "exit code 1: it printed nothing; restart", id="silent"),
        pytest.param(
            "bye", {"message": "a\nValueError: 7\n"}, None, "exit code 1: ValueError: 7; restart",
            id="message",
        ),
        pytest.param(
            "bye", {}, FULL, f"exit code 1 (disk-full): {FULL.evidence}; restart", id="diagnosed"
        ),
    ],
)  # fmt: skip
def test_a_restart_says_why(words, end, found, told):
    bench = Bench(job(role("worker"))).settle()
    if words is not None:
        bench.last_words[AttemptKey(WORKER, 0, 0)] = words
    if found is not None:
        bench.diagnoses = [diagnosis(found)]
    bench.end("worker", 0, 1, **end).decide()
    (event,) = bench.said("InstanceRestarted")
    assert event.message.startswith(told)
    assert (event.role, event.index, event.attempt) == ("worker", 0, 0)
    said = event.message.partition("; restart")[0]
    assert bench.ledger.instances[WORKER].message == f"attempt 0: {said}"


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        pytest.param({"backoff_limit": 2}, "restart 1 of 2 (backoffLimit)", id="instance"),
        pytest.param({"max_restarts": 1}, "restart 1 of 1 (maxRestarts of worker)", id="role"),
        pytest.param({}, "restart 1 of 3 (maxRestarts)", id="run"),
    ],
)
def test_a_restart_says_how_many_are_left_of_the_smallest_limit(limits, told):
    bench = Bench(job(role("worker", **limits), max_restarts=3, backoff_initial_seconds=7)).settle()
    bench.end("worker", 0, 1).decide()
    (event,) = bench.said("InstanceRestarted")
    assert event.message == f"exit code 1; {told}, next attempt in 7 s"


def test_what_is_free_says_so():
    bench = Bench(job(role("worker"), backoff_initial_seconds=7)).settle()
    bench.end("worker", 0, 143, disrupted=True).decide()
    (event,) = bench.said("InstanceRestarted")
    assert event.message.endswith("; counts towards no limit, next attempt in 7 s")


# several attempts that failed by different causes -----------------------------------------------------
def failed(
    attempt: int, cause: str, fingerprint: str = "line 5: x", **fields: Any
) -> RestartRecord:
    return RestartRecord(
        at=float(attempt),
        failure_class="infrastructure",
        key=fields.pop("key", WORKER),
        scope=fields.pop("scope", "Instance"),
        rule="",
        attempt=attempt,
        cause=cause,
        fingerprint=fingerprint,
        explained_by=fields.pop("explained_by", "itself"),
        **fields,
    )


LAST = RootCause(
    id="checkpoint-corrupt",
    category="data",
    retryable="once",
    confidence=0.7,
    evidence="failed finding central directory",
    advice="Go back.",
    role="worker",
    index=0,
    attempt=2,
    exit_code=1,
)


@pytest.mark.parametrize(
    ("records", "progressed", "first"),
    [
        pytest.param([failed(0, "disk-full"), failed(1, "checkpoint-corrupt")], False, 0, id="chain"),
        pytest.param([failed(0, "checkpoint-corrupt"), failed(1, "disk-full")], False, None, id="the-same"),
        pytest.param([failed(0, "disk-full"), failed(1, "checkpoint-corrupt", "step 7: x")], False, None, id="it-got-on-between"),
        pytest.param([failed(0, "disk-full", "step 7: x"), failed(1, "checkpoint-corrupt")], False, 0, id="it-got-on-before"),
        pytest.param([failed(0, "disk-full")], True, None, id="the-last-got-on"),
        pytest.param([failed(0, "node-lost", counted=False)], False, None, id="free"),
        pytest.param([failed(0, "nccl-timeout", explained_by="peers")], False, None, id="peers"),
        pytest.param([failed(0, "disk-full", key=InstanceKey("worker", 1))], False, None, id="of-another"),
        pytest.param([failed(0, "disk-full", key=InstanceKey("worker", 1), scope="Job")], False, 0, id="of-another-that-restarted-all"),
    ],
)  # fmt: skip
def test_the_first_failure_of_attempts_that_got_nowhere(records, progressed, first):
    entry = JobEntry(state="Failed", reason=reasons.MAX_RESTARTS_EXCEEDED, restarts=tuple(records))
    found = first_failure(entry, LAST, progressed=progressed)
    assert (None if found is None else found.attempt) == first


def test_the_headline_is_the_first_cause_then_what_followed_then_the_limit():
    bench = Bench(job(role("worker"), max_restarts=0)).settle()
    bench.end("worker", 0, 1)
    first = RootCause(**FULL.to_document() | {"role": "worker", "index": 0, "attempt": 7})
    decision = with_root_cause(bench.decide(), LAST, now=bench.now)
    decision = with_root_cause(decision, first, now=bench.now, then="then worker-0: exit code 1")
    assert decision.new_ledger.job.message == (
        "worker-0: disk-full: OSError: [Errno 28] No space left on device;"
        " then worker-0: exit code 1; maxRestarts 0 is used up"
    )
    told = [each.reason for each in decision.events]
    assert told.count("RootCause") == 1
    assert told[-2:] == ["RootCause", "JobFailed"] or told.index("RootCause") < len(told)
