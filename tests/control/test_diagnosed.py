"""What the diagnosis of a failure changes: class, restarts, and restarts that have not begun yet."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_training.control import reasons
from airflow_training.control.model import Diagnosed
from airflow_training.control.root_cause import with_diagnosis
from tests.builders import Bench, job, role, rule

OOM = {"id": "cuda-out-of-memory", "category": "resource", "retryable": "no", "confidence": 0.95}
LOST = {"id": "peer-connection-lost", "category": "infrastructure", "retryable": "yes"}
MINE = {"id": "python-exception", "category": "user-error", "retryable": "no", "confidence": 0.45}
SEGFAULT = {"id": "segfault", "category": "user-error", "retryable": "once", "confidence": 0.9}


def told(
    cause: dict[str, Any], attempt: int = 0, *, step: int | None = None, text: str = "Boom: 1"
) -> Diagnosed:
    """Return the diagnosis of an attempt of the first worker."""
    facts = {"confidence": 0.9, "evidence": text, "line": 12, "file": "worker-0", "rank": 0}
    return Diagnosed(
        role="worker", index=0, attempt=attempt, cause=facts | cause, step=step, exit_code=1
    )


def failed(spec: Any, *diagnoses: Diagnosed) -> Bench:
    """Return a bench whose worker failed once for each diagnosis, each known in time."""
    bench = Bench(spec).settle()
    for each in diagnoses:
        if bench.state == "Failed":
            break
        bench.diagnoses = [each]
        bench.end("worker", 0, 1).settle()
    return bench


def test_what_needs_a_change_first_is_not_tried_again():
    bench = failed(job(), told(OOM))
    assert (bench.state, bench.ledger.job.reason) == ("Failed", reasons.NOT_RETRYABLE)
    assert "cuda-out-of-memory needs a change first: Boom: 1" in bench.ledger.job.message
    assert bench.charged() == {}
    (event,) = [each for each in bench.events if each.reason == reasons.DIAGNOSED]
    assert event.data["cause"]["id"] == "cuda-out-of-memory"


def test_a_guess_does_not_stop_a_restart():
    bench = failed(job(), told(OOM | {"confidence": 0.6}))
    assert (bench.state, bench.of().attempt) == ("Running", 1)


def test_the_category_is_the_class_that_is_charged():
    bench = failed(job(), told(LOST))
    assert bench.charged() == {"infrastructure": 1}


@pytest.mark.parametrize(
    ("cause", "charged"),
    [
        pytest.param(LOST | {"confidence": 0.4}, "user", id="hardly-sure"),
        pytest.param(LOST | {"category": "preemption"}, "user", id="only-the-runtime-preempts"),
        pytest.param({**LOST, "id": "unknown"}, "user", id="unknown"),
        pytest.param(LOST | {"category": "data"}, "user", id="data-is-the-users"),
    ],
)
def test_what_a_log_says_is_not_believed_blindly(cause, charged):
    assert failed(job(), told(cause)).charged() == {charged: 1}


def test_what_the_runtime_says_goes_before_the_log():
    bench = Bench(job()).settle()
    bench.diagnoses = [told(LOST)]
    bench.end("worker", 0, 137, reason="OOMKilled").settle()
    assert bench.charged() == {"resource": 1}


def test_a_rule_for_a_class_sees_the_diagnosis():
    spec = job(rules=(rule("FailJob", on_classes=("infrastructure",)),))
    assert failed(spec, told(LOST)).ledger.job.reason == reasons.FAILED_BY_RULE


@pytest.mark.parametrize(
    ("criteria", "state"),
    [
        pytest.param({"on_classes": ("resource",)}, "Failed", id="a-class-is-overruled"),
        pytest.param({"on_exit_codes": (1,)}, "Running", id="an-exit-code-is-the-users-word"),
    ],
)
def test_what_cannot_help_wins_over_a_rule_for_a_class(criteria, state):
    spec = job(rules=(rule("RestartInstance", **criteria),))
    assert failed(spec, told(OOM)).state == state


def test_the_same_user_error_at_the_same_step_is_not_tried_a_third_time():
    first = told(MINE, 0, step=7, text="KeyError: at 0x7f01")
    again = told(MINE, 1, step=7, text="KeyError: at 0x7f99")
    bench = failed(job(), first, again)
    assert (bench.state, bench.ledger.job.reason) == ("Failed", reasons.SAME_ERROR_AGAIN)
    assert "the same error at step 7 for the second time" in bench.ledger.job.message


@pytest.mark.parametrize(
    "again",
    [
        pytest.param(told(MINE, 1, step=8), id="another-step"),
        pytest.param(told(MINE, 1, step=7, text="KeyError: 'other'"), id="another-error"),
        pytest.param(told(LOST, 1, step=7), id="not-the-users"),
    ],
)
def test_another_error_is_tried_again(again):
    assert failed(job(), told(MINE, 0, step=7), again).state == "Running"


def test_without_steps_it_must_be_the_same_line_of_the_log():
    assert failed(job(), told(MINE, 0), told(MINE, 1)).state == "Failed"
    assert failed(job(), told(MINE, 0), told(MINE | {"line": 13}, 1)).state == "Running"
    assert failed(job(), told(MINE, 0), told(MINE, 1, text="Boom: 2")).state == "Running"


def test_once_is_one_more_try():
    assert failed(job(), told(SEGFAULT, 0, step=1)).state == "Running"
    bench = failed(job(), told(SEGFAULT, 0, step=1), told(SEGFAULT, 1, step=9))
    assert bench.ledger.job.reason == reasons.NOT_RETRYABLE


def late(spec: Any, diagnosis: Diagnosed, *, seconds: float = 0.0) -> Bench:
    """Return a bench whose worker failed, and was diagnosed after that was decided."""
    bench = Bench(spec).settle()
    bench.end("worker", 0, 1).step()
    if seconds:
        bench.later(seconds).settle()
    bench.diagnoses = [diagnosis]
    return bench.settle()


@pytest.mark.parametrize("scope", ["Instance", "Role", "Job"])
def test_a_restart_that_has_not_begun_is_taken_back(scope):
    spec = job(role("worker", 2), backoff_initial_seconds=5, scope=scope)
    bench = late(spec, told(OOM))
    assert (bench.state, bench.ledger.job.reason) == ("Failed", reasons.NOT_RETRYABLE)
    entry = bench.of()
    assert (entry.state, entry.attempt, entry.exit_code, entry.restarts) == ("failed", 0, 1, 0)
    assert bench.charged() == {}
    assert (bench.ledger.job.root_cause or {})["attempt"] == 0


def test_a_restart_that_has_begun_goes_on_and_the_next_failure_is_the_last():
    spec = job(backoff_initial_seconds=5)
    bench = late(spec, told(MINE, 0, step=7), seconds=6)
    assert (bench.state, bench.of().attempt) == ("Running", 1)
    assert bench.ledger.job.restarts[0].cause == "python-exception"
    bench.diagnoses = [told(MINE, 1, step=7)]
    bench.end("worker", 0, 1).settle()
    assert bench.ledger.job.reason == reasons.SAME_ERROR_AGAIN


def test_a_diagnosis_of_nothing_that_counts_changes_nothing():
    bench = late(job(backoff_initial_seconds=5), told(OOM, attempt=4))
    assert (bench.state, bench.of().attempt) == ("Running", 1)


KNOWN = {
    "id": "unknown",
    "reason": "Error",
    "message": "",
    "exit_code": 1,
    "role": "worker",
    "index": 0,
}


@pytest.mark.parametrize(
    ("known", "found", "expected"),
    [
        pytest.param(
            KNOWN, {**OOM, "role": "worker", "index": 0}, ("cuda-out-of-memory", 1), id="log"
        ),
        pytest.param(
            KNOWN, {**OOM, "role": "worker", "index": 1}, ("cuda-out-of-memory", None), id="other"
        ),
        pytest.param(
            KNOWN | {"id": "evicted", "reason": "Evicted"},
            {**OOM, "role": "worker", "index": 0},
            ("evicted", 1),
            id="runtime",
        ),
        pytest.param(
            KNOWN, {**OOM, "id": "unknown", "role": None, "index": None}, ("unknown", 1), id="none"
        ),
    ],
)
def test_the_root_cause_of_the_job_is_what_runtime_and_logs_agree_on(known, found, expected):
    merged = with_diagnosis(known, found)
    assert (merged["id"], merged["exit_code"]) == expected
