"""A Volcano Job: a pod that fails ends nothing, unless a policy says so."""

from __future__ import annotations

import pytest

from tests.interchange.reading import fates, mistakes, ours, refused


def task(name: str, *lines: str, restart: str = "Never", word: str = "train.py") -> str:
    return (
        f"    - name: {name}\n"
        + "".join(f"      {line}\n" for line in lines)
        + "      template:\n        spec:\n"
        + (f"          restartPolicy: {restart}\n" if restart else "")
        + f"          containers: [{{name: train, image: a, command: [python, '{word}'],"
        " ports: [{containerPort: 29500}]}]\n"
    )


def volcano(*tasks: str, spec: str = "") -> str:
    return (
        "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {name: digits}\nspec:\n"
        + "".join(f"  {line}\n" for line in spec.splitlines())
        + "  tasks:\n"
        + "".join(tasks)
    )


def test_the_job_fails_once_all_pods_have_ended():
    spec = ours(volcano(task("worker", "replicas: 3")))
    (role,) = spec["roles"]
    assert (role["restartPolicy"], role["minFailed"]) == ("Never", "100%")
    assert spec["failurePolicy"] == {"operator": "All"}
    assert spec["schedulingPolicy"] == {"gang": "volcano", "minAvailable": 3}
    assert refused(volcano(task("worker", "replicas: 3"))) == {}


@pytest.mark.parametrize(
    ("policy", "rule"),
    [
        ("{event: PodFailed, action: RestartJob}", {"action": "RestartJob"}),
        ("{event: PodFailed, action: RestartTask}", {"action": "RestartRole"}),
        ("{event: '*', action: RestartPod}", {"action": "RestartInstance"}),
        ("{event: PodFailed, action: AbortJob}", {"action": "FailJob"}),
        (
            "{exitCode: 3, action: TerminateJob}",
            {"action": "FailJob", "onExitCodes": {"values": [3]}},
        ),
        (
            "{events: [PodEvicted], action: RestartJob}",
            {"action": "RestartJob", "onClasses": ["preemption", "infrastructure"]},
        ),
    ],
)
def test_policies_are_rules_of_the_task_first(policy, rule):
    text = volcano(task("a", f"policies: [{policy}]"), spec=f"policies: [{policy}]")
    rules = ours(text)["failurePolicy"]["rules"]
    assert rules == [{**rule, "targetRoles": ["a"]}, rule]
    assert refused(text) == {}


def test_the_limit_is_of_restarts_of_the_job():
    text = volcano(
        task("a"), spec="maxRetry: 7\npolicies: [{event: PodFailed, action: RestartJob}]"
    )
    spec = ours(text)
    assert (spec["restart"]["maxRestarts"], spec["roles"][0]["backoffLimit"]) == (7, 7)
    assert ours(volcano(task("a"), spec="policies: [{event: PodFailed, action: RestartJob}]"))[
        "restart"
    ]["maxRestarts"] == 3  # fmt: skip


def test_containers_that_restart_in_their_pods_have_no_limit():
    text = volcano(task("a", restart=""), spec="policies: [{event: PodFailed, action: RestartJob}]")
    spec, found = ours(text), fates(text)
    assert spec["roles"][0]["restartPolicy"] == "Always"
    assert spec["restart"]["maxRestarts"] == 1_000_000
    assert "rules" not in spec["failurePolicy"]
    assert found["spec.policies[0].event"].fate == "dropped"
    assert found["spec.tasks[0].template.spec.restartPolicy"].default
    mixed = volcano(
        task("a", restart="OnFailure"), task("b"),
        spec="maxRetry: 2\npolicies: [{event: PodFailed, action: RestartJob}]",
    )  # fmt: skip
    assert refused(mixed) == {"spec.maxRetry": 5}


def test_the_task_whose_end_completes_the_job_decides():
    text = volcano(
        task("ps"), task("worker", "policies: [{event: TaskCompleted, action: CompleteJob}]")
    )
    assert ours(text)["successPolicy"] == {"operator": "All", "targetRoles": ["worker"]}


