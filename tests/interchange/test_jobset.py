"""A JobSet counts Jobs: they are instances, roles, or several roles here."""

from __future__ import annotations

import pytest

from airflow_training.interchange.importing import import_text
from tests.interchange.reading import fates, mistakes, ours, refused


def jobset(*jobs: str, spec: str = "") -> str:
    return (
        "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: digits}\nspec:\n"
        + "".join(f"  {line}\n" for line in spec.splitlines())
        + "  replicatedJobs:\n"
        + "".join(jobs)
    )


def replicated(
    name: str, *lines: str, replicas: int = 1, pods: int = 1, job: str = "", env: str = ""
) -> str:
    return (
        f"    - name: {name}\n      replicas: {replicas}\n"
        + "".join(f"      {line}\n" for line in lines)
        + "      template:\n        spec:\n"
        + f"          parallelism: {pods}\n          completions: {pods}\n"
        + "".join(f"          {line}\n" for line in job.splitlines())
        + "          template:\n            spec:\n              containers:\n"
        + "                - {name: train, image: a, command: [python, train.py]"
        + (f", env: [{env}]" if env else "")
        + "}\n"
    )


def roles(text: str) -> list[tuple[str, int]]:
    return [(role["name"], role["replicas"]) for role in ours(text)["roles"]]


def test_a_job_of_one_pod_is_an_instance_and_one_of_several_a_role():
    text = jobset(
        replicated("ps", replicas=3),
        replicated("chief", pods=2),
        replicated("slice", replicas=2, pods=4),
    )
    assert roles(text) == [("ps", 3), ("chief", 2), ("slice-0", 4), ("slice-1", 4)]


def test_the_limit_of_a_job_is_of_an_instance_or_of_a_role():
    text = jobset(
        replicated("ps", replicas=3, job="backoffLimit: 2"),
        replicated("slice", replicas=2, pods=4, job="backoffLimit: 2"),
    )
    ps, *slices = ours(text)["roles"]
    assert (ps["backoffLimit"], ps.get("maxRestarts")) == (2, None)
    assert [(each["backoffLimit"], each["maxRestarts"]) for each in slices] == [(3, 2), (3, 2)]
    assert ours(text)["restart"]["scope"] == "Instance"


def test_a_set_that_restarts_as_a_whole_restarts_the_job():
    text = jobset(
        replicated("a", job="backoffLimit: 0"),
        replicated("b", job="backoffLimit: 0"),
        spec="failurePolicy: {maxRestarts: 3}",
    )
    restart = ours(text)["restart"]
    assert (restart["scope"], restart["maxRestarts"]) == ("Job", 3)
    assert refused(text) == {}


def test_pods_that_were_tried_again_before_the_set_restarts_are_refused():
    text = jobset(replicated("a"), replicated("b"), spec="failurePolicy: {maxRestarts: 3}")
    assert set(refused(text)) == {
        f"spec.replicatedJobs[{i}].template.spec.backoffLimit" for i in (0, 1)
    }


def test_a_set_of_one_job_begins_anew_when_its_limit_is_used_up():
    text = jobset(
        replicated("a", pods=2, job="backoffLimit: 2"), spec="failurePolicy: {maxRestarts: 3}"
    )
    restart = ours(text)["restart"]
    assert (restart["maxRestarts"], restart["then"], restart["maxFreshJobs"]) == (2, "FreshJob", 3)
    assert refused(text) == {}


POLICY = """\
backoffLimit: 0
podFailurePolicy:
  rules:
    - {action: FailJob, onPodConditions: [{type: DisruptionTarget}]}"""


def test_a_rule_about_jobs_is_judged_at_the_failure_that_fails_them():
    text = jobset(
        replicated("a", job=POLICY),
        replicated("b", job="backoffLimit: 0"),
        spec="failurePolicy:\n  maxRestarts: 3\n  rules:\n"
        "    - {name: drained, action: RestartJobSetAndIgnoreMaxRestarts, onJobFailureReasons: [PodFailurePolicy]}\n"
        "    - {name: chief, action: FailJobSet, targetReplicatedJobs: [b]}",
    )
    assert ours(text)["failurePolicy"]["rules"] == [
        {
            "name": "drained",
            "action": "RestartJobAndIgnoreMaxRestarts",
            "onClasses": ["preemption"],
            "targetRoles": ["a"],
        },
        {"name": "chief", "action": "FailJob", "targetRoles": ["b"]},
    ]
    assert refused(text) == {}


def test_a_rule_that_needs_messages_of_jobs_is_refused():
    text = jobset(
        replicated("a", job="backoffLimit: 0"),
        spec="failurePolicy:\n  maxRestarts: 3\n  rules:\n"
        "    - {name: odd, action: FailJobSet, onJobFailureMessagePatterns: [lost]}",
    )
    assert set(refused(text).values()) == {8}


