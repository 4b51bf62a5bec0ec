"""Jobs of ours as documents of other systems: nothing is lost in silence, and what was kept comes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_training.documents.paths import split_path
from airflow_training.interchange.exporting import TARGETS, ExportedDocument, export_text
from airflow_training.interchange.importing import import_text
from tests.interchange.reading import ours
from tests.interchange.test_every_field import at, leaves
from tests.interchange.test_sbatch import TORCHRUN, script
from tests.interchange.test_volcano import task, volcano

DOCS = Path(__file__).parents[2] / "docs"


def job(spec: str, *roles: str, framework: str = "custom") -> str:
    lines = "".join(f"  {line}\n" for line in spec.splitlines())
    return (
        f"apiVersion: airflow-training/v1\nkind: TrainingJob\nmetadata: {{name: digits}}\nspec:\n  framework: {framework}\n"
        f"{lines}  roles:\n" + "".join(f"    - {{{role}}}\n" for role in roles)
    )


def exported(text: str, target: str) -> ExportedDocument:
    (found,) = export_text(text, target)
    assert list(found.problems) == []
    return found


def refused(text: str, target: str) -> dict[str, int | None]:
    return {each.field: each.line for each in exported(text, target).report.of("refused")}


def examples() -> list[str]:
    """Return the jobs that docs show."""
    found = []
    for page in sorted(DOCS.glob("*.md")):
        for block in page.read_text(encoding="utf-8").split("```yaml\n")[1:]:
            text = block.partition("```")[0]
            data = list(yaml.safe_load_all(text)) if "kind: TrainingJob" in text else []
            if len(data) == 1 and data[0].get("kind") == "TrainingJob":
                found.append(text)
    return found


EXAMPLES = examples()


def test_docs_have_examples():
    assert len(EXAMPLES) > 20


@pytest.mark.parametrize("target", TARGETS)
def test_every_field_of_ours_has_one_fate(target):
    for text in EXAMPLES:
        (found,) = export_text(text, target)
        if found.problems:
            continue
        written = [split_path(each.field) for each in found.report.fields if not each.default]
        assert set(written) == leaves(yaml.safe_load(text))
        assert len(written) == len(set(written))
        assert not [each for each in found.report.fields if "is not known here" in each.why], text


@pytest.mark.parametrize("target", TARGETS)
def test_what_was_kept_comes_back(target):
    for text in EXAMPLES:
        (found,) = export_text(text, target)
        if found.problems or (
            target == "pytorchjob" and "master" not in text and "worker" not in text
        ):
            continue
        (back,) = import_text(found.text, "digits.sbatch" if target == "sbatch" else "")
        assert not [each for each in back.problems if each.code != "conflict"], found.text
        again = yaml.safe_load(back.text)
        for each in found.report.of("kept"):
            place = split_path(each.field) or ()
            if not each.default and "template" not in place:
                assert at(again, place) == each.value, (each, back.text)


POD = "template: {spec: {containers: [{name: NAME, image: a, command: [python, train.py]}]}}"
ROUND = {
    "pytorchjob": [
        "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: digits}\nspec:\n"
        "  runPolicy: {backoffLimit: 3, cleanPodPolicy: All, ttlSecondsAfterFinished: 9, suspend: true}\n"
        "  pytorchReplicaSpecs:\n"
        f"    Master: {{restartPolicy: OnFailure, {POD}}}\n    Worker: {{replicas: 3, restartPolicy: ExitCode, {POD}}}\n",
        "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: digits, labels: {kueue.x-k8s.io/queue-name: q}}\nspec:\n"
        "  nprocPerNode: '2'\n  elasticPolicy: {minReplicas: 1, maxReplicas: 4, rdzvBackend: c10d}\n"
        f"  pytorchReplicaSpecs:\n    Worker: {{replicas: 2, {POD}}}\n",
    ],
    "jobset": [
        "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: digits}\nspec:\n"
        "  failurePolicy: {maxRestarts: 2}\n  successPolicy: {operator: All, targetReplicatedJobs: [b]}\n  replicatedJobs:\n"
        f"    - {{name: a, replicas: 2, template: {{spec: {{backoffLimit: 0, {POD}}}}}}}\n"
        f"    - {{name: b, dependsOn: [{{name: a, status: Ready}}], template: {{spec: {{backoffLimit: 0, {POD}}}}}}}\n",
        "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: digits}\nspec:\n  replicatedJobs:\n"
        f"    - {{name: a, template: {{spec: {{backoffLimit: 2, parallelism: 4, completions: 4, {POD}}}}}}}\n"
        f"    - {{name: b, replicas: 3, template: {{spec: {{backoffLimit: 1, {POD}}}}}}}\n",
        "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: digits}\nspec:\n  failurePolicy: {maxRestarts: 2}\n"
        "  replicatedJobs:\n"
        f"    - {{name: a, template: {{spec: {{backoffLimit: 2, parallelism: 4, completions: 4, activeDeadlineSeconds: 9, {POD}}}}}}}\n",
    ],
    "volcano": [
        volcano(task("a", "replicas: 3"), spec="plugins: {env: [], svc: []}"),
        volcano(task("a", "replicas: 3"), task("b")),
        volcano(
            task("ps"),
            task("worker", "policies: [{event: TaskCompleted, action: CompleteJob}]", "dependsOn: {name: [ps]}"),
            spec="plugins: {env: [], svc: []}\nqueue: q\nmaxRetry: 5\npolicies: [{event: PodFailed, action: RestartJob}, {exitCode: 3,"
            " action: TerminateJob}]",
        ),
        volcano(task("a", restart="OnFailure"), spec="plugins: {env: [], svc: []}\nttlSecondsAfterFinished: 5"),
    ],
    "sbatch": [
        TORCHRUN,
        script("srun python train.py 'a b'", head="#SBATCH -n 4\n#SBATCH -J digits\n#SBATCH -c 2\n#SBATCH --mem-per-cpu=1G"),
        script("set -e", "cd /work", "export A='b c'", "srun -n 1 python a.py", "srun -n 2 python b.py", head="#SBATCH -n 2\n#SBATCH --no-requeue"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("target", "source"), [(target, source) for target, sources in ROUND.items() for source in sources]
)  # fmt: skip
def test_an_imported_job_goes_round(target, source):
    text = source.replace("NAME", "pytorch" if target == "pytorchjob" else "main")
    (imported,) = import_text(text, "digits.sbatch" if target == "sbatch" else "")
    assert list(imported.report.of("refused")) == []
    found = exported(imported.text, target)
    assert refused(imported.text, target) == {}
    (again,) = import_text(found.text, "digits.sbatch" if target == "sbatch" else "")
    assert list(again.problems) == []
    assert yaml.safe_load(again.text) == yaml.safe_load(imported.text), found.text


def test_keys_of_job_role_and_template_are_one_pod():
    text = job(
        "image: a\ncommand: [python, train.py]\nenv: [{name: A, value: b}]",
        "name: worker, env: [{name: C, value: d}], template: {spec: {priorityClassName: high}}",
    )
    (found,) = yaml.safe_load(exported(text, "jobset").text)["spec"]["replicatedJobs"]
    pod = found["template"]["spec"]["template"]["spec"]
    assert pod["priorityClassName"] == "high"
    assert pod["containers"] == [
        {
            "name": "main",
            "image": "a",
            "command": ["python", "train.py"],
            "env": [{"name": "A", "value": "b"}, {"name": "C", "value": "d"}],
        }
    ]


@pytest.mark.parametrize(
    ("target", "host"),
    [
        ("jobset", "digits-ps-0-0.digits:29500"),
        ("volcano", "digits-ps-0.digits:29500"),
    ],
)
def test_addresses_are_hosts_there(target, host):
    text = job(
        "command: [python, \"{{ address('ps', 0) }}\", \"{{ '{{' }}\"]", "name: ps", "name: worker"
    )
    assert f"- {host}\n" in exported(text, target).text
    assert "'{{'" in exported(text, target).text


WORKER = "name: worker, command: [python, a.py], restartPolicy: Never"


@pytest.mark.parametrize(
    ("target", "spec", "role", "line"),
    [
        *((target, spec, WORKER, 6) for target in TARGETS for spec in (
            "checkpoint: {uri: /c}",
            "output: {uri: /o}",
            "code: {uri: /c, digest: sha256:a}",
            "dag: {schedule: '@daily'}",
            "stop: {until: loss < 1}",
            "runtime: {name: other}",
        )),
        *((target, "", "name: worker, command: ['{{ params.lr }}'], restartPolicy: Never", 7) for target in TARGETS),
        ("jobset", "restart: {maxRestarts: 1}", "name: worker, backoffLimit: 3, command: [a]", 6),
        ("jobset", "activeDeadlineSeconds: 5", f"{WORKER}, replicas: 2", 6),
        ("jobset", "schedulingPolicy: {gang: volcano}", WORKER, 6),
        ("jobset", "failurePolicy: {rules: [{action: FailJob}]}", WORKER, 6),
        ("jobset", "restart: {maxRestarts: 6}", "name: worker, command: [a], minSucceeded: 50%", 8),
        ("volcano", "activeDeadlineSeconds: 5", WORKER, 6),
        ("volcano", "suspend: true", WORKER, 6),
        ("volcano", "failurePolicy: {rules: [{action: FailJob, onReasons: [OOMKilled]}]}", WORKER, 6),
        ("volcano", "", "name: worker, command: [a], restartPolicy: ExitCode", 7),
        ("sbatch", "image: a", WORKER, 6),
        ("sbatch", "", "name: worker, command: [a], restartPolicy: OnFailure", 7),
        ("sbatch", "suspend: true", WORKER, 6),
        ("sbatch", "schedulingPolicy: {gang: kueue}", WORKER, 6),
    ],
)  # fmt: skip
def test_what_nobody_there_does_is_refused_with_its_line(target, spec, role, line):
    text = job(spec, role, framework="pytorch" if target == "pytorchjob" else "custom")
    assert line in refused(text, target).values()


def test_a_master_alone_decides_there():
    text = job("image: a", "name: master", "name: worker", framework="pytorch")
    (fate,) = [each for each in exported(text, "pytorchjob").report.of("refused") if "successPolicy" in each.field]  # fmt: skip
    assert fate.default
    said = job(
        "image: a\nsuccessPolicy: {targetRoles: [master]}",
        "name: master",
        "name: worker",
        framework="pytorch",
    )
    assert "successPolicy" not in " ".join(refused(said, "pytorchjob"))


def test_another_framework_is_no_pytorchjob():
    (found,) = export_text(job("image: a", "name: worker"), "pytorchjob")
    assert [(each.field, each.line) for each in found.problems] == [("spec.framework", 5)]


def test_ranks_of_pytorch_are_told_by_the_index_of_a_pod():
    text = job(
        "command: [python, a.py]",
        "name: worker, replicas: 2, restartPolicy: Never",
        framework="pytorch",
    )
    pods: dict[str, Any] = yaml.safe_load(exported(text, "jobset").text)["spec"]["replicatedJobs"][
        0
    ]["template"]["spec"]
    names = {
        each["name"]: each.get("value") for each in pods["template"]["spec"]["containers"][0]["env"]
    }
    assert names["MASTER_ADDR"] == "digits-worker-0-0.digits"
    assert names["RANK"] is None
    assert ours(exported(text, "jobset").text)["roles"][0]["replicas"] == 2


def test_comments_go_along():
    text = job("command: [a]\n# for a day\nttlSecondsAfterFinished: 5", "name: worker")
    assert "  # for a day\n  ttlSecondsAfterFinished: 5" in exported(text, "jobset").text


def test_a_role_that_waits_for_one_below_is_no_job_of_a_jobset():
    waiting = (
        "name: a, command: [a], dependsOn: [{role: b, status: Complete, timeoutSeconds: 31536000}]"
    )
    assert refused(job("", waiting, "name: b, command: [b]"), "jobset")
    assert (
        not refused(job("", "name: b, command: [b]", waiting), "jobset").keys()
        - refused(job("", "name: b, command: [b]", "name: a, command: [a]"), "jobset").keys()
    )


def test_volcano_is_told_each_event_once():
    rule = "failurePolicy: {rules: [{action: RestartJob, onClasses: [preemption, infrastructure]}]}"
    text = job(rule, "name: a, command: [a], restartPolicy: OnFailure")
    policies = yaml.safe_load(exported(text, "volcano").text)["spec"]["policies"]
    assert [each["event"] for each in policies] == ["PodEvicted", "PodFailed"]
    assert policies[0]["action"] == "RestartJob"


def test_srun_is_told_the_processors_of_a_task_too():
    role = "name: a, command: [train], restartPolicy: Never, resources: {limits: {cpu: '8'}}"
    assert "\nsrun -c 8 train\n" in exported(job("", role), "sbatch").text
