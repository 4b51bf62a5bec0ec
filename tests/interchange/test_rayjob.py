"""A RayJob: the head submits the work to itself, workers join it, and the work's end is the job's."""

from __future__ import annotations

import pytest

from airflow_training.interchange.importing import import_text
from tests.interchange.reading import fates, mistakes, ours, refused


def rayjob(spec: str = "", cluster: str = "", head: str = "", group: str = "") -> str:
    def lines(text: str, depth: int) -> str:
        return "".join(f"{' ' * depth}{line}\n" for line in text.splitlines())

    pod = "{spec: {containers: [{name: ray, image: 'rayproject/ray:2.52.0'}]}}"
    return (
        "apiVersion: ray.io/v1\nkind: RayJob\nmetadata: {name: digits}\nspec:\n"
        "  entrypoint: python train.py --name 'a b'\n"
        + lines(spec, 2)
        + "  rayClusterSpec:\n"
        + lines(cluster, 4)
        + f"    headGroupSpec:\n      rayStartParams: {{dashboard-host: 0.0.0.0}}\n      template: {pod}\n"
        + lines(head, 6)
        + "    workerGroupSpecs:\n"
        + f"      - groupName: small\n        replicas: 2\n        template: {pod}\n"
        + lines(group, 8)
    )


def test_the_head_starts_ray_and_submits_the_work():
    head, _ = ours(rayjob())["roles"]
    (container,) = head["template"]["spec"]["containers"]
    assert container["command"] == [
        "bash",
        "-c",
        "ray start --head --port=${TRAINING_ADDRESS##*:} --dashboard-host=0.0.0.0"
        ' && exec ray job submit --address=http://127.0.0.1:8265 "$@"',
        "bash",
        "--",
        "python",
        "train.py",
        "--name",
        "a b",
    ]
    assert container["ports"][0] == {"name": "gcs-server", "containerPort": 6379}
    assert refused(rayjob()) == {}


def test_workers_join_the_head_and_their_ends_count_for_nothing():
    spec = ours(rayjob())
    worker = spec["roles"][1]
    assert (worker["name"], worker["replicas"], worker["tracked"]) == ("small", 2, False)
    assert worker["dependsOn"][0]["status"] == "PortOpen"
    assert worker["template"]["spec"]["containers"][0]["command"][-1] == "{{ address('head', 0) }}"
    assert spec["successPolicy"] == {"targetRoles": ["head"]}
    assert spec["failurePolicy"]["rules"] == [
        {"name": "workers", "action": "Ignore", "targetRoles": ["small"]},
        {"name": "head", "action": "FailJob", "targetRoles": ["head"]},
    ]


def test_another_try_is_a_new_cluster():
    spec = ours(rayjob("backoffLimit: 9"))
    assert (spec["restart"]["maxRestarts"], spec["roles"][0]["backoffLimit"]) == (9, 9)
    assert spec["failurePolicy"]["rules"][-1]["action"] == "RestartJob"


def test_what_ray_is_told_about_the_work_are_options():
    text = rayjob("runtimeEnvYAML: |\n  env_vars: {A: b}\nentrypointNumCpus: 2")
    command = ours(text)["roles"][0]["template"]["spec"]["containers"][0]["command"]
    assert command[4:6] == [
        '--runtime-env-json={"env_vars": {"A": "b"}}',
        "--entrypoint-num-cpus=2",
    ]


def test_the_cluster_goes_with_the_job():
    assert "stayed" in fates(rayjob())["spec.shutdownAfterJobFinishes"].why
    spec = ours(
        rayjob(
            "shutdownAfterJobFinishes: true\nttlSecondsAfterFinished: 60\nactiveDeadlineSeconds: 9"
        )
    )
    assert (spec["ttlSecondsAfterFinished"], spec["activeDeadlineSeconds"]) == (60, 9)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (rayjob("submissionMode: InteractiveMode"), 6),
        (rayjob("deletionStrategy: {onSuccess: {policy: DeleteCluster}}"), 6),
        (rayjob(cluster="enableInTreeAutoscaling: true"), 7),
        (rayjob(cluster="gcsFaultToleranceOptions: {redisAddress: a}"), 7),
        (rayjob(head="serviceType: NodePort"), 10),
        (rayjob(group="numOfHosts: 4"), 14),
        (rayjob(spec="shiny: 1"), 6),
    ],
)
def test_what_no_instance_does_is_refused_with_its_line(text, line):
    assert set(refused(text).values()) == {line}


def test_work_for_a_cluster_that_is_there_is_refused_as_a_whole():
    text = rayjob("clusterSelector: {ray.io/cluster: a}")
    (imported,) = import_text(text[: text.index("  rayClusterSpec")])
    assert imported.text == ""
    assert {each.fate for each in imported.report.fields} == {"refused"}


@pytest.mark.parametrize(
    ("text", "field", "line"),
    [
        (rayjob().replace("headGroupSpec", "head"), "spec", 4),
        (rayjob().replace("'a b'", "'a b"), "spec.entrypoint", 5),
        (rayjob("submissionMode: Post"), "spec.submissionMode", 6),
        (rayjob("runtimeEnvYAML: '{a'"), "spec.runtimeEnvYAML", 6),
        (rayjob().replace("replicas: 2", "replicas: two"), "spec.rayClusterSpec.workerGroupSpecs[0].replicas", 12),
        (rayjob().replace("entrypoint:", "entrypoint: [a] #"), "spec.entrypoint", 5),
    ],
)  # fmt: skip
def test_a_broken_job_is_told_with_its_line(text, field, line):
    assert (field, line) in mistakes(text)
