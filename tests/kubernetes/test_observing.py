"""What a pod's status means, case by case, as real clusters write it."""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections.abc import Iterable
from datetime import datetime, timezone
from typing import Any

import pytest

from airflow_training.control.failures import classify
from airflow_training.control.run_output import RunOutput
from airflow_training.runtimes.kubernetes import names
from airflow_training.runtimes.kubernetes.image_pulls import with_earlier_message
from airflow_training.runtimes.kubernetes.observing import (
    CANNOT_START_SECONDS,
    OVERDUE_SECONDS,
    SETTLE_SECONDS,
    SLOW_START_SECONDS,
    observe,
    observe_again_at,
)
from airflow_training.runtimes.kubernetes.pod_view import PodView
from airflow_training.runtimes.kubernetes.reasons import REASONS
from tests.kubernetes.samples import a_job, a_pod, a_role

NOW = 1_800_000_000.0


def at(seconds: float) -> str:
    """Return a time relative to NOW as the API server writes it."""
    return datetime.fromtimestamp(NOW + seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def terminated(code: int, reason: str = "", **keys: Any) -> dict[str, Any]:
    reason = reason or ("Completed" if code == 0 else "Error")
    times = {"startedAt": at(-60), "finishedAt": at(-10)}
    return {"terminated": {"exitCode": code, "reason": reason, **times, **keys}}


def just_ended(code: int, reason: str = "") -> dict[str, Any]:
    """Return the state of a container that ended a second ago."""
    return {"terminated": {**terminated(code, reason)["terminated"], "finishedAt": at(-1)}}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, **({"message": message} if message else {})}}


RUNNING = {"running": {"startedAt": at(-60)}}


def container(state: dict[str, Any], name: str = "main", **keys: Any) -> dict[str, Any]:
    running = "running" in state
    return {"name": name, "state": state, "ready": running, "started": running, **keys}


def condition(
    kind: str, status: str, reason: str = "", message: str = "", when: float = -60
) -> Any:
    found = {"type": kind, "status": status, "lastTransitionTime": at(when)}
    return {
        **found,
        **({"reason": reason} if reason else {}),
        **({"message": message} if message else {}),
    }


def pod(
    phase: str = "Running",
    *containers: dict[str, Any],
    node: str = "node-1",
    conditions: list[Any] | None = None,
    metadata: dict[str, Any] | None = None,
    spec: dict[str, Any] | None = None,
    held: bool = False,
    init: list[Any] | None = None,
    **status: Any,
) -> dict[str, Any]:
    made = a_pod(a_job(a_role(ports={"main": 2345})), held=held, index=1, attempt=2)
    made["metadata"] |= {"uid": "u-1", "resourceVersion": "9", **(metadata or {})}
    made["spec"] |= {"nodeName": node} if node else {}
    made["spec"] |= spec or {}
    made["status"] = {
        "phase": phase,
        "conditions": [condition("PodScheduled", "True")] if conditions is None else conditions,
        "containerStatuses": list(containers),
        **({"initContainerStatuses": init} if init else {}),
        **status,
    }
    return made


DELETED = {"deletionTimestamp": at(10), "deletionGracePeriodSeconds": 30}
"""Asked for 20 s ago: what ended 10 s ago was told to."""
EVICTED = condition(
    "DisruptionTarget", "True", "EvictionByEvictionAPI", "Eviction API: evicting", -20
)
UNSCHEDULABLE = "0/5 nodes are available: 2 Insufficient cpu, 3 node(s) had untolerated taint."

