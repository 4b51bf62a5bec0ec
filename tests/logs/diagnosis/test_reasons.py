"""A reason that an instance failed with, and what its agent prints of it, name a cause: the proof is never beside `unknown`."""

from __future__ import annotations

import pytest

from airflow_training.logs.diagnosis.catalogue import load
from airflow_training.logs.diagnosis.facts import events_of
from airflow_training.logs.model import InstanceFact
from airflow_training.runtimes.registry import every_reason
from tests.logs.diagnosis.asking import ask

ALL = every_reason()
STEPS = "step 1 loss 2.0\nstep 2 loss 1.9\n"


@pytest.mark.parametrize("reason", sorted(ALL))
def test_a_reason_has_a_cause(reason):
    fact = InstanceFact(role="worker", index=0, reason=reason, message="as it was told")
    catalogue = load()
    found = max(events_of([fact], catalogue=catalogue), key=lambda each: each.confidence)
    assert found.cause.id != "unknown"
    facts = ALL[reason]
    if facts.cause:
        assert found.cause.id == facts.cause
    if facts.another_try == "never":
        assert found.cause.retry == "no"


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        pytest.param(
            "airflow-training: not ready after 60.2 s: store: nothing can be written below s3://c",
            "store-not-ready",
            id="store",
        ),
        pytest.param(
            "airflow-training: no checkpoint can be restored or committed: it ended before it had looked",
            "store-not-ready",
            id="restore",
        ),
        pytest.param("worker-0: StoreNotReady: not ready", "store-not-ready", id="store-reason"),
        pytest.param(
            "airflow-training: not ready after 60.1 s: devices: 7 of 8 are there",
            "environment-not-ready",
            id="devices",
        ),
        pytest.param(
            "airflow-training: the code cannot be fetched from s3://code: TimeoutError()",
            "setup-failed",
            id="code",
        ),
        pytest.param(
            "airflow-training: train.py is another one; nothing of it was executed",
            "setup-refused",
            id="damaged",
        ),
    ],
)
def test_what_the_agent_prints_names_the_cause(line, cause):
    found = ask(f"{line}\n")
    assert not found.healthy
    assert found.causes[0].id == cause


def test_what_was_ready_at_last_is_no_failure():
    waited = "airflow-training: not ready, checked again for up to 60 s: store: timed out\n"
    assert ask(f"{waited}airflow-training: ready after 3.20 s, checked: store\n{STEPS}").healthy


@pytest.mark.parametrize(
    "line",
    [
        "summary: numPackagesFailed: 0",
        "PackagesFailed: 0",
        "VectorStoreNotReady: false",
        "hook: RestoreFailed, starting anew",
    ],
)
def test_names_that_a_script_has_given_are_no_reasons_of_ours(line):
    assert ask(f"step 1 loss 2.0\n{line}\nstep 2 loss 1.9\n").healthy


def test_what_the_store_says_explains_more_than_that_it_is_not_ready():
    line = "airflow-training: not ready after 60.2 s: store: NoCredentialsError: Unable to locate credentials\n"
    assert ask(line).causes[0].id == "object-store-credentials"
