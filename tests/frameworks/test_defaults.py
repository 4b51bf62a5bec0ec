"""Each default of the document, and who it comes from."""

from __future__ import annotations

import pytest

from airflow_training.frameworks.defaults import list_defaults
from airflow_training.frameworks.registry import load_for
from tests.frameworks.samples import a_job, resolve_job

OURS, FRAMEWORK, USER = "airflow-training", "framework", "user"
DIGITS = {"master": 1, "worker": 2}


def defaults_of(framework="pytorch", roles=DIGITS, **spec):
    job = a_job(framework, roles, **spec)
    made, problems = resolve_job(job, runtime="local")
    assert not problems, list(map(str, problems))
    loaded = load_for(job, base_dir="", fetch=False)
    entries = list_defaults(job, made, framework=loaded.framework.spec)
    fields = [entry["field"] for entry in entries]
    assert len(fields) == len(set(fields))
    return {entry["field"]: (entry["value"], entry["from"]) for entry in entries}


@pytest.mark.parametrize(
    ("field", "value", "origin"),
    [
        ("metadata.namespace", "default", OURS),
        ("spec.runtime.name", "local", OURS),
        ("spec.parameters.nprocPerNode", 1, FRAMEWORK),
        ("spec.roles[0].backoffLimit", 6, OURS),
        ("spec.roles[0].maxRestarts", None, OURS),
        ("spec.roles[0].minSucceeded", "All", OURS),
        ("spec.roles[0].minFailed", "Any", OURS),
        ("spec.roles[0].restartPolicy", "OnFailure", FRAMEWORK),
        ("spec.roles[0].tracked", True, FRAMEWORK),
        ("spec.roles[1].dependsOn", ["master"], FRAMEWORK),
        ("spec.roles[1].dependsOn[0].status", "AddressKnown", FRAMEWORK),
        ("spec.roles[1].dependsOn[0].timeoutSeconds", 600, OURS),
        ("spec.roles[1].dependsOn[0].pollSeconds", 1, OURS),
        ("spec.successPolicy", {"operator": "All", "targetRoles": ["master", "worker"]}, FRAMEWORK),
        ("spec.failurePolicy.operator", "Any", OURS),
        ("spec.restart.scope", "Job", FRAMEWORK),
        ("spec.restart.maxRestarts", 3, OURS),
        ("spec.restart.window", None, OURS),
        ("spec.restart.backoff.initialSeconds", 2, OURS),
        ("spec.restart.backoff.factor", 2, OURS),
        ("spec.restart.backoff.maxSeconds", 300, OURS),
        ("spec.restart.exitCodes", "default", FRAMEWORK),
        ("spec.restart.then", "Fail", OURS),
        ("spec.restart.maxFreshJobs", 1, OURS),
        ("spec.restart.freshFrom", "newest", OURS),
        ("spec.restart.readyTimeoutSeconds", 60, OURS),
        ("spec.restart.onOutOfMemory", None, OURS),
        ("spec.restart.keepFailedSeconds", 0, OURS),
        ("spec.schedulingPolicy.gang", "none", OURS),
        ("spec.schedulingPolicy.startup", "auto", OURS),
        ("spec.schedulingPolicy.priority", 0, OURS),
        ("spec.schedulingPolicy.minAvailable", 3, OURS),
        ("spec.schedulingPolicy.scheduleTimeoutSeconds", 3600, OURS),
        ("spec.schedulingPolicy.neverFits", "Wait", OURS),
        ("spec.schedulingPolicy.excludedNodes", "Avoid", OURS),
        ("spec.schedulingPolicy.preemptionPolicy", "Never", OURS),
        ("spec.schedulingPolicy.unfitNodes.action", "Warn", OURS),
        ("spec.schedulingPolicy.unfitNodes.maxMoves", 5, OURS),
        ("spec.schedulingPolicy.unfitNodes.conditions", None, OURS),
        ("spec.schedulingPolicy.unfitNodes.taints", None, OURS),
        ("spec.schedulingPolicy.unfitNodes.labels", {}, OURS),
        ("spec.activeDeadlineSeconds", None, OURS),
        ("spec.ttlSecondsAfterFinished", None, OURS),
        ("spec.cleanPodPolicy", "Running", OURS),
        ("spec.suspend", False, OURS),
        ("spec.reconcileSeconds", 10, OURS),
        ("spec.output.role", "master", FRAMEWORK),
    ],
)
def test_default_and_its_origin(field, value, origin):
    assert defaults_of()[field] == (value, origin)


