"""What other systems count and wait for, played with imported jobs: the ends that those systems document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.interchange.test_frameworkcontroller import framework
from tests.interchange.test_frameworkcontroller import role as task_role
from tests.interchange.test_rayjob import rayjob
from tests.interchange.test_sbatch import script
from tests.interchange.test_trainjob import runtime, trainjob
from tests.interchange.test_volcano import task, volcano

pytestmark = pytest.mark.e2e

POD = "spec: {containers: [{name: NAME, image: a, command: [python, train.py]}]}"


def kubernetes_job(**spec: Any) -> str:
    head = {"completionMode": "Indexed", "completions": 2, "parallelism": 2, **spec}
    return (
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: digits}\nspec:\n"
        + "".join(f"  {key}: {json.dumps(value)}\n" for key, value in head.items())
        + f"  template: {{{POD.replace('NAME', 'main')}}}\n"
    )


def jobset(*jobs: tuple[str, int, int, int], **spec: Any) -> str:
    """Return a set of jobs, each with its name, replicas, pods and `backoffLimit`."""
    pod = POD.replace("NAME", "main")
    return (
        "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: digits}\nspec:\n"
        + "".join(f"  {key}: {json.dumps(value)}\n" for key, value in spec.items())
        + "  replicatedJobs:\n"
        + "".join(
            f"    - name: {name}\n      replicas: {replicas}\n      template: {{spec: {{parallelism: {pods},"
            f" completions: {pods}, backoffLimit: {limit}, template: {{{pod}}}}}}}\n"
            for name, replicas, pods, limit in jobs
        )
    )


def pytorchjob(policy: str) -> str:
    pod = POD.replace("NAME", "pytorch")
    return (
        "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: digits}\nspec:\n"
        "  runPolicy: {backoffLimit: 3}\n  pytorchReplicaSpecs:\n"
        + "".join(
            f"    {role}: {{restartPolicy: {policy}, template: {{{pod}}}}}\n"
            for role in ("Master", "Worker")
        )
    )


def kill(role: str, index: int, attempt: int = 0, code: int = 3) -> dict[str, Any]:
    return {"after": 1, "kill": role, "index": index, "attempt": attempt, "exitCode": code}


SET = jobset(("a", 1, 1, 0), ("b", 2, 1, 0), failurePolicy={"maxRestarts": 1})
SLICES = jobset(("slice", 2, 2, 1))
CHIEF = jobset(
    ("a", 1, 1, 0),
    ("b", 1, 1, 0),
    failurePolicy={
        "maxRestarts": 3,
        "rules": [{"name": "chief", "action": "FailJobSet", "targetReplicatedJobs": ["a"]}],
    },
)
ANEW = jobset(("a", 1, 2, 1), failurePolicy={"maxRestarts": 1})
SEARCH = jobset(
    ("a", 3, 1, 0),
    ("log", 1, 1, 0),
    successPolicy={"operator": "Any", "targetReplicatedJobs": ["a"]},
)


RETRIED = volcano(
    task("worker", "replicas: 2"),
    spec="maxRetry: 1\npolicies: [{event: PodFailed, action: RestartJob}]",
)
COMPLETES = volcano(
    task("ps"), task("worker", "policies: [{event: TaskCompleted, action: CompleteJob}]")
)
TRAINJOB = (
    trainjob("numNodes: 2\ncommand: [python, a.py]") + "---\n" + runtime(job="backoffLimit: 1, ")
)


@pytest.mark.parametrize(
    ("source", "faults", "state", "attempts"),
    [
        pytest.param(
            volcano(task("worker", "replicas: 2")), [kill("worker", 0)],
            "Failed", {"worker-0": 0, "worker-1": 0}, id="a-pod-of-volcano-ends-nothing",
        ),
        pytest.param(RETRIED, [kill("worker", 0)], "Succeeded", {"worker-0": 1, "worker-1": 1}, id="a-policy-restarts-all"),
        pytest.param(RETRIED, [kill("worker", 0), kill("worker", 1, 1)], "Failed", None, id="max-retry-is-used-up", marks=pytest.mark.soak),
        pytest.param(COMPLETES, [kill("ps", 0)], "Succeeded", {"ps-0": 0}, id="a-task-completes-the-job", marks=pytest.mark.soak),
        pytest.param(
            framework(task_role("a"), task_role("b", 2), retry=1), [kill("b", 1)],
            "Succeeded", {"a-0": 1, "b-0": 1, "b-1": 1}, id="a-framework-begins-anew",
        ),
        pytest.param(framework(task_role("a", 2, retry=1)), [kill("a", 0)], "Succeeded", {"a-0": 1, "a-1": 0}, id="a-task-begins-anew", marks=pytest.mark.soak),
        pytest.param(framework(task_role("a", 2)), [kill("a", 0)], "Failed", {"a-0": 0}, id="a-framework-that-tries-once", marks=pytest.mark.soak),
        pytest.param(rayjob(), [kill("small", 0)], "Succeeded", {"head-0": 0, "small-0": 1}, id="workers-of-ray-come-again"),
        pytest.param(rayjob(), [kill("head", 0)], "Failed", {"head-0": 0}, id="the-head-of-ray-is-the-job", marks=pytest.mark.soak),
        pytest.param(rayjob("backoffLimit: 1"), [kill("head", 0)], "Succeeded", {"head-0": 1, "small-0": 1}, id="a-new-cluster", marks=pytest.mark.soak),
        pytest.param(TRAINJOB, [kill("worker", 0)], "Succeeded", {"worker-0": 1}, id="the-job-of-a-runtime", marks=pytest.mark.soak),
        pytest.param(TRAINJOB, [kill("worker", 0), kill("worker", 0, 1)], "Failed", None, id="the-limit-of-a-runtime", marks=pytest.mark.soak),
        pytest.param(script("srun python a.py", head="#SBATCH -n 2"), [kill("worker", 0)], "Failed", {"worker-0": 0}, id="a-task-of-slurm-is-not-tried-again"),
        pytest.param(
            script("srun python a.py", head="#SBATCH --array=0-1"), [kill("worker", 0)],
            "Failed", {"worker-0": 0, "worker-1": 0}, id="elements-of-an-array-go-on", marks=pytest.mark.soak,
        ),
        pytest.param(
            kubernetes_job(backoffLimit=2), [kill("worker", 0), kill("worker", 1)],
            "Succeeded", {"worker-0": 1, "worker-1": 1}, id="a-job-within-its-limit", marks=pytest.mark.soak,
        ),
        pytest.param(
            kubernetes_job(backoffLimit=2), [kill("worker", 0), kill("worker", 1), kill("worker", 0, 1)],
            "Failed", None, id="a-job-counts-all-its-pods",
        ),
        pytest.param(
            kubernetes_job(backoffLimitPerIndex=0), [kill("worker", 0)],
            "Failed", {"worker-0": 0, "worker-1": 0}, id="other-indexes-go-on", marks=pytest.mark.soak,
        ),
        pytest.param(SET, [kill("b", 1)], "Succeeded", {"a-0": 1, "b-0": 1, "b-1": 1}, id="a-set-restarts-whole"),
        pytest.param(SET, [kill("b", 1), kill("a", 0, 1)], "Failed", None, id="a-set-counts-its-restarts", marks=pytest.mark.soak),
        pytest.param(
            SLICES, [kill("slice-0", 0), kill("slice-1", 1)], "Succeeded",
            {"slice-0-0": 1, "slice-0-1": 0, "slice-1-0": 0, "slice-1-1": 1}, id="each-job-has-its-limit",
        ),
        pytest.param(
            SLICES, [kill("slice-0", 0), kill("slice-0", 1)], "Failed", None, id="the-pods-of-a-job-share-it", marks=pytest.mark.soak,
        ),
        pytest.param(CHIEF, [kill("b", 0)], "Succeeded", {"a-0": 1, "b-0": 1}, id="no-rule-restarts-the-set", marks=pytest.mark.soak),
        pytest.param(CHIEF, [kill("a", 0)], "Failed", {"a-0": 0}, id="a-rule-fails-the-set", marks=pytest.mark.soak),
        pytest.param(ANEW, [kill("a", 0), kill("a", 1)], "Succeeded", None, id="used-up-then-anew", marks=pytest.mark.soak),
        pytest.param(SEARCH, [kill("log", 0)], "Failed", None, id="any-failure-fails-a-set", marks=pytest.mark.soak),
        pytest.param(pytorchjob("ExitCode"), [kill("worker", 0, code=3)], "Failed", None, id="permanent-code", marks=pytest.mark.soak),
        pytest.param(pytorchjob("ExitCode"), [kill("worker", 0, code=140)], "Succeeded", None, id="retryable-code", marks=pytest.mark.soak),
        pytest.param(pytorchjob("Never"), [kill("worker", 0)], "Failed", None, id="never", marks=pytest.mark.soak),
    ],
)  # fmt: skip
def test_an_imported_job_ends_as_its_own_system_would_end_it(
    home, command, source, faults, state, attempts
):
    Path("source.yaml").write_text(source)
    imported = command("import", "source.yaml")
    assert imported.code == 0, imported.stderr
    Path("job.yaml").write_text(imported.stdout)
    # who is not killed outlives every fault, but for the roles that others wait for
    Path("faults.yaml").write_text(
        json.dumps({"roles": {"*": {"runSeconds": 900}}, "faults": faults})
    )
    done = command("run", "job.yaml", "--simulate", "faults.yaml", "-o", "json")
    assert done.json["state"] == state, done.stderr
    found = {f"{each['role']}-{each['index']}": each["attempt"] for each in done.json["instances"]}
    assert attempts is None or attempts.items() <= found.items()