CASES = {
    # phases of a life
    "nothing-yet": (pod("Pending", node="", conditions=[]), "pending", "Scheduling", {"scheduled": False}),
    "unschedulable": (
        pod("Pending", node="", conditions=[condition("PodScheduled", "False", "Unschedulable", UNSCHEDULABLE)]),
        "pending", "Unschedulable", {"message": UNSCHEDULABLE, "scheduled": False},
    ),
    "gated": (
        pod(
            "Pending", node="",
            conditions=[condition("PodScheduled", "False", "SchedulingGated", "Scheduling is blocked")],
            spec={"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]},
        ),
        "pending", "SchedulingGated", {"message": "waits for kueue.x-k8s.io/admission", "scheduled": False},
    ),
    "placed": (pod("Pending"), "pending", "Starting", {"scheduled": True, "node": "node-1"}),
    "creating": (pod("Pending", container(waiting("ContainerCreating"))), "pending", "Starting", {}),
    "users-init-container": (
        pod("Pending", container(waiting("PodInitializing")), init=[container(RUNNING, "fetch")]),
        "pending", "Initializing", {"message": "init container 'fetch' runs", "held": False},
    ),
    "held": (
        pod("Pending", container(waiting("PodInitializing")), held=True,
            init=[container(RUNNING, names.AGENT_CONTAINER)]),
        "pending", "WaitingForDependency", {"held": True, "address_live": False},
    ),
    "held-beside-a-sidecar": (
        pod("Pending", container(waiting("PodInitializing")), held=True,
            init=[container(RUNNING, "proxy"), container(RUNNING, names.AGENT_CONTAINER)]),
        "pending", "WaitingForDependency", {"held": True},
    ),
    "running": (
        pod("Running", container(RUNNING), conditions=[condition("Ready", "True")]),
        "running", "Started",
        {"ready": True, "address_live": True, "port_open": True, "started_at": NOW - 60,
         "address": "digits-01234-worker-1.digits-01234-worker.team.svc:2345"},
    ),
    "not-ready": (
        pod("Running", container(RUNNING), conditions=[condition("Ready", "False", "ContainersNotReady")]),
        "running", "Started", {"ready": False, "address_live": True},
    ),
    "startup-probe-of-the-user": (
        pod("Running", container(RUNNING, started=False)),
        "running", "Started", {"address_live": False, "port_open": False},
    ),
    "startup-probe-of-ours": (
        pod("Running", container(RUNNING, started=False),
            metadata={"annotations": {names.PORT_PROBE: "true", names.CONTAINER: "main"}}),
        "running", "Started", {"address_live": True, "port_open": False},
    ),
    "restarted-inside": (
        pod("Running", container(RUNNING, restartCount=2, lastState=terminated(137, "OOMKilled"))),
        "running", "Started", {"message": "restarted 2 times inside the pod, last after OOMKilled (137)"},
    ),
    # ends
    "succeeded": (
        pod("Succeeded", container(terminated(0))),
        "succeeded", "Completed", {"exit_code": 0, "finished_at": NOW - 10, "signal": None},
    ),
    "succeeded-long-collected": (pod("Succeeded"), "succeeded", "Completed", {"exit_code": 0}),
    "exit-code": (
        pod("Failed", container(terminated(3, message="ValueError: no\n"))),
        "failed", "Error", {"exit_code": 3, "signal": None, "message": "ValueError: no", "class": "user"},
    ),
    "sidecar-lives-on-after-success": (
        pod("Running", container(RUNNING, "proxy"), container(terminated(0))),
        "succeeded", "Completed", {"exit_code": 0, "lingers": True},
    ),
    "sidecar-lives-on-after-failure": (
        pod("Running", container(RUNNING, "proxy"), container(terminated(1))),
        "failed", "Error", {"exit_code": 1, "lingers": True},
    ),
    "helper-died": (
        pod("Running", container(terminated(137, "OOMKilled"), "proxy"), container(RUNNING)),
        "running", "HelperDied", {"message": "container 'proxy' died with exit code 137 (OOMKilled)"},
    ),
    "helper-has-done-its-work": (
        pod("Running", container(terminated(0), "fetch"), container(RUNNING)),
        "running", "Started", {"message": ""},
    ),
    "helper-died-and-runs-again": (
        pod(
            "Running", container(RUNNING),
            init=[container(RUNNING, "shipper", lastState=terminated(2), restartCount=1)],
        ),
        "running", "HelperDied",
        {"message": "container 'shipper' died with exit code 2 (Error)"},
    ),
    "sidecar-failed-but-training-did-not": (
        pod("Failed", container(terminated(1), "proxy"), container(terminated(0))),
        "succeeded", "Completed", {"exit_code": 0, "lingers": False},
    ),
    "killed": (
        pod("Failed", container(terminated(137))),
        "failed", "Error", {"exit_code": 137, "signal": 9, "class": "infrastructure"},
    ),
    "terminated": (
        pod("Failed", container(terminated(143))),
        "failed", "Error", {"exit_code": 143, "signal": 15, "class": "infrastructure"},
    ),
    "segfault": (
        pod("Failed", container(terminated(139))),
        "failed", "Error", {"exit_code": 139, "signal": 11, "class": "user"},
    ),
    "signal-field": (
        pod("Failed", container(terminated(255, signal=9))), "failed", "Error", {"signal": 9},
    ),
    "exit-255-is-no-signal": (
        pod("Failed", container(terminated(255))), "failed", "Error", {"signal": None, "class": "unknown"},
    ),
    "oom": (
        pod("Failed", container(terminated(137, "OOMKilled", message="step 7\nstep 8\n"))),
        "failed", "OOMKilled",
        {
            "exit_code": 137, "signal": 9, "class": "resource",
            "message": "it used more memory than its limit",
        },
    ),
    "oom-while-the-node-is-drained": (
        pod("Failed", container(terminated(137, "OOMKilled")), conditions=[EVICTED]),
        "failed", "OOMKilled", {"class": "resource"},
    ),
    "evicted-by-the-kubelet": (
        pod("Failed", reason="Evicted", message="The node was low on resource: memory."),
        "failed", "Evicted",
        {"message": "The node was low on resource: memory.", "exit_code": None, "class": "resource"},
    ),
    "evicted-with-an-exit-code": (
        pod("Failed", container(terminated(137)), reason="Evicted", message="ephemeral-storage"),
        "failed", "Evicted", {"exit_code": 137},
    ),
    "drained": (
        pod("Failed", container(terminated(143)), conditions=[EVICTED], metadata=DELETED),
        "failed", "EvictionByEvictionAPI", {"disrupted": True, "class": "preemption", "exit_code": 143},
    ),
    "drained-and-left-politely": (
        pod("Succeeded", container(terminated(0)), conditions=[EVICTED]),
        "failed", "EvictionByEvictionAPI", {"disrupted": True, "class": "preemption"},
    ),
    "evicted-by-the-kubelet-which-says-so-last": (
        pod("Failed", container(terminated(0)), reason="Evicted", message="The node was low on resource: memory.",
            conditions=[condition("DisruptionTarget", "True", "TerminationByKubelet", "low", -8)]),
        "failed", "Evicted", {"disrupted": True, "class": "resource"},
    ),
    "node-shut-down-which-the-kubelet-says-last": (
        pod("Failed", container(terminated(143)), reason="Terminated", message="imminent node shutdown",
            conditions=[condition("DisruptionTarget", "True", "TerminationByKubelet", "shutdown", -8)]),
        "failed", "Terminated", {"disrupted": True, "class": "preemption"},
    ),
    "ended-and-the-kubelet-has-not-said-why": (
        pod("Running", container(just_ended(0))),
        "running", "Ending", {"address_live": False, "port_open": False, "ready": False, "exit_code": None},
    ),
    "killed-and-the-kubelet-has-not-said-why": (
        pod("Running", container(just_ended(137))), "running", "Ending", {"signal": None},
    ),
    "ended-on-its-own-beside-a-drain": (
        pod("Running", container(just_ended(143)), conditions=[EVICTED]),
        "failed", "EvictionByEvictionAPI", {"disrupted": True},
    ),
    "out-of-memory-needs-no-more-words": (
        pod("Running", container(just_ended(137, "OOMKilled"))), "failed", "OOMKilled", {"exit_code": 137},
    ),
    "deleted-and-just-ended": (
        pod("Running", container(just_ended(0)), metadata=DELETED), "failed", "Deleted", {"exit_code": 0},
    ),
    "over-and-just-ended": (
        pod("Succeeded", container(just_ended(0))), "succeeded", "Completed", {"exit_code": 0},
    ),
    "lost-when-the-node-booted": (
        pod("Failed", container(terminated(255, "Unknown"))),
        "failed", "ContainerStatusUnknown", {"class": "infrastructure", "exit_code": 255},
    ),
    "done-before-it-was-drained": (
        pod("Succeeded", container(terminated(0)),
            conditions=[condition("DisruptionTarget", "True", "DeletionByPodGC", "", when=-5)]),
        "succeeded", "Completed", {"disrupted": False},
    ),
    "preempted-by-the-scheduler": (
        pod("Failed", container(terminated(137)),
            conditions=[condition("DisruptionTarget", "True", "PreemptionByScheduler", "for vip", -20)]),
        "failed", "PreemptionByScheduler", {"disrupted": True, "message": "for vip"},
    ),
    "preempted-by-kueue": (
        pod("Failed", container(terminated(143)), metadata=DELETED,
            conditions=[condition("TerminationTarget", "True", "WorkloadEvictedDueToPreempted", "", -20)]),
        "failed", "WorkloadEvictedDueToPreempted", {"disrupted": True, "class": "preemption"},
    ),
    "preempting": (
        pod("Failed", reason="Preempting", message="Preempted in order to admit critical pod"),
        "failed", "Preempting", {"class": "preemption"},
    ),
    "own-deadline": (
        pod("Failed", container(terminated(0)), reason="DeadlineExceeded",
            message="Pod was active on the node longer than the specified deadline"),
        "failed", "DeadlineExceeded", {"exit_code": 0},
    ),
    "out-of-cpu": (pod("Failed", reason="OutOfcpu"), "failed", "OutOfcpu", {"class": "resource"}),
    "node-shut-down": (
        pod("Failed", container(terminated(143)), reason="Terminated", message="Pod was terminated in response to imminent node shutdown."),
        "failed", "Terminated", {"class": "infrastructure"},
    ),
    "status-unknown": (
        pod("Failed", container(terminated(137, "ContainerStatusUnknown"))),
        "failed", "ContainerStatusUnknown", {"class": "infrastructure"},
    ),
    "users-init-container-failed": (
        pod("Failed", container(waiting("PodInitializing")), init=[container(terminated(4, message="fetching\nno data"), "fetch")]),
        "failed", "Error", {"exit_code": 4, "message": "init container 'fetch' ended with exit code 4: no data", "finished_at": NOW - 10},
    ),
    # what cannot start
    "image-pull": (
        pod("Pending", container(waiting("ImagePullBackOff", 'Back-off pulling image "nope"'))),
        "pending", "ImagePullBackOff", {"message": "container 'main': Back-off pulling image \"nope\""},
    ),
    "image-pull-of-an-init-container": (
        pod("Pending", container(waiting("PodInitializing")), init=[container(waiting("ErrImagePull", "denied"), "fetch")]),
        "pending", "ErrImagePull", {"message": "container 'fetch': denied"},
    ),
    "image-pull-for-too-long": (
        pod("Pending", container(waiting("ImagePullBackOff", "gone")),
            conditions=[condition("PodScheduled", "True", when=-CANNOT_START_SECONDS)]),
        "failed", "ImagePullBackOff", {"class": "user", "message": "container 'main': gone"},
    ),
    "cannot-start-for-a-moment-after-a-long-init-container": (
        pod("Pending", container(waiting("CreateContainerConfigError", "secret not found")), init=[container(terminated(0), "fetch")],
            conditions=[condition("PodScheduled", "True", when=-2 * CANNOT_START_SECONDS)]),
        "pending", "CreateContainerConfigError", {},
    ),
    "bad-image-name": (
        pod("Pending", container(waiting("InvalidImageName"))), "failed", "InvalidImageName", {"class": "user"},
    ),
    "image-not-signed": (
        pod("Pending", container(waiting("SignatureValidationFailed", "no signature"))),
        "pending", "SignatureValidationFailed", {},
    ),
    "volumes-are-being-mounted": (
        pod("Pending", container(waiting("ContainerCreating")),
            conditions=[condition("PodScheduled", "True"), condition("PodReadyToStartContainers", "False")]),
        "pending", "Starting", {},
    ),
    "volumes-not-mounted-for-too-long": (
        pod("Pending", container(waiting("ContainerCreating")),
            conditions=[condition("PodScheduled", "True", when=-CANNOT_START_SECONDS), condition("PodReadyToStartContainers", "False")]),
        "failed", "PodNotReadyToStart", {"class": "infrastructure"},
    ),
    "a-large-image-takes-its-time": (
        pod("Pending", container(waiting("ContainerCreating")),
            conditions=[condition("PodScheduled", "True", when=-CANNOT_START_SECONDS), condition("PodReadyToStartContainers", "True")]),
        "pending", "Starting", {},
    ),
    "a-node-that-starts-nothing-and-says-nothing": (
        pod("Pending", container(waiting("ContainerCreating")),
            conditions=[condition("PodScheduled", "True", when=-SLOW_START_SECONDS), condition("PodReadyToStartContainers", "True")]),
        "failed", "ContainerCreating", {"class": "infrastructure"},
    ),
    "a-kubelet-that-says-nothing-at-all": (
        pod("Pending", conditions=[condition("PodScheduled", "True", when=-SLOW_START_SECONDS)]),
        "failed", "ContainerCreating", {"class": "infrastructure"},
    ),
    "its-init-container-has-ended-just-now": (
        pod("Pending", container(waiting("PodInitializing")), init=[container(terminated(0), "fetch")],
            conditions=[condition("PodScheduled", "True", when=-2 * SLOW_START_SECONDS)]),
        "pending", "Starting", {},
    ),
    "an-init-container-may-run-for-hours": (
        pod("Pending", container(waiting("PodInitializing")), init=[container(RUNNING, "fetch")],
            conditions=[condition("PodScheduled", "True", when=-2 * SLOW_START_SECONDS)]),
        "pending", "Initializing", {},
    ),
    "image-refused-for-good-said-once": (
        pod("Pending", container(waiting("ErrImagePull", "team/trian:7: not found"))), "pending", "ErrImagePull", {},
    ),
    "image-refused-for-good-said-twice": (
        pod("Pending", container(waiting("ImagePullBackOff", 'Back-off pulling image "team/trian:7": ErrImagePull: not found'))),
        "failed", "ImagePullBackOff", {"class": "user", "message": "container 'main': Back-off pulling image \"team/trian:7\": ErrImagePull: not found"},
    ),
    "image-refused-for-now-said-twice": (
        pod("Pending", container(waiting("ImagePullBackOff", "ErrImagePull: 429 Too Many Requests"))), "pending", "ImagePullBackOff", {},
    ),
    "secret-missing": (
        pod("Pending", container(waiting("CreateContainerConfigError", 'secret "key" not found'))),
        "pending", "CreateContainerConfigError", {"message": "container 'main': secret \"key\" not found"},
    ),
    "command-missing": (
        pod("Failed", container(terminated(128, "StartError", message='exec: "trian": executable file not found in $PATH'))),
        "failed", "StartError", {"class": "user"},
    ),
    "no-python-for-the-agent": (
        pod("Failed", container(terminated(128, "StartError", message='exec: "python3": executable file not found in $PATH: unknown'))),
        "failed", "AgentNeedsPython", {},
    ),
    "no-python-for-the-hold": (
        pod("Pending", held=True, init=[container(waiting("CreateContainerError", "executable file `python3` not found in $PATH"), names.AGENT_CONTAINER)]),
        "failed", "AgentNeedsPython", {},
    ),
    # leaving, and lost
    "terminating": (
        pod("Running", container(RUNNING), metadata=DELETED),
        "terminating", "Deleted", {"address_live": False, "state_since": NOW - 20, "message": ""},
    ),
    "terminating-for-too-long": (
        pod("Running", container(RUNNING), metadata={"deletionTimestamp": at(-300), "deletionGracePeriodSeconds": 30}),
        "terminating", "Overdue", {"message": f"node node-1 was to end it by {at(-300)} and has not said that it did"},
    ),
    "deleted-and-ended-by-it": (
        pod("Failed", container(terminated(143)), metadata=DELETED), "failed", "Deleted", {"exit_code": 143},
    ),
    "deleted-and-left-politely": (
        pod("Succeeded", container(terminated(0)), metadata=DELETED), "failed", "Deleted",
        {
            "exit_code": 0,
            "message": "it was deleted before it had ended by itself:"
            " its exit code 0 came after SIGTERM, and tells of no end of the training",
        },
    ),
    "deleted-after-its-end": (
        pod("Succeeded", container(terminated(0)), metadata={"deletionTimestamp": at(0), "deletionGracePeriodSeconds": 0}),
        "succeeded", "Completed", {},
    ),
    "deleted-before-it-had-a-node": (
        pod("Pending", node="", conditions=[], metadata=DELETED), "failed", "Deleted", {"exit_code": None},
    ),
    "node-lost": (
        pod("Running", container(RUNNING), reason="NodeLost"),
        "unknown", "NodeLost", {"message": "nothing is heard from node node-1; it may still run there"},
    ),
    "phase-unknown": (pod("Unknown", container(RUNNING)), "unknown", "NodeLost", {"address_live": False}),
    "ready-unknown": (
        pod("Running", container(RUNNING), conditions=[condition("Ready", "Unknown", "NodeStatusUnknown")]),
        "unknown", "NodeLost", {},
    ),
    "made-not-ready-by-the-node-controller": (
        pod("Running", container(RUNNING), conditions=[condition("Ready", "False")]), "unknown", "NodeLost", {},
    ),
    "deleted-on-a-lost-node": (
        pod("Running", container(RUNNING), metadata=DELETED,
            conditions=[condition("Ready", "False"), condition("DisruptionTarget", "True", "DeletionByTaintManager")]),
        "unknown", "NodeLost", {},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("seen", "state", "reason", "more"), CASES.values(), ids=list(CASES))
def test_what_a_pod_says(seen, state, reason, more):
    found = observe(PodView.of(seen), now=NOW)
    assert (found.state, found.reason) == (state, reason)
    more = dict(more)
    expected_class = more.pop("class", None)
    assert {name: getattr(found, name) for name in more} == more
    if expected_class:
        assert expected_class == classify(
            known=REASONS.get(found.reason),
            disrupted=found.disrupted,
            signal=found.signal,
            exit_code=found.exit_code,
        )
    assert (found.role, found.index, found.attempt, found.uid) == ("worker", 1, 2, "u-1")


@pytest.mark.parametrize("seen", [case[0] for case in CASES.values()], ids=list(CASES))
def test_looking_changes_nothing_and_says_the_same_again(seen):
    before = copy.deepcopy(seen)
    view = PodView.of(seen)
    assert observe(view, now=NOW) == observe(view, now=NOW) == observe(PodView.of(seen), now=NOW)
    assert seen == before


def a_view(*args: Any, **keys: Any) -> PodView:
    return PodView.of(pod(*args, **keys))


def test_what_an_agent_left_behind_is_the_output():
    said = '{"airflow-training": {"output": {"uri": "s3://o", "bytes": 3, "digest": "sha256:1", "files": 1}}}'
    found = observe(a_view("Succeeded", container(terminated(0, message=said))), now=NOW)
    assert found.output == RunOutput(uri="s3://o", bytes=3, digest="sha256:1")
    said = '{"airflow-training": {"reason": "OutputFailed", "message": "no bucket"}}'
    found = observe(a_view("Failed", container(terminated(1, message=said))), now=NOW)
    assert (found.state, found.reason, found.message) == ("failed", "OutputFailed", "no bucket")


@pytest.mark.parametrize("said", ["{", "[]", '{"airflow-training": 3}', "plain words", '"x"'])
def test_other_last_words_are_a_message(said):
    found = observe(a_view("Failed", container(terminated(1, message=said))), now=NOW)
    assert (found.state, found.message, found.output) == ("failed", said, None)


def test_a_container_that_cannot_start_is_looked_at_again_in_time():
    stuck = a_view("Pending", container(waiting("ImagePullBackOff")))
    when = observe_again_at(stuck, now=NOW)
    assert when == NOW - 60 + CANNOT_START_SECONDS
    assert observe(stuck, now=when - 1).state == "pending"
    assert observe(stuck, now=when).state == "failed"
    assert not stuck.is_over
    assert observe_again_at(stuck, now=when) is None
    assert observe_again_at(a_view("Running", container(RUNNING)), now=NOW) is None


def test_a_pod_whose_volumes_do_not_come_is_looked_at_again_in_time():
    conditions = [
        condition("PodScheduled", "True"),
        condition("PodReadyToStartContainers", "False"),
    ]
    stuck = a_view("Pending", container(waiting("ContainerCreating")), conditions=conditions)
    when = observe_again_at(stuck, now=NOW)
    assert when == NOW - 60 + CANNOT_START_SECONDS
    assert observe(stuck, now=when - 1).state == "pending"
    assert observe(stuck, now=when).reason == "PodNotReadyToStart"


def test_a_pod_whose_node_names_no_error_is_looked_at_again_in_time():
    slow = a_view("Pending", container(waiting("ContainerCreating")))
    when = observe_again_at(slow, now=NOW)
    assert when == NOW - 60 + SLOW_START_SECONDS
    assert observe(slow, now=when - 1).state == "pending"
    failed = observe(slow, now=when)
    assert failed.message.startswith("container 'main': its node has not started it for 1800 s")
    assert observe_again_at(slow, now=when) is None


@pytest.mark.parametrize("reason", ["CreateContainerConfigError", "ContainerCreating"])
def test_what_cannot_start_has_its_whole_time_once_the_server_answers_again(reason):
    """What was said last may be over for long: its kubelet could not tell either."""
    limit = SLOW_START_SECONDS if reason == "ContainerCreating" else CANNOT_START_SECONDS
    stuck = a_view(
        "Pending",
        container(waiting(reason)),
        conditions=[condition("PodScheduled", "True", when=-limit)],
    )
    assert observe(stuck, now=NOW).state == "failed"
    assert observe(stuck, now=NOW, answers_since=NOW - 5).state == "pending"
    assert observe_again_at(stuck, now=NOW, answers_since=NOW - 5) == NOW - 5 + limit
    assert observe(stuck, now=NOW - 5 + limit, answers_since=NOW - 5).state == "failed"


def test_older_kubelets_say_why_only_the_first_time():
    first = a_view("Pending", container(waiting("ErrImagePull", "team/trian:7: not found")))
    again = a_view(
        "Pending", container(waiting("ImagePullBackOff", 'Back-off pulling image "team/trian:7"'))
    )
    assert observe(again, now=NOW).state == "pending"
    remembered = with_earlier_message(again, first)
    found = observe(remembered, now=NOW)
    assert (found.state, found.message) == ("failed", "container 'main': team/trian:7: not found")
    once_more = with_earlier_message(again, remembered)
    assert observe(once_more, now=NOW).state == "failed"
    other = a_view("Pending", container(waiting("ImagePullBackOff")), metadata={"uid": "u-2"})
    assert observe(with_earlier_message(other, first), now=NOW).state == "pending"


def test_an_end_without_a_last_phase_counts_after_a_while():
    beside_a_sidecar = a_view("Running", container(just_ended(3)), container(RUNNING, "proxy"))
    when = observe_again_at(beside_a_sidecar, now=NOW)
    assert when == NOW - 1 + SETTLE_SECONDS
    assert observe(beside_a_sidecar, now=when - 0.1).state == "running"
    assert observe(beside_a_sidecar, now=when).exit_code == 3
    assert observe_again_at(beside_a_sidecar, now=when) is None
    assert observe_again_at(a_view("Failed", container(just_ended(3))), now=NOW) is None


def test_a_pod_that_should_be_gone_is_looked_at_again_in_time():
    leaving = a_view("Running", container(RUNNING), metadata={"deletionTimestamp": at(10)})
    when = observe_again_at(leaving, now=NOW)
    assert when == NOW + 10 + OVERDUE_SECONDS
    assert observe(leaving, now=when - 1).reason == "Deleted"
    assert observe(leaving, now=when).reason == "Overdue"
    assert observe_again_at(leaving, now=when) is None


@pytest.mark.parametrize(
    ("seen", "over"),
    [
        (pod("Running", container(terminated(0)), container(RUNNING, "proxy")), False),
        (pod("Running", container(RUNNING), metadata=DELETED), False),
        (
            pod("Failed", container(terminated(1)), metadata={**DELETED, "finalizers": ["kueue"]}),
            True,
        ),
        (pod("Succeeded", container(terminated(0))), True),
        (pod("Pending", node="", metadata=DELETED), True),
        (pod("Pending", node=""), False),
    ],
)
def test_when_nothing_of_a_pod_runs_any_more(seen, over):
    assert PodView.of(seen).is_over is over


def test_a_pod_of_others_is_no_instance():
    strange = a_view("Running", container(RUNNING), metadata={"labels": {"app": "x"}})
    with pytest.raises(KeyError):
        observe(strange, now=NOW)


def test_a_thousand_watched_pods_fit_into_20_mb():
    noisy = pod("Running", container(RUNNING, imageID="sha256:" + "0" * 64))
    noisy["metadata"]["managedFields"] = [{"fieldsV1": {f"f:{i}": {} for i in range(500)}}]
    noisy["metadata"]["annotations"][names.RELEASE] = "x" * 60_000

    def size(value: Any) -> int:
        if dataclasses.is_dataclass(value):
            inner: Iterable[Any] = [getattr(value, each.name) for each in dataclasses.fields(value)]
        elif isinstance(value, dict):
            inner = value.values()
        else:
            inner = value if isinstance(value, (list, tuple)) else ()
        return sys.getsizeof(value) + sum(map(size, inner))

    assert size(PodView.of(noisy)) < 20_000 * 0.75
