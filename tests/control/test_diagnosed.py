"""What the diagnosis of a failure changes: class, restarts, and restarts that have not begun yet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_training.control import reasons
from airflow_training.control.attempts import AttemptId, AttemptKey
from airflow_training.control.causes import DiagnosedCause, RootCause
from airflow_training.control.diagnosed import origin_of
from airflow_training.control.model import MOVED, RestartRecord
from airflow_training.control.observations import InstanceDiagnosis
from airflow_training.control.rollup import rollup
from airflow_training.control.root_cause import with_diagnosis
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import ExitCodeTable
from airflow_training.runtimes.kubernetes.reasons import REASONS
from tests.builders import Bench, job, role, rule

OOM = {"id": "cuda-out-of-memory", "category": "resource", "retryable": "no", "confidence": 0.95}
LOST = {"id": "peer-connection-lost", "category": "infrastructure", "retryable": "yes"}
MINE = {"id": "python-exception", "category": "user-error", "retryable": "no", "confidence": 0.45}
SEGFAULT = {"id": "segfault", "category": "user-error", "retryable": "once", "confidence": 0.9}


def told(
    cause: dict[str, Any], attempt: int = 0, *, step: int | None = None, text: str = "Boom: 1"
) -> InstanceDiagnosis:
    """Return the diagnosis of an attempt of the first worker."""
    facts: dict[str, Any] = {
        "confidence": 0.9,
        "evidence": text,
        "line": 12,
        "file": "worker-0",
        "rank": 0,
    }
    return InstanceDiagnosis(
        key=InstanceKey("worker", 0),
        attempt_id=AttemptId(attempt=attempt),
        cause=DiagnosedCause(**facts | cause),
        step=step,
        exit_code=1,
    )


def failed(spec: Any, *diagnoses: InstanceDiagnosis) -> Bench:
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
    assert bench.ledger.job.message == "worker-0: exit code 1: Boom: 1; it needs a change first"
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


@pytest.mark.parametrize(
    ("criteria", "state"),
    [
        pytest.param({"on_classes": ("user",)}, "Failed", id="a-class-is-overruled"),
        pytest.param({"on_exit_codes": (1,)}, "Running", id="an-exit-code-is-the-users-word"),
    ],
)
def test_a_late_diagnosis_takes_back_nothing_that_is_the_users_word(criteria, state):
    spec = job(rules=(rule("RestartJob", **criteria),), backoff_initial_seconds=5)
    bench = Bench(spec).settle()
    bench.end("worker", 0, 1).step()
    bench.diagnoses = [told(OOM)]
    bench.settle().later(6).settle()
    assert bench.state == state


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("0x7f01", "0x7f99", id="address"),
        pytest.param("batch 7c9a0f3b52d14e6b8a1d0c2e4f6a8b90", "batch f3b5e6d14a0c9b827c9a0f3b52d14e6b", id="hex"),
        pytest.param(
            "7c9a0f3b-52d1-4e6b-8a1d-0c2e4f6a8b90", "f3b5e6d1-4a0c-9b82-7c9a-0f3b52d14e6b", id="uuid"
        ),
        pytest.param("/tmp/tmpa1b2c3d4/x", "/tmp/tmpzz_9k2aq/x", id="temporary-file"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("step", [7, None])
def test_the_same_user_error_at_the_same_place_is_not_tried_a_third_time(one, other, step):
    first = told(MINE, 0, step=step, text=f"KeyError: at {one}")
    again = told(MINE, 1, step=step, text=f"KeyError: at {other}")
    bench = failed(job(), first, again)
    assert (bench.state, bench.ledger.job.reason) == ("Failed", reasons.SAME_ERROR_AGAIN)
    assert "for the second time" in bench.ledger.job.message


def test_the_step_of_the_same_error_is_told():
    first = told(MINE, 0, step=7, text="KeyError: at 0x7f01")
    again = told(MINE, 1, step=7, text="KeyError: at 0x7f99")
    bench = failed(job(), first, again)
    assert (bench.state, bench.ledger.job.reason) == ("Failed", reasons.SAME_ERROR_AGAIN)
    assert "the same error at step 7 for the second time" in bench.ledger.job.message


@pytest.mark.parametrize(
    ("first", "again", "same"),
    [
        pytest.param({"step": None, "line": 7}, {"step": None, "line": 8}, True, id="next-line"),
        pytest.param({"step": None, "line": 7}, {"step": None, "line": 70}, False, id="other-line"),
        pytest.param({"step": 4}, {"step": 5}, False, id="next-step"),
        pytest.param({"step": 4}, {"step": 40}, False, id="another-step"),
        pytest.param({"step": 4}, {"step": None, "line": 4}, False, id="a-step-is-no-line"),
    ],
)
def test_ranks_that_print_into_one_log_make_the_same_error_at_about_the_same_place(
    first, again, same
):
    def at(attempt: int, step: int | None, line: int = 3) -> InstanceDiagnosis:
        found = told(MINE, attempt, step=step, text="ValueError: no such shard")
        return replace(found, cause=replace(found.cause, line=line))

    bench = failed(job(), at(0, **first), at(1, **again))
    assert (bench.ledger.job.reason == reasons.SAME_ERROR_AGAIN) is same


@pytest.mark.parametrize(
    "cause",
    [
        pytest.param({"id": "data-corrupt", "category": "data", "retryable": "no"}, id="data"),
        pytest.param({"id": "data-late", "category": "data", "retryable": "yes"}, id="passes"),
        pytest.param({"id": "config-error", "category": "configuration"}, id="configuration"),
        pytest.param(OOM, id="another-class-that-needs-a-change"),
    ],
)
@pytest.mark.parametrize("step", [4, None])
def test_whatever_needs_a_change_is_not_tried_a_third_time(cause, step):
    cause = {"retryable": "no", **cause, "confidence": 0.66}
    bench = failed(job(), *(told(cause, attempt, step=step) for attempt in range(3)))
    assert (bench.state, bench.ledger.job.reason) == ("Failed", reasons.SAME_ERROR_AGAIN)
    assert (bench.of().attempt, sum(bench.charged().values())) == (1, 1)


@pytest.mark.parametrize(
    "cause",
    [
        pytest.param(OOM | {"confidence": 0.4}, id="hardly-sure"),
        pytest.param(LOST, id="passes"),
        pytest.param(OOM | {"id": "unknown", "confidence": 0.6}, id="unknown"),
    ],
)
def test_what_may_pass_is_tried_a_third_time(cause):
    bench = failed(job(), *(told({"confidence": 0.66, **cause}, each, step=4) for each in range(2)))
    assert (bench.state, bench.of().attempt) == ("Running", 2)


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
    assert failed(job(), told(MINE, 0), told(MINE | {"line": 30}, 1)).state == "Running"
    assert failed(job(), told(MINE, 0), told(MINE, 1, text="Boom: 2")).state == "Running"


def test_once_is_one_more_try():
    assert failed(job(), told(SEGFAULT, 0, step=1)).state == "Running"
    bench = failed(job(), told(SEGFAULT, 0, step=1), told(SEGFAULT, 1, step=9))
    assert bench.ledger.job.reason == reasons.NOT_RETRYABLE


def late(spec: Any, diagnosis: InstanceDiagnosis, *, seconds: float = 0.0) -> Bench:
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
    assert bench.ledger.job.condition == "Failed", "not SubmitFailed: it ran"
    entry = bench.of()
    assert (entry.state, entry.attempt, entry.end.exit_code, entry.restarts) == ("failed", 0, 1, 0)
    assert bench.charged() == {}
    assert bench.root_cause.attempt == 0


@pytest.mark.parametrize(
    ("last_words", "words"),
    [
        pytest.param("Boom: 2", "exit code 1: last line: Boom: 2", id="its-last-line"),
        pytest.param(None, "exit code 1", id="nothing-more-is-known"),
    ],
)
@pytest.mark.parametrize("scope", ["Instance", "Role", "Job"])
def test_who_failed_beside_it_is_told_as_it_ended_not_as_restarted(scope, last_words, words):
    spec = job(role("worker", 3), backoff_initial_seconds=5, scope=scope)
    bench = Bench(spec).settle()
    bench.end("worker", 0, 1).end("worker", 1, 1).step()
    if last_words is not None:
        bench.last_words = {AttemptKey(InstanceKey("worker", 1), 0, 0): last_words}
    bench.diagnoses = [told(OOM)]
    bench.settle()
    assert bench.root_cause.index == 0
    other = bench.of("worker", 1)
    assert (other.state, other.attempt, other.end.exit_code) == ("failed", 0, 1)
    assert (other.message, other.restarts, bench.charged()) == (words, 0, {})
    document = rollup(
        spec, bench.ledger, run_id="run", progress={}, usage=(), output=None, now=bench.now
    )
    row = document["instances"][1]
    assert (row["attempt"], row["state"], row["exit_code"]) == (0, "failed", 1)
    assert document["roles"]["worker"]["restarts"] == 0


def test_a_restart_that_never_began_is_taken_back_when_the_run_is_killed():
    bench = Bench(job(backoff_initial_seconds=5)).settle()
    bench.end("worker", 0, 1).step()
    bench.request("kill").settle()
    entry = bench.of()
    assert (bench.state, entry.state, entry.attempt, entry.end.exit_code) == (
        "Stopped",
        "failed",
        0,
        1,
    )
    assert bench.charged() == {}


def test_a_restart_that_has_begun_is_not_taken_back():
    bench = Bench(job(role("worker", 2), scope="Instance")).settle()
    bench.end("worker", 1, 1).settle().later(60).settle()
    assert bench.of("worker", 1).attempt == 1
    bench.diagnoses = [told(OOM)]
    bench.end("worker", 0, 1).settle()
    other = bench.of("worker", 1)
    assert (other.state, other.attempt, other.restarts) == ("stopped", 1, 1)


def test_an_attempt_that_somebody_asked_for_is_not_taken_back():
    bench = Bench(job(backoff_initial_seconds=5)).settle()
    bench.end("worker", 0, 1).step()
    bench.diagnoses = [told(OOM)]
    bench.request("reopen").settle()
    assert (bench.state, bench.of().attempt) == ("Running", 1)


def test_a_restart_that_has_begun_goes_on_and_the_next_failure_is_the_last():
    spec = job(backoff_initial_seconds=5)
    bench = late(spec, told(MINE, 0, step=7), seconds=6)
    assert (bench.state, bench.of().attempt) == ("Running", 1)
    assert bench.ledger.job.restarts[0].cause == "python-exception"
    bench.diagnoses = [told(MINE, 1, step=7)]
    bench.end("worker", 0, 1).settle()
    assert bench.ledger.job.reason == reasons.SAME_ERROR_AGAIN


@pytest.mark.parametrize("scope", ["Instance", "Role", "Job"])
def test_what_is_restarted_waits_for_a_diagnosis_that_is_under_way(scope):
    bench = Bench(job(role("worker", 2), backoff_initial_seconds=0, scope=scope)).settle()
    bench.undiagnosed = {AttemptKey(InstanceKey("worker", 0), 0, 0)}
    bench.end("worker", 0, 1).settle()
    assert not [each for each in bench.objects.values() if each.attempt]
    bench.undiagnosed, bench.diagnoses = set(), [told(OOM)]
    bench.settle()
    assert (bench.state, bench.ledger.job.reason) == ("Failed", reasons.NOT_RETRYABLE)
    assert bench.charged() == {}


@pytest.mark.parametrize("diagnoses", [pytest.param([], id="none-came"), [told(LOST)]])
def test_what_waited_for_a_diagnosis_begins_when_nothing_speaks_against_it(diagnoses):
    bench = Bench(job(backoff_initial_seconds=0)).settle()
    bench.undiagnosed = {AttemptKey(InstanceKey("worker", 0), 0, 0)}
    bench.end("worker", 0, 1).settle()
    bench.undiagnosed, bench.diagnoses = set(), diagnoses
    bench.settle()
    assert (bench.state, bench.of().attempt) == ("Running", 1)
    assert sum(bench.charged().values()) == 1


def test_others_do_not_wait_for_the_diagnosis_of_one():
    spec = job(role("worker", 2), backoff_initial_seconds=0, scope="Instance")
    bench = Bench(spec).settle()
    bench.undiagnosed = {AttemptKey(InstanceKey("worker", 0), 0, 0)}
    bench.end("worker", 0, 1).end("worker", 1, 1).settle()
    assert [(each.index, each.attempt) for each in bench.objects.values()] == [(1, 1)]


NOT_FOUND = {"id": "container-start-error", "category": "configuration", "retryable": "no"}


@pytest.mark.parametrize(
    ("end", "why"),
    [
        pytest.param(
            {"exit_code": 127, "reason": "StartError", "message": "pyhton: command not found"},
            "exit code 127 (StartError): pyhton: command not found",
            id="our-agent",
        ),
        pytest.param(
            {
                "exit_code": 128,
                "reason": "StartError",
                "message": 'runc create failed: exec: "pyhton": executable file not found in $PATH: unknown',
            },
            "exit code 128 (StartError): pyhton: command not found",
            id="kubelet",
        ),
        pytest.param(
            {"exit_code": 126},
            "exit code 126: the command cannot start",
            id="nobody-says-more",
        ),
    ],
)
def test_a_command_that_cannot_start_is_never_restarted(end, why):
    bench = Bench(job()).settle()
    bench.end("worker", 0, end.pop("exit_code"), **end).settle()
    status = bench.ledger.job
    assert (bench.state, status.reason) == ("Failed", reasons.NOT_RETRYABLE)
    told_of = f"worker-0: {why}; it needs a change first"
    assert status.message == told_of
    guilty = bench.ledger.roles["worker"]
    assert (guilty.state, guilty.message) == ("Failed", told_of)
    assert bench.charged() == {}


def test_a_script_that_is_not_there_is_seen_at_once_by_the_last_line():
    words = "python: can't open file '/app/nothere.py': [Errno 2] No such file or directory"
    bench = Bench(job()).settle()
    bench.last_words[AttemptKey(InstanceKey("worker", 0), 0, 0)] = words
    bench.end("worker", 0, 2).settle()
    assert bench.ledger.job.reason == reasons.NOT_RETRYABLE
    assert bench.ledger.job.message == f"worker-0: exit code 2: {words}; it needs a change first"
    assert bench.said("InstanceRestarted") == []


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (2, "usage: train.py [-h]"),
        (1, "python: can't open file 'a.py': [Errno 2] No such file or directory"),
        (2, "can't open file 'a.py': [Errno 13] Permission denied"),
    ],
)
def test_other_last_lines_leave_it_to_the_diagnosis(code, words):
    bench = Bench(job()).settle()
    bench.last_words[AttemptKey(InstanceKey("worker", 0), 0, 0)] = words
    bench.end("worker", 0, code).settle()
    assert len(bench.said("InstanceRestarted")) == 1


def test_of_a_shell_that_does_not_find_a_command_its_words_are_told():
    text = "bash: line 1: pyhton: command not found"
    bench = Bench(job()).settle()
    bench.diagnoses = [replace(told(NOT_FOUND, text=text), exit_code=127)]
    bench.end("worker", 0, 127).settle()
    told_of = f"worker-0: exit code 127: {text}; it needs a change first"
    assert bench.ledger.job.message == told_of


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(job(rules=(rule("RestartInstance", on_exit_codes=(127,)),)), id="rule"),
        pytest.param(
            job(
                role("worker", restart_policy="ExitCode"),
                exit_codes=ExitCodeTable(name="mine", retryable=(127,)),
            ),
            id="table",
        ),
    ],
)
def test_a_command_that_cannot_start_is_tried_again_where_the_job_says_so(spec):
    bench = Bench(spec).settle()
    bench.end("worker", 0, 127).settle()
    assert (bench.state, bench.of().attempt) == ("Running", 1)


def test_a_node_that_is_lost_is_no_command_that_cannot_start():
    bench = Bench(job()).settle()
    bench.end("worker", 0, 127, reason="NodeShutdown").settle()
    assert bench.charged() == {"infrastructure": 1}


@pytest.mark.parametrize("step", [None, 0, 5])
@pytest.mark.parametrize(
    "text",
    [
        "ModuleNotFoundError: No module named 'torchh'",
        "[rank1]: ImportError: pkg requires torch>=2",
        "SyntaxError: '(' was never closed",
        "IndentationError: unexpected indent",
    ],
)
def test_a_script_that_cannot_be_imported_is_not_tried_again_before_it_trains(text, step):
    bench = failed(job(), told(MINE, text=text, step=step))
    if step:
        assert bench.state == "Running"
    else:
        assert (bench.state, bench.ledger.job.reason) == ("Failed", reasons.NOT_RETRYABLE)
        told_of = f"worker-0: exit code 1: {text}"
        assert bench.ledger.job.message == f"{told_of}; it needs a change first"


def test_a_diagnosis_of_nothing_that_counts_changes_nothing():
    bench = late(job(backoff_initial_seconds=5), told(OOM, attempt=4))
    assert (bench.state, bench.of().attempt) == ("Running", 1)


KNOWN: dict[str, Any] = {
    "id": "unknown",
    "category": "infrastructure",
    "retryable": "once",
    "confidence": 0.3,
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
    merged = with_diagnosis(RootCause(**known), DiagnosedCause(**found), reasons=REASONS)
    assert (merged.id, merged.exit_code) == expected


@pytest.mark.parametrize(
    "ended", [{"exit_code": None, "signal": 9}, {"exit_code": 137}, {"exit_code": 3}]
)
def test_who_was_killed_goes_before_who_lost_it(ended):
    """Whatever ended it: a lost peer explains nothing where another one is known to have failed."""
    known = RootCause(**{**KNOWN, "index": 1, "attempt": 0, **ended})
    told: dict[str, Any] = {**LOST, "confidence": 0.9, "role": "worker", "index": 0}
    merged = with_diagnosis(known, DiagnosedCause(**told, attempt=0), reasons=REASONS)
    assert (merged.key, merged.signal, merged.id) == (known.key, ended.get("signal"), "unknown")


@pytest.mark.parametrize(
    ("message", "index", "expected"),
    [
        pytest.param("exit code 3", 2, ("unknown", 1), id="another-lost-it"),
        pytest.param("exit code 3", 1, ("peer-connection-lost", 1), id="itself-lost-one"),
        pytest.param("its disk is full", 2, ("peer-connection-lost", 2), id="not-wordless"),
    ],
)
def test_who_lost_a_peer_is_no_root_cause_beside_one_that_ended_first(message, index, expected):
    known = RootCause(**{**KNOWN, "index": 1, "attempt": 0, "exit_code": 3, "message": message})
    told: dict[str, Any] = {**LOST, "confidence": 0.3, "role": "worker", "index": index}
    found = DiagnosedCause(**told, attempt=0)
    merged = with_diagnosis(known, found, reasons=REASONS)
    assert (merged.id, merged.index) == expected


# peers that restart alone ---------------------------------------------------------------------------
UNAVAILABLE = LOST | {"id": "tensorflow-unavailable"}


def peer(index: int, cause: dict[str, Any], attempt: int = 0, **facts: Any) -> InstanceDiagnosis:
    given: dict[str, Any] = {"key": InstanceKey("worker", index), "finished_at": 1000.0}
    return replace(told(cause, attempt), **given | facts)


def group(**changes: Any) -> Bench:
    return Bench(job(role("worker", 3, backoff_limit=1), scope="Instance", **changes)).settle()


def test_what_the_loss_of_one_does_to_its_peers_costs_nothing():
    bench = group().end("worker", 1, None, signal=9).settle()
    bench.diagnoses = [peer(0, UNAVAILABLE), peer(2, LOST)]
    bench.end("worker", 0, 1).end("worker", 2, 1).settle()
    assert bench.charged() == {"infrastructure": 1}
    assert [bench.of("worker", i).attempt for i in range(3)] == [1, 1, 1]
    assert [bench.of("worker", i).restarts for i in range(3)] == [0, 1, 0]
    free = [each for each in bench.events if each.reason == reasons.FAILURE_IS_CONSEQUENCE]
    assert [each.index for each in free] == [0, 2]


def test_what_is_known_late_costs_nothing_either():
    bench = group(backoff_initial_seconds=5).end("worker", 1, None, signal=9).settle()
    bench.end("worker", 0, 1).settle()
    assert sum(bench.charged().values()) == 2
    bench.diagnoses = [peer(0, UNAVAILABLE)]
    bench.settle()
    assert bench.charged() == {"infrastructure": 1}
    assert bench.of("worker", 0).restarts == 0


@pytest.mark.parametrize(
    ("second", "end"),
    [
        pytest.param(peer(0, MINE), {"exit_code": 1}, id="its-own-error"),
        pytest.param(
            peer(0, UNAVAILABLE, exit_code=None, signal=9),
            {"exit_code": None, "signal": 9},
            id="killed",
        ),
        pytest.param(peer(0, UNAVAILABLE, finished_at=1700.0), {"exit_code": 1}, id="long-after"),
        pytest.param(peer(0, UNAVAILABLE | {"confidence": 0.1}), {"exit_code": 1}, id="a-guess"),
    ],
)
def test_a_second_failure_of_its_own_is_charged(second, end):
    bench = group().end("worker", 1, None, signal=9).settle()
    bench.diagnoses = [second]
    bench.end("worker", 0, **end).settle()
    assert sum(bench.charged().values()) == 2


def test_a_peer_is_free_once_for_each_failure_that_was_charged():
    bench = group().end("worker", 1, None, signal=9).settle()
    bench.diagnoses = [peer(0, UNAVAILABLE)]
    bench.end("worker", 0, 1).later(1).settle()
    bench.diagnoses = [peer(0, UNAVAILABLE, attempt=1, finished_at=bench.now)]
    bench.end("worker", 0, 1).settle()
    assert bench.charged() == {"infrastructure": 2}


def test_what_a_preemption_does_to_its_peers_costs_nothing_either():
    bench = group().end("worker", 1, 143, disrupted=True).settle()
    bench.diagnoses = [peer(0, UNAVAILABLE)]
    bench.end("worker", 0, 1).settle()
    assert bench.charged() == {"preemption": 1}
    assert len(bench.said(reasons.FAILURE_IS_CONSEQUENCE)) == 1


def test_what_a_move_off_an_unfit_node_does_to_its_peers_costs_nothing_either():
    move = RestartRecord(
        key=InstanceKey("worker", 1), at=1000.0, failure_class="infrastructure", scope="Instance",
        rule=MOVED, counted=False, attempt=0,
    )  # fmt: skip
    lost = peer(0, UNAVAILABLE, finished_at=1005.0)
    assert origin_of(lost, [move], started_at=900.0, said_by_runtime=False) == move


def test_what_began_again_after_its_success_excuses_nobody():
    again = role("worker", 3, restart_policy="Always", backoff_limit=9)
    bench = Bench(job(again, scope="Instance")).settle().end("worker", 1, 0).settle()
    bench.diagnoses = [peer(0, UNAVAILABLE)]
    bench.end("worker", 0, 1).settle()
    assert bench.said(reasons.FAILURE_IS_CONSEQUENCE) == []


def test_the_same_words_without_a_failure_before_are_charged():
    bench = group()
    bench.diagnoses = [peer(0, UNAVAILABLE)]
    bench.end("worker", 0, 1).settle()
    assert bench.charged() == {"infrastructure": 1}
