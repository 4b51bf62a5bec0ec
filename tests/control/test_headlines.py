"""The message of a job that failed: first who did, how and why, then the limit that ended it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_training.control import reasons
from airflow_training.control.attempts import AttemptId
from airflow_training.control.causes import DiagnosedCause, RootCause
from airflow_training.control.model import JobEntry
from airflow_training.control.observations import InstanceDiagnosis
from airflow_training.control.root_cause import headline_of, message_of, with_root_cause
from airflow_training.documents.instances import InstanceKey
from airflow_training.state.codec import compact_json, from_json
from tests.builders import Bench, job, role, rule

LOST = {
    "id": "peer-connection-lost",
    "category": "infrastructure",
    "retryable": "yes",
    "confidence": 0.8,
    "evidence": "ConnectionResetError: [Errno 104] Connection reset by peer",
}
MINE: dict[str, Any] = {
    "id": "python-exception",
    "category": "user-error",
    "retryable": "no",
    "confidence": 0.7,
    "evidence": "ValueError: batch 7 has no labels",
}
LOG: dict[str, Any] = {"file": "worker", "line": 9, "rank": 0, "offset": 1, "advice": "Look there"}


def told(index: int, cause: dict[str, Any], attempt: int = 0) -> InstanceDiagnosis:
    return InstanceDiagnosis(
        key=InstanceKey("worker", index),
        attempt_id=AttemptId(attempt=attempt),
        cause=DiagnosedCause(**LOG | cause),
        exit_code=1,
        finished_at=1000.0,
    )


def group(**fields: Any) -> Bench:
    return Bench(job(role("worker", 2), **fields)).settle()


def event(bench: Bench, reason: str) -> str:
    (found,) = bench.said(reason)
    return found.message


@pytest.mark.parametrize("scope", ["Instance", "Role", "Job"])
@pytest.mark.parametrize("first", [0, 1])
def test_the_headline_is_who_failed_and_not_who_lost_it(scope, first):
    bench = group(scope=scope, max_restarts=0)
    bench.diagnoses = [told(0, LOST), told(1, MINE)]
    bench.end("worker", 0, 1, finished_at=bench.now - (first == 0))
    bench.end("worker", 1, 1, finished_at=bench.now - (first == 1)).settle()
    expected = (
        "worker-1: exit code 1 (python-exception): ValueError: batch 7 has no labels;"
        " maxRestarts 0 is used up"
    )
    assert bench.ledger.job.message == expected
    assert event(bench, reasons.JOB_FAILED) == f"{expected} (MaxRestartsExceeded)"
    assert bench.root_cause.index == 1


def test_a_mistake_that_all_ranks_met_is_told_once():
    who: dict[str, Any] = {"role": "worker", "index": 1, "attempt": 0, "exit_code": 2}
    root = RootCause(**LOG, **{**MINE, "id": "trainer-input"}, **who)
    limit = f"worker-0: SetupRefused: {MINE['evidence']}"
    told_once = "worker-1: exit code 2 (trainer-input): ValueError: batch 7 has no labels"
    assert message_of(root, limit) == told_once
    assert message_of(root, "maxRestarts 0 is used up").endswith("; maxRestarts 0 is used up")


def test_the_end_is_told_once_nothing_is_alive_and_its_beginning_at_once():
    bench = group(max_restarts=0)
    bench.end("worker", 0, 1).decide()
    assert "maxRestarts 0 is used up" in event(bench, reasons.JOB_FAILING)
    assert bench.said(reasons.JOB_FAILED) == []
    bench.act()
    bench.settle()
    assert event(bench, reasons.JOB_FAILED).startswith("worker-0: exit code 1; maxRestarts 0")


def test_what_all_logs_say_in_the_end_is_the_headline_of_message_and_event():
    bench = group(max_restarts=0)
    bench.end("worker", 0, 1).decide()
    bench.act()
    decision = bench.decide()
    assert decision.done
    who: dict[str, Any] = {
        "role": "worker",
        "index": 1,
        "attempt": 0,
        "reason": None,
        "message": None,
    }
    root = replace(bench.root_cause, **LOG, **MINE, **who, exit_code=None, signal=None)
    told_last = with_root_cause(decision, root, now=bench.now)
    expected = (
        "worker-1: python-exception: ValueError: batch 7 has no labels; maxRestarts 0 is used up"
    )
    assert told_last.new_ledger.job.message == expected
    assert [e.message for e in told_last.events if e.reason == reasons.JOB_FAILED] == [
        f"{expected} (MaxRestartsExceeded)"
    ]


def test_a_reason_and_a_cause_of_one_name_are_told_once():
    hung = {"id": "hang", "evidence": "no progress for 3 s after step 14"}
    bench = group(max_restarts=0)
    bench.diagnoses = [told(0, MINE | hung)]
    bench.end("worker", 0, None, signal=6, reason=reasons.HANG).settle()
    assert headline_of(bench.root_cause) == f"worker-0: signal 6 (Hang): {hung['evidence']}"


@pytest.mark.parametrize(
    ("message", "limit"),
    [
        ("maxRestarts 0 is used up; worker-0: exit code 1 (Error)", "maxRestarts 0 is used up"),
        (
            "worker-0: exit code 1 after 1 restart (backoffLimit 1)",
            "worker-0: exit code 1 after 1 restart (backoffLimit 1)",
        ),
        ("rule mine: worker-0: exit code 1", "rule mine: worker-0: exit code 1"),
        (None, ""),
    ],
)
@pytest.mark.parametrize("known", [True, False])
def test_the_limit_of_a_job_that_failed_under_an_older_version_is_told_by_its_message(
    message, limit, known
):
    """Such a job has no `limit`, as its store says what an older version wrote, and still ends."""
    bench = group(max_restarts=0)
    bench.end("worker", 0, 1).decide()
    bench.act()
    cause = bench.root_cause
    message = headline_of(cause) if message is None else message
    older = replace(
        bench.ledger.job, limit="", message=message, root_cause=cause if known else None
    )
    assert from_json(JobEntry, compact_json(older)) == older
    assert "limit" not in compact_json(older)
    bench.ledger = replace(bench.ledger, job=older)
    who: dict[str, Any] = {
        "role": "worker",
        "index": 1,
        "attempt": 0,
        "reason": None,
        "message": None,
    }
    root = replace(cause, **LOG, **MINE, **who, exit_code=None, signal=None)
    first = "worker-1: python-exception: ValueError: batch 7 has no labels"
    told_last = with_root_cause(bench.decide(), root, now=bench.now).new_ledger.job
    kept = limit if known else message  # where no cause was known, the message may be any limit
    assert told_last.message == "; ".join(filter(None, [first, kept]))


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("ErrImagePull", "container 'worker': pull access denied for tset/image"),
        ("NodeLost", "nothing is heard from node n1; it may still run there"),
        ("Evicted", "The node was low on resource: ephemeral-storage."),
        (reasons.VANISHED, "its object disappeared without a trace"),
    ],
)
@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"max_restarts": 0}, id="maxRestarts"),
        pytest.param({"backoff_limit": 0}, id="backoffLimit"),
        pytest.param({"restart_policy": "Never"}, id="never"),
        pytest.param({"rules": (rule("FailJob"),)}, id="rule"),
    ],
)
def test_a_failure_without_an_exit_code_keeps_its_words(fields, reason, message):
    of_role = {key: fields[key] for key in ("backoff_limit", "restart_policy") if key in fields}
    of_job = {key: fields[key] for key in fields if key not in of_role}
    bench = Bench(job(role("worker", **of_role), **of_job)).settle()
    if reason == reasons.VANISHED:
        bench.lose("worker").settle()
    else:
        bench.end("worker", 0, None, reason=reason, message=message).settle()
    assert bench.ledger.job.message.startswith(f"worker-0: {reason}: {message}")
    assert (bench.root_cause.message or "").startswith(message)


@pytest.mark.parametrize(
    ("spec", "limit"),
    [
        pytest.param(job(max_restarts=0), "maxRestarts 0 is used up", id="maxRestarts"),
        pytest.param(job(role(backoff_limit=0)), "backoffLimit 0 is used up", id="backoffLimit"),
        pytest.param(
            job(role(restart_policy="Never")),
            "1 of 1 instance failed for good, minFailed is 1",
            id="never",
        ),
        pytest.param(job(rules=(rule("FailJob", "fatal"),)), "rule fatal ends the job", id="rule"),
        pytest.param(job(rules=(rule("FailJob", "rule 0"),)), "rule 0 ends the job", id="no-name"),
        pytest.param(
            job(role(restart_policy="ExitCode")),
            "that is permanent in the table default",
            id="table",
        ),
    ],
)
def test_the_limit_comes_second(spec, limit):
    bench = Bench(spec).settle().end("worker", 0, 1, message="Boom: 1").settle()
    assert bench.ledger.job.message == f"worker-0: exit code 1: Boom: 1; {limit}"


NEEDS_CHANGE = MINE | {"confidence": 0.9}
AT_IMPORT = MINE | {"evidence": "ModuleNotFoundError: No module named 'torchh'"}
ONCE = MINE | {"retryable": "once", "confidence": 0.9, "category": "infrastructure"}


@pytest.mark.parametrize(
    ("fields", "cause", "step", "reason", "limit"),
    [
        pytest.param({}, NEEDS_CHANGE, 3, reasons.NOT_RETRYABLE, "it needs a change first", id="no"),
        pytest.param({}, AT_IMPORT, 0, reasons.NOT_RETRYABLE, "it needs a change first", id="import"),
        pytest.param(
            {}, ONCE, 3, reasons.NOT_RETRYABLE, "it happened again after one more try", id="once"
        ),
        pytest.param(
            {}, MINE, 7, reasons.SAME_ERROR_AGAIN,
            "the same error at step 7 for the second time", id="same-step",
        ),
        pytest.param(
            {}, MINE, None, reasons.SAME_ERROR_AGAIN,
            "the same error for the second time", id="same-line",
        ),
        pytest.param(
            {"backoff_limit": 0}, LOST, 3, reasons.BACKOFF_LIMIT_EXCEEDED,
            "backoffLimit 0 is used up", id="backoffLimit",
        ),
        pytest.param(
            {"max_restarts": 0}, LOST, 3, reasons.MAX_RESTARTS_EXCEEDED,
            "maxRestarts 0 is used up", id="maxRestarts",
        ),
        pytest.param(
            {"role_restarts": 0}, LOST, 3, reasons.MAX_RESTARTS_EXCEEDED,
            "maxRestarts 0 of worker is used up", id="maxRestarts-of-role",
        ),
        pytest.param(
            {"rules": (rule("FailJob", "fatal"),)}, LOST, 3, reasons.FAILED_BY_RULE,
            "rule fatal ends the job", id="rule",
        ),
        pytest.param(
            {"restart_policy": "ExitCode"}, LOST | {"category": "configuration"}, 3,
            reasons.EXIT_CODE_PERMANENT, "that is permanent in the table default", id="table",
        ),
    ],
)  # fmt: skip
def test_whatever_ends_a_job_its_message_begins_with_the_cause(fields, cause, step, reason, limit):
    """The form that `docs/job.md` promises: who, how (cause), words; then the limit."""
    own = {key: fields[key] for key in ("backoff_limit", "restart_policy") if key in fields}
    if "role_restarts" in fields:
        own["max_restarts"] = fields["role_restarts"]
    of_job = {key: fields[key] for key in ("max_restarts", "rules") if key in fields}
    told_late = (False,) if fields else (False, True)  # a diagnosis may take a restart back
    for late in told_late:
        bench = Bench(job(role("worker", **own), backoff_initial_seconds=5, **of_job)).settle()
        while bench.ledger.job.state == "Running":
            found = [replace(told(0, cause, bench.of().attempt), step=step)]
            bench.diagnoses = [] if late else found
            bench.end("worker", 0, 1).step()
            bench.diagnoses = found
            bench.settle().later(11).settle()
        assert bench.ledger.job.reason == reason
        headline = f"worker-0: exit code 1 ({cause['id']}): {cause['evidence']}"
        assert bench.ledger.job.message == f"{headline}; {limit}"
        if not fields:
            assert bench.ledger.roles["worker"].message == f"{headline}; {limit}"


def test_a_code_that_no_list_has_is_not_said_to_stand_in_the_table():
    bench = (
        Bench(job(role("worker", restart_policy="ExitCode"))).settle().end("worker", 0, 65).settle()
    )
    assert bench.ledger.job.message == (
        "worker-0: exit code 65; that is permanent: of class user, and not in the table default"
    )


def test_a_limit_that_is_itself_the_cause_is_told_once():
    bench = Bench(job(active_deadline_seconds=5)).settle().later(6).settle()
    assert bench.ledger.job.message == (
        "activeDeadlineSeconds 5 is used up: its instances were running for 6 s"
    )


@pytest.mark.parametrize(
    ("kind", "exit_code"), [("stop", 143), ("kill", 137), (None, 143), (None, 1)]
)
def test_what_we_end_is_stopped_by_us_whatever_its_exit_code(kind, exit_code):
    bench = group(max_restarts=0)
    if kind:
        bench.request(kind)
    else:
        bench.end("worker", 0, 1)
    bench.decide()
    bench.end("worker", 1, exit_code).settle()
    entry = bench.of("worker", 1)
    assert (entry.state, entry.reason, entry.message) == ("stopped", "Stopped", "stopped by us")
    assert entry.end.failure_class is None


@pytest.mark.parametrize("ended", [(0, 1), (1, 0)])
def test_of_several_that_cannot_start_one_is_named(ended):
    bench = group()
    for index in ended:
        words = f"sh: {index}: pyhton: not found"
        bench.end("worker", index, 127, message=words, finished_at=bench.now + ended.index(index))
    bench.settle()
    first = ended[0]
    message = bench.ledger.job.message
    assert message == (
        f"worker-{first}: exit code 127: sh: {first}: pyhton: not found; it needs a change first"
    )


def test_a_job_that_fits_nowhere_is_not_worth_another_try():
    bench = Bench(job(schedule_timeout_seconds=5)).settle(starting=False)
    words = "no node could take it, even when empty"
    bench.set("worker", 0, scheduled=False, reason=reasons.NEVER_FITS, message=words).step()
    bench.later(10).settle(starting=False)
    root = bench.root_cause
    assert (bench.ledger.job.reason, root.id, root.retryable) == (
        reasons.SCHEDULE_TIMEOUT,
        "never-fits",
        "no",
    )


def test_who_was_deleted_by_others_is_told():
    bench = Bench(job(max_restarts=0)).settle()
    bench.end("worker", 0, 143, reason="Deleted", message="it was deleted").settle()
    assert bench.root_cause.id == "instance-deleted"