def test_a_rule_that_is_refused_hides_no_other():
    text = jobset(
        replicated("a", job="backoffLimit: 0"),
        spec="failurePolicy:\n  maxRestarts: 3\n  rules:\n"
        "    - {name: odd, action: RestartJobSet, onJobFailureReasons: [DeadlineExceeded]}\n"
        "    - {name: end, action: FailJobSet}",
    )
    assert ours(text)["failurePolicy"]["rules"] == [
        {"name": "end", "action": "FailJob", "targetRoles": ["a"]}
    ]
    assert set(refused(text).values()) == {8}


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_a_rule_that_is_told_for_one_job_only_is_refused(order):
    """For `b` it would judge failures that its Job tries again."""
    limits = {"a": "backoffLimit: 0", "b": "backoffLimit: 2"}
    text = jobset(
        *(replicated(name, job=limits[name]) for name in order),
        spec="failurePolicy:\n  rules:\n    - {name: end, action: FailJobSet}",
    )
    assert set(refused(text).values()) == {7}


@pytest.mark.parametrize(("status", "expected"), [("Ready", "Ready"), ("Complete", "Complete")])
def test_a_dependency_waits_for_every_job(status, expected):
    text = jobset(
        replicated("slice", replicas=2, pods=2),
        replicated("eval", f"dependsOn: [{{name: slice, status: {status}}}]"),
    )
    depends = ours(text)["roles"][2]["dependsOn"]
    assert [(each["role"], each["status"]) for each in depends] == [
        ("slice-0", expected),
        ("slice-1", expected),
    ]


def test_in_order_means_after_the_one_before():
    text = jobset(
        replicated("a"), replicated("b"), spec="startupPolicy: {startupPolicyOrder: InOrder}"
    )
    assert [each["role"] for each in ours(text)["roles"][1]["dependsOn"]] == ["a"]
    told = [each.to for each in import_text(text)[0].report.fields if "startup" in each.field]
    assert told == ["spec.roles[1].dependsOn"]


def test_any_job_is_any_instance():
    text = jobset(
        replicated("search", replicas=5),
        replicated("log"),
        spec="successPolicy: {operator: Any, targetReplicatedJobs: [search]}",
    )
    spec = ours(text)
    assert spec["successPolicy"] == {"operator": "Any", "targetRoles": ["search"]}
    assert spec["roles"][0]["minSucceeded"] == "Any"


def test_a_host_with_the_port_of_its_role_becomes_an_address():
    text = jobset(
        replicated("ps"),
        replicated(
            "worker",
            pods=2,
            env="{name: PS, value: digits-ps-0-0.digits:29500}, {name: HOST, value: digits-ps-0-0.digits}",
        ),
    ).replace("name: train, image: a", "name: train, ports: [{containerPort: 29500}], image: a", 1)
    env = ours(text)["roles"][1]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "PS", "value": "{{ address('ps', 0) }}"} in env
    assert list(refused(text)) == [
        "spec.replicatedJobs[1].template.spec.template.spec.containers[0].env[1].value"
    ]


def test_each_job_of_several_pods_knows_its_number():
    path = "metadata.annotations['jobset.sigs.k8s.io/job-index']"
    text = jobset(
        replicated(
            "slice",
            replicas=2,
            pods=2,
            env=f'{{name: SLICE, valueFrom: {{fieldRef: {{fieldPath: "{path}"}}}}}}',
        )
    )
    found = [
        role["template"]["spec"]["containers"][0]["env"][-1]["value"]
        for role in ours(text)["roles"]
    ]
    assert found == ["0", "1"]


def test_what_only_labels_say_is_refused_where_somebody_acts_upon_it():
    text = jobset(
        replicated("a"),
        spec="coordinator: {replicatedJob: a}\nvolumeClaimPolicies: [{templates: []}]\nnetwork: {subdomain: net}",
    ).replace(
        "name: digits}",
        "name: digits, annotations: {alpha.jobset.sigs.k8s.io/exclusive-topology: zone}}",
    )
    assert set(refused(text).values()) == {3, 5, 6, 7}


def test_the_limit_that_nobody_wrote_is_told():
    assert (
        fates(jobset(replicated("a")))["spec.replicatedJobs[0].template.spec.backoffLimit"].value
        == 6
    )


@pytest.mark.parametrize(
    ("text", "field", "line"),
    [
        (jobset(), "spec.replicatedJobs", 5),
        (
            jobset(replicated("a", "dependsOn: [{name: b, status: Ready}]")),
            "spec.replicatedJobs[0].dependsOn[0].name",
            8,
        ),
        (
            jobset(replicated("a"), spec="successPolicy: {operator: Most}"),
            "spec.successPolicy.operator",
            5,
        ),
        (
            jobset(
                replicated("a"), spec="successPolicy: {operator: All, targetReplicatedJobs: [b]}"
            ),
            "spec.successPolicy.targetReplicatedJobs",
            5,
        ),
        (
            jobset(replicated("a", replicas=1).replace("replicas: 1", "replicas: one")),
            "spec.replicatedJobs[0].replicas",
            7,
        ),
        (jobset(replicated("a", replicas=2000, pods=2)), "spec.replicatedJobs[0].replicas", 7),
    ],
)
def test_a_broken_set_is_told_with_its_line(text, field, line):
    assert (field, line) in mistakes(text)
