"""Whether another try of a failed instance can help, row by row, and what becomes of the answer."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_training.control import reasons
from airflow_training.control.attempts import AttemptId
from airflow_training.control.causes import DiagnosedCause
from airflow_training.control.failures import Failure, classify
from airflow_training.control.observations import InstanceDiagnosis
from airflow_training.control.retry_prospect import prospect_of
from airflow_training.documents.instances import InstanceKey
from airflow_training.runtimes.kubernetes.reasons import REASONS
from tests.builders import Bench, job, role, rule

NOT_FOUND = (
    'failed to pull and unpack image "docker.io/team/trian:7": failed to resolve reference'
    ' "docker.io/team/trian:7": docker.io/team/trian:7: not found'
)
WRONG_PLATFORM = "no match for platform in manifest sha256:0a1b: not found"
TOO_MANY = "429 Too Many Requests - Server message: toomanyrequests: You have reached your limit"


def failure(*, reason: str = "Error", message: str = "", **facts: Any) -> Failure:
    known = REASONS.get(reason)
    given = {"exit_code": None, "signal": None} | facts
    codes = {name: given[name] for name in ("exit_code", "signal")}
    return Failure(
        key=InstanceKey("worker", 0),
        attempt_id=AttemptId(),
        at=1.0,
        reason=reason,
        message=message,
        known=known,
        failure_class=classify(known=known, disrupted=False, **codes),
        **given,
    )


def diagnosed(cause: str, *, category: str = "configuration", retryable: str) -> InstanceDiagnosis:
    found = DiagnosedCause(
        id=cause, category=category, retryable=retryable, confidence=0.9, evidence="why", line=3
    )
    return InstanceDiagnosis(key=InstanceKey("worker", 0), attempt_id=AttemptId(), cause=found)


@pytest.mark.parametrize(
    ("facts", "answer"),
    [
        # what the server or the container says
        ({"reason": "CannotBeCreated", "message": "spec.containers[0].image: Required"}, "never"),
        ({"reason": "CannotBePrepared", "message": "metadata.name: Invalid value"}, "never"),
        ({"reason": "InvalidImageName"}, "never"),
        ({"reason": "SignatureValidationFailed"}, "never"),
        ({"reason": "AgentNeedsPython"}, "never"),
        ({"reason": "CheckpointRefused"}, "never"),
        ({"reason": "OutputFailed", "message": "no bucket", "exit_code": 0}, "never"),
        ({"reason": "ErrImageNeverPull"}, "perhaps"),
        ({"reason": "ImageInspectError"}, "perhaps"),
        ({"reason": "CreateContainerConfigError", "message": 'secret "key" not found'}, "perhaps"),
        ({"reason": "CreateContainerError"}, "perhaps"),
        ({"reason": "RunContainerError"}, "perhaps"),
        ({"reason": "ContainerCannotRun"}, "perhaps"),
        ({"reason": "PodNotReadyToStart"}, "perhaps"),
        # what a registry says
        ({"reason": "ErrImagePull", "message": NOT_FOUND}, "never"),
        ({"reason": "ImagePullBackOff", "message": f"Back-off pulling image: {NOT_FOUND}"}, "never"),
        ({"reason": "ErrImagePull", "message": "unexpected status: 401 Unauthorized"}, "never"),
        ({"reason": "ErrImagePull", "message": "pull access denied, repository does not exist"}, "never"),
        ({"reason": "ErrImagePull", "message": "manifest for team/train:7 not found: manifest unknown"}, "never"),
        ({"reason": "ErrImagePull", "message": "no basic auth credentials"}, "never"),
        ({"reason": "ErrImagePull", "message": WRONG_PLATFORM}, "perhaps"),
        ({"reason": "ErrImagePull", "message": TOO_MANY}, "perhaps"),
        ({"reason": "ErrImagePull", "message": "unexpected status code 503 Service Unavailable"}, "perhaps"),
        ({"reason": "ErrImagePull", "message": "dial tcp 10.0.0.1:443: i/o timeout"}, "perhaps"),
        ({"reason": "ErrImagePull", "message": "lookup registry.example on 10.0.0.10:53: no such host"}, "perhaps"),
        ({"reason": "ImagePullBackOff", "message": 'Back-off pulling image "team/train:512"'}, "perhaps"),
        ({"reason": "RegistryUnavailable"}, "perhaps"),
        # exit codes
        ({"exit_code": 126}, "never"),
        ({"exit_code": 127}, "never"),
        ({"exit_code": 127, "step": 40}, ""),
        ({"exit_code": 128, "reason": "StartError", "message": 'exec: "trian": executable file not found in $PATH'}, "never"),
        ({"exit_code": 1}, ""),
        ({"exit_code": 127, "reason": "Evicted"}, ""),
        # what the log says
        ({"exit_code": 1, "diagnosed": diagnosed("config", retryable="no")}, "never"),
        ({"exit_code": 1, "diagnosed": diagnosed("nccl", category="infrastructure", retryable="yes")}, ""),
        ({"reason": "ErrImagePull", "message": TOO_MANY, "diagnosed": diagnosed("image-pull-failure", retryable="no")}, "perhaps"),
        # the platform's own
        ({"reason": "NodeLost"}, ""),
        ({"reason": "OOMKilled", "exit_code": 137}, ""),
    ],
)  # fmt: skip
def test_the_answer_follows_from_facts(facts, answer):
    found = prospect_of(failure(**facts), [], last_try=False, code_is_listed=False)
    assert found.answer == answer
    assert bool(found.message) == (answer == "never")


def test_one_more_try_is_all_that_perhaps_promises():
    known = failure(reason="RunContainerError", message="cannot mount /dev/x")
    again = prospect_of(known, [], last_try=True, code_is_listed=False)
    assert (again.answer, again.reason) == ("never", reasons.NOT_RETRYABLE)
    assert again.message == "RunContainerError: cannot mount /dev/x, again after one more try"


def test_a_code_that_the_job_lists_is_tried_again_but_not_what_can_never_be():
    listed = failure(exit_code=127)
    assert prospect_of(listed, [], last_try=False, code_is_listed=True).answer == ""
    refused = failure(reason="InvalidImageName")
    assert prospect_of(refused, [], last_try=False, code_is_listed=True).answer == "never"


PULL = {"exit_code": None, "reason": "ErrImagePull", "message": TOO_MANY, "node": "n-1"}
"""Of instances that find no image in time."""


def unable(bench: Bench, **facts: Any) -> Bench:
    """Let the instance fail before it has run."""
    bench.settle(starting=False)
    bench.end("worker", **{**PULL, **facts}).step()
    return bench


@pytest.mark.parametrize("policy", ["OnFailure", "Always"])
def test_a_registry_that_says_later_gets_one_more_try_on_another_node(policy):
    bench = unable(Bench(job(role(restart_policy=policy), max_restarts=9)))
    assert bench.of().avoid_nodes == ("n-1",)
    bench.later(100.0)
    unable(bench)
    job_ = bench.ledger.job
    assert (job_.state, job_.reason) == ("Failed", reasons.NOT_RETRYABLE)
    assert (bench.of().attempt, bench.charged()) == (1, {"user": 1})
    assert job_.message.endswith("again after one more try")
    assert "429 Too Many Requests" in job_.message


def test_an_attempt_that_ran_earns_another_try():
    bench = unable(Bench(job(role(), max_restarts=9)))
    bench.later(100.0).settle()
    assert bench.of().state == "running"
    assert not bench.of().last_try
    bench.end("worker", exit_code=1).step()
    bench.later(100.0)
    unable(bench)
    assert bench.state != "Failed"
    bench.later(100.0)
    assert unable(bench).state == "Failed"


def test_another_failure_between_does_not_use_up_the_one_more_try():
    bench = unable(Bench(job(role(), max_restarts=9)))
    bench.later(100.0)
    unable(bench, reason="Vanished", message="")
    bench.later(100.0)
    assert unable(bench).state != "Failed"


def test_a_rule_that_names_the_reason_is_the_users_own_word():
    rules = (rule("RestartInstance", on_reasons=("ErrImagePull",)),)
    bench = Bench(job(role(backoff_limit=9), rules=rules, max_restarts=9))
    for _ in range(3):
        unable(bench, message=NOT_FOUND)
        bench.later(100.0)
    assert (bench.state, bench.of().restarts) == ("Starting", 3)


def test_reopening_a_run_begins_anew_with_tries():
    bench = unable(Bench(job(role())))
    bench.later(100.0)
    unable(bench)
    bench.settle(starting=False).request("reopen").step()
    assert not bench.of().last_try
    assert unable(bench).state != "Failed"


# an output that could not be uploaded ---------------------------------------------------------------
STORAGE = "the output could not be uploaded: s3://models/digits: TimeoutError()"


@pytest.mark.parametrize("policy", ["OnFailure", "Always", "ExitCode", "Never"])
@pytest.mark.parametrize(
    ("message", "retryable"),
    [
        pytest.param(
            "the output could not be uploaded: s3://b: PermissionError()", "no", id="refused"
        ),
        pytest.param(f"{STORAGE} (tried 5 times)", "once", id="away"),
    ],
)
def test_a_training_whose_output_is_not_uploaded_is_not_run_again(message, retryable, policy):
    bench = Bench(job(role(restart_policy=policy))).settle()
    bench.end("worker", 0, 0, state="failed", reason="OutputFailed", message=message).settle()
    job_ = bench.ledger.job
    root = bench.root_cause
    assert (job_.state, bench.of().attempt, bench.charged()) == ("Failed", 0, {})
    assert (job_.reason, job_.message) == ("OutputFailed", f"worker-0: {message}")
    assert (root.id, root.retryable, root.reason) == (
        "output-failed",
        retryable,
        "OutputFailed",
    )
    assert root.index == 0


def test_it_is_run_again_where_a_rule_says_so():
    rules = (rule("RestartInstance", on_reasons=("OutputFailed",)),)
    bench = Bench(job(rules=rules)).settle()
    bench.end("worker", 0, 0, state="failed", reason="OutputFailed", message=STORAGE).settle()
    assert (bench.state, bench.of().attempt) == ("Running", 1)