def test_success_of_some_is_told_only_where_it_ends_the_others():
    some = volcano(task("a", "replicas: 3"), spec="minAvailable: 2")
    assert list(refused(some)) == ["spec.minSuccess"]
    said = volcano(task("a", "replicas: 3"), spec="minAvailable: 2\nminSuccess: 1")
    assert ours(said)["roles"][0]["minSucceeded"] == 1
    assert refused(said) == {}
    both = volcano(task("a"), task("b"), spec="minSuccess: 1")
    assert refused(both) == {"spec.minSuccess": 5}


def test_order_queue_and_volumes():
    text = volcano(
        task("a"),
        task("b", "dependsOn: {name: [a]}"),
        spec="queue: q\npriorityClassName: high\nvolumes: [{mountPath: /data, volumeClaimName: data}]",
    )
    spec = ours(text)
    assert spec["roles"][1]["dependsOn"] == [
        {"role": "a", "status": "Ready", "timeoutSeconds": 31_536_000}
    ]
    assert (spec["schedulingPolicy"]["queue"], spec["schedulingPolicy"]["priorityClassName"]) == (
        "q",
        "high",
    )
    (container,) = spec["roles"][0]["template"]["spec"]["containers"]
    assert container["volumeMounts"] == [{"name": "job-0", "mountPath": "/data"}]
    assert refused(text) == {}


def test_plugins_of_a_framework_are_the_framework():
    text = volcano(
        task("master"), task("worker"),
        spec="plugins: {pytorch: ['--master=master', '--worker=worker', '--port=23456'], env: [], svc: []}",
    )  # fmt: skip
    assert ours(text)["framework"] == "pytorch"
    assert refused(text) == {}


def test_hosts_are_named_by_address_and_what_plugins_wrote_is_refused():
    named = volcano(
        task("ps"), task("worker", word="digits-ps-0.digits:29500"), spec="plugins: {svc: []}"
    )
    command = ours(named)["roles"][1]["template"]["spec"]["containers"][0]["command"]
    assert command == ["python", "{{ address('ps', 0) }}"]
    read = volcano(task("ps", word="cat /etc/volcano/ps.host"), spec="plugins: {svc: []}")
    assert set(refused(read).values()) == {5, 11}


@pytest.mark.parametrize(
    "spec",
    [
        "plugins: {ssh: []}",
        "plugins: {other: []}",
        "networkTopology: {mode: hard}",
        "policies: [{event: PodPending, action: AbortJob, timeout: 1m}]",
        "policies: [{event: TaskFailed, action: AbortJob}]",
        "policies: [{event: PodFailed, action: SyncJob}]",
        "volumes: [{mountPath: /a}]",
        "shiny: 1",
    ],
)
def test_what_no_job_of_ours_does_is_refused(spec):
    assert set(refused(volcano(task("a"), spec=spec)).values()) == {5}


@pytest.mark.parametrize(
    ("text", "field", "line"),
    [
        (volcano(), "spec.tasks", 5),
        (volcano(task("a"), task("a")), "spec.tasks[1].name", 11),
        (volcano(task("a", "replicas: two")), "spec.tasks[0].replicas", 7),
        (volcano(task("a"), spec="minAvailable: 5"), "spec.minAvailable", 5),
        (volcano(task("a", "dependsOn: {name: [b]}")), "spec.tasks[0].dependsOn.name[0]", 7),
        (
            volcano(task("a"), spec="policies: [{event: Sunrise, action: AbortJob}]"),
            "spec.policies[0].event",
            5,
        ),
        (volcano(task("a"), spec="policies: [{action: AbortJob}]"), "spec.policies[0]", 5),
        (volcano(task("a", restart="Sometimes")), "spec.tasks[0].template.spec.restartPolicy", 9),
    ],
)
def test_a_broken_job_is_told_with_its_line(text, field, line):
    assert (field, line) in mistakes(text)