@pytest.mark.parametrize(
    ("field", "value", "spec"),
    [
        ("spec.dag.schedule", None, {"dag": {}}),
        ("spec.dag.maxActiveRuns", 16, {"dag": {}}),
        ("spec.dag.catchup", False, {"dag": {}}),
        ("spec.checkpoint.everySeconds", 600, {"checkpoint": {"uri": "s3://c"}}),
        ("spec.schedulingPolicy.unfitNodes.action", "Move", {"checkpoint": {"uri": "s3://c"}}),
        ("spec.preflight.timeoutSeconds", 60, {"preflight": {"gpus": {}}}),
        ("spec.preflight.network.waitSeconds", 30, {"preflight": {"network": {}}}),
        ("spec.checkpoint.keep", 3, {"checkpoint": {"uri": "s3://c"}}),
        ("spec.checkpoint.resume", "latest", {"checkpoint": {"uri": "s3://c"}}),
        ("spec.restart.then", "FreshJob", {"checkpoint": {"uri": "s3://c"}}),
    ],
)
def test_default_inside_a_block_that_is_there(field, value, spec):
    assert defaults_of(**spec)[field] == (value, OURS)


@pytest.mark.parametrize(
    ("field", "value", "roles", "spec"),
    [
        ("spec.roles[0].replicas", 1, DIGITS, {}),
        ("spec.roles[0].backoffLimit", 2, {"master": {"backoffLimit": 2}}, {}),
        ("spec.roles[0].maxRestarts", 2, {"master": {"maxRestarts": 2}}, {}),
        ("spec.roles[0].tracked", False, {"master": {"tracked": False}, "worker": 1}, {}),
        ("spec.parameters.nprocPerNode", 4, DIGITS, {"parameters": {"nprocPerNode": 4}}),
        ("spec.restart.scope", "Role", DIGITS, {"restart": {"scope": "Role"}}),
        ("spec.runtime.name", "local", DIGITS, {"runtime": {"name": "local"}}),
        (
            "spec.schedulingPolicy.minAvailable",
            2,
            DIGITS,
            {"schedulingPolicy": {"minAvailable": 2}},
        ),
        (
            "spec.successPolicy",
            {"operator": "Any", "targetRoles": ["worker"]},
            DIGITS,
            {"successPolicy": {"operator": "Any", "targetRoles": ["worker"]}},
        ),
    ],
)
def test_what_the_user_wrote_is_the_users(field, value, roles, spec):
    assert defaults_of(roles=roles, **spec)[field] == (value, USER)


@pytest.mark.parametrize(
    ("framework", "roles", "field", "value"),
    [
        ("custom", {"a": 1}, "spec.roles[0].restartPolicy", "OnFailure"),
        ("custom", {"a": 1}, "spec.roles[0].tracked", True),
        ("custom", {"a": 1}, "spec.restart.scope", "Instance"),
        ("tensorflow", {"ps": 1, "worker": 1}, "spec.roles[0].tracked", False),
        ("mpi", {"launcher": 1, "worker": 1}, "spec.restart.scope", "Job"),
        ("mpi", {"launcher": 1, "worker": 1}, "spec.roles[1].command", ["sleep", "2147483647"]),
        ("jax", {"worker": 2}, "spec.restart.scope", "Job"),
        (
            "pytorch",
            {"worker": {"minReplicas": 1, "maxReplicas": 2}},
            "spec.restart.scope",
            "Job",
        ),
    ],
)
def test_default_of_the_framework(framework, roles, field, value):
    assert defaults_of(framework, roles)[field] == (value, FRAMEWORK)
