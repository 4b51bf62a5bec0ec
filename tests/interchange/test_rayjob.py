"""A RayJob: the head runs the work, workers join it, and the work's end is the job's."""

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


def test_the_head_runs_the_work():
    spec = ours(rayjob())
    assert spec["framework"] == "ray"
    head = spec["roles"][0]
    assert head["command"] == ["python", "train.py", "--name", "a b"]
    assert spec["parameters"] == {"headOptions": ["--dashboard-host=0.0.0.0"]}
    assert head["template"]["spec"]["containers"][0]["name"] == "ray"
    assert refused(rayjob()) == {}


@pytest.mark.parametrize(
    "entry", ["python a.py && python b.py", "python a.py --out $HOME/b", "SEED=1 python a.py"]
)
def test_what_only_a_shell_understands_is_given_to_one(entry):
    text = rayjob().replace("python train.py --name 'a b'", entry)
    assert ours(text)["roles"][0]["command"] == ["bash", "-c", entry]


def test_a_cluster_that_waits_for_work_is_refused_and_stays():
    text = rayjob("submissionMode: InteractiveMode").replace(
        "  entrypoint: python train.py --name 'a b'\n", ""
    )
    assert [*refused(text)] == ["spec.submissionMode"]
    assert ours(text)["roles"][0]["command"] == ["sleep", "infinity"]


def test_workers_join_the_head_and_their_ends_count_for_nothing():
    spec = ours(rayjob(group="rayStartParams: {num-cpus: '2', block: 'true'}"))
    worker = spec["roles"][1]
    assert (worker["name"], worker["replicas"], worker["args"]) == ("small", 2, ["--num-cpus=2"])
    assert spec["failurePolicy"]["rules"] == [
        {"name": "workers", "action": "Ignore", "targetRoles": ["small"]},
        {"name": "head", "action": "FailJob", "targetRoles": ["head"]},
    ]


def test_ports_of_a_head_are_its_own_already():
    ports = (
        "ports: [{name: gcs, containerPort: 6379}, {name: mine, containerPort: 9000},"
        " {name: dashboard, containerPort: 8266}]"
    )
    text = rayjob().replace("{name: ray, ", f"{{name: ray, {ports}, ", 1)
    (container,) = ours(text)["roles"][0]["template"]["spec"]["containers"]
    assert container["ports"] == [{"name": "mine", "containerPort": 9000}]
    found = fates(text)
    where = "spec.rayClusterSpec.headGroupSpec.template.spec.containers[0].ports"
    assert [found[f"{where}[{i}].name"].fate for i in range(3)] == ["dropped", "kept", "refused"]


def test_another_try_is_a_new_cluster():
    spec = ours(rayjob("backoffLimit: 9"))
    assert (spec["restart"]["maxRestarts"], spec["roles"][0]["backoffLimit"]) == (9, 9)
    assert spec["failurePolicy"]["rules"][-1]["action"] == "RestartJob"


def test_what_ray_is_told_about_the_work_needs_its_submission():
    text = rayjob("runtimeEnvYAML: |\n  env_vars: {A: b}\nentrypointNumCpus: 2")
    spec = ours(text)
    assert spec["roles"][0]["command"] == [
        *("ray", "job", "submit", '--runtime-env-json={"env_vars": {"A": "b"}}'),
        *("--entrypoint-num-cpus=2", "--", "python", "train.py", "--name", "a b"),
    ]
    assert spec["parameters"]["dashboard"] is True


def test_the_dashboard_is_there_for_who_wants_it():
    assert "dashboard" not in ours(rayjob())["parameters"]
    where = "spec.rayClusterSpec.headGroupSpec.rayStartParams.include-dashboard"
    assert fates(rayjob())[where].fate == "dropped"
    text = rayjob().replace("{dashboard-host: 0.0.0.0}", "{include-dashboard: 'true'}")
    assert ours(text)["parameters"] == {"dashboard": True}
    assert fates(text)[where].fate == "translated"


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
