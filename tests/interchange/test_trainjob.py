"""A TrainJob says what is its own; everything else is in the runtime that it names."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from airflow_training.admission.check import check_text
from airflow_training.interchange.importing import ImportedDocument, import_files, import_text

POD = "{spec: {containers: [{name: node, image: base, env: [{name: A, value: base}]}]}}"


def runtime(policy: str = "torch: {}", spec: str = "", jobs: str = "", job: str = "") -> str:
    node = (
        "        - name: node\n          template:\n"
        "            metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}\n"
        f"            spec: {{{job}template: {POD}}}\n"
    )
    return (
        "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: ClusterTrainingRuntime\nmetadata: {name: base}\nspec:\n"
        f"  mlPolicy:\n    numNodes: 1\n    {policy}\n"
        + "".join(f"  {line}\n" for line in spec.splitlines())
        + f"  template:\n    spec:\n      replicatedJobs:\n{jobs}{node}"
    )


def trainjob(trainer: str = "", spec: str = "", name: str = "base") -> str:
    return (
        "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: digits}\nspec:\n"
        f"  runtimeRef: {{name: {name}}}\n"
        + "".join(f"  {line}\n" for line in spec.splitlines())
        + (
            "  trainer:\n" + "".join(f"    {line}\n" for line in trainer.splitlines())
            if trainer
            else ""
        )
    )


def both(job: str, base: str) -> tuple[ImportedDocument, ImportedDocument]:
    documents = import_files([(job, "job.yaml"), (base, "runtime.yaml")])
    (first,), (second,) = documents
    assert [*first.problems, *second.problems] == []
    (checked,) = check_text(first.text)
    assert list(checked.problems) == []
    assert second.text == ""
    return first, second


def spec_of(job: str, base: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(both(job, base)[0].text)["spec"]
    return found


def refused(job: str, base: str) -> list[str]:
    return [each.field for one in both(job, base) for each in one.report.of("refused")]


TRAINER = """\
numNodes: 3
numProcPerNode: 2
image: mine
command: [torchrun, train.py]
env: [{name: A, value: mine}, {name: PET_NNODES, value: "9"}]
resourcesPerNode: {limits: {cpu: "2"}}"""


def test_the_job_says_it_over_the_runtime():
    spec = spec_of(trainjob(TRAINER), runtime())
    assert (spec["framework"], spec["parameters"]) == ("pytorch", {"nprocPerNode": 2})
    (role,) = spec["roles"]
    assert (role["name"], role["replicas"]) == ("worker", 3)
    assert role["template"]["spec"]["containers"] == [
        {
            "name": "pytorch",
            "image": "mine",
            "env": [{"name": "A", "value": "mine"}],
            "command": ["torchrun", "train.py"],
            "resources": {"limits": {"cpu": "2"}},
        }
    ]
    assert refused(trainjob(TRAINER), runtime()) == []


def test_every_field_of_both_is_accounted_for():
    job, base = both(trainjob(TRAINER), runtime())
    fates = {each.field: each.fate for each in base.report.fields}
    assert fates["spec.mlPolicy.numNodes"] == "dropped"
    image = "spec.template.spec.replicatedJobs[0].template.spec.template.spec.containers[0].image"
    assert fates[image] == "dropped"
    assert {each.field: each.fate for each in job.report.fields}["spec.trainer.image"] == "kept"


def test_a_runtime_that_no_job_names_is_a_job_as_it_stands():
    (imported,) = import_text(runtime())
    spec = yaml.safe_load(imported.text)["spec"]
    assert spec["roles"][0]["template"]["spec"]["containers"][0]["image"] == "base"


def test_a_job_without_its_runtime_is_refused_as_a_whole():
    (imported,) = import_text(trainjob(TRAINER))
    assert imported.text == ""
    assert {each.fate for each in imported.report.fields} == {"refused"}


def test_both_may_stand_in_one_file():
    job, base = import_text(f"{trainjob(TRAINER)}---\n{runtime()}")
    assert (bool(job.text), bool(base.text)) == (True, False)
    assert base.report.line == 14


def test_failures_are_counted_as_the_job_of_the_runtime_does():
    spec = spec_of(trainjob(), runtime(job="backoffLimit: 2, "))
    assert spec["restart"]["maxRestarts"] == 2
    assert spec_of(trainjob(), runtime())["restart"]["maxRestarts"] == 6


@pytest.mark.parametrize(
    ("policy", "framework", "role"),
    [("torch: {}", "pytorch", "worker"), ("jax: {}", "jax", "worker"), ("{}", "custom", "node")],
)
def test_the_policy_is_the_framework(policy, framework, role):
    base = runtime(policy) if policy != "{}" else runtime().replace("    torch: {}\n", "")
    spec = spec_of(trainjob("command: [python, a.py]"), base)
    assert (spec["framework"], spec["roles"][0]["name"]) == (framework, role)


def test_mpi_has_a_launcher_that_runs_the_command():
    launcher = f"        - name: launcher\n          template:\n            spec: {{template: {POD}}}\n".replace(
        "          template:\n", "          template:\n            metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}\n"
    )  # fmt: skip
    base = runtime("mpi: {numProcPerNode: 4, mpiImplementation: OpenMPI}", jobs=launcher)
    spec = spec_of(trainjob("numNodes: 2\ncommand: [mpirun, python, a.py]"), base)
    assert [(r["name"], r["replicas"]) for r in spec["roles"]] == [("launcher", 1), ("worker", 2)]
    assert spec["parameters"] == {"slotsPerWorker": 4, "implementation": "OpenMPI"}
    assert spec["roles"][0]["template"]["spec"]["containers"][0]["command"][0] == "mpirun"
    assert "command" not in spec["roles"][1]["template"]["spec"]["containers"][0]


def test_gangs_of_the_runtime():
    base = runtime(spec="podGroupPolicy: {coscheduling: {scheduleTimeoutSeconds: 60}}")
    assert spec_of(trainjob(), base)["schedulingPolicy"] == {
        "gang": "coscheduling",
        "scheduleTimeoutSeconds": 60,
    }


@pytest.mark.parametrize(
    ("job", "base"),
    [
        (trainjob(spec="initializer: {dataset: {storageUri: a}}"), runtime()),
        (trainjob(spec="runtimePatches: [{manager: a}]"), runtime()),
        (trainjob(spec="managedBy: kueue.x-k8s.io/multikueue"), runtime()),
        (trainjob(spec="shiny: 1"), runtime()),
        (trainjob(), runtime("flux: {numProcPerNode: 1}")),
        (trainjob(), runtime("torch: {numProcPerNode: auto}")),
        (trainjob(), runtime(spec="podGroupPolicy: {volcano: {networkTopology: {mode: hard}}}")),
        (trainjob(), runtime(job="activeDeadlineSeconds: 5, ")),
    ],
)
def test_what_is_said_nowhere_here_is_refused(job, base):
    assert len(refused(job, base)) == 1


@pytest.mark.parametrize(
    ("text", "field", "line"),
    [
        (trainjob(name="''"), "spec", 4),
        (trainjob("numNodes: 0") + "---\n" + runtime(), "spec.trainer.numNodes", 7),
        (trainjob("numProcPerNode: some") + "---\n" + runtime(), "spec.trainer.numProcPerNode", 7),
        (trainjob("command: train.py") + "---\n" + runtime(), "spec.trainer.command", 7),
        (trainjob(spec="suspend: maybe") + "---\n" + runtime(), "spec.suspend", 6),
    ],
)
def test_a_broken_job_is_told_with_its_line(text, field, line):
    first = import_text(text)[0]
    assert (field, line) in [(each.field, each.line) for each in first.problems]
