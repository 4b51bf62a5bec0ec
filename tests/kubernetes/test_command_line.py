"""`airflow-training` on a cluster of processes: the same job files, the same commands."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.cli.conftest import forked
from tests.kubernetes.emulator import Cluster
from tests.kubernetes.readme import readme_job

HELLO = """\
apiVersion: airflow-training/v1
kind: TrainingJob
metadata: {name: hello}
spec:
  framework: custom
  image: busybox
  command: [sh, -c, 'echo "$TRAINING_ROLE $TRAINING_INDEX of $TRAINING_WORLD_SIZE"']
  roles:
    - {name: master}
    - {name: worker, replicas: 2, dependsOn: [{role: master}]}
"""


@dataclass
class Shell:
    """Somebody's terminal."""

    home: Path
    kubeconfig: Path
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        mine = {"AIRFLOW_HOME": str(self.home), "KUBECONFIG": str(self.kubeconfig)}
        output = self.home.with_name(f"{self.home.name}-{next(self._numbers)}")
        done = forked(words, self.home, {**os.environ, **mine}, output)
        return subprocess.CompletedProcess(words, done.code, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(kubelet="processes") as cluster:
        yield cluster


@pytest.fixture
def shell(cluster: Cluster, tmp_path: Path) -> Shell:
    (tmp_path / "hello.yaml").write_text(HELLO)
    return Shell(tmp_path, cluster.write_kubeconfig(tmp_path / "kubeconfig"))


def test_a_job_runs_and_its_logs_are_there_when_its_pods_are_not(shell: Shell, cluster: Cluster):
    done = shell(
        "run", "hello.yaml", "--runtime", "kubernetes", "--run-id", "one", "-o", "json",
        "--set", "spec.cleanPodPolicy=All",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["state"] == "Succeeded"
    assert "Traceback" not in done.stderr
    pods = cluster.control.list("pods", namespace="default")  # other tests have left theirs
    assert [each for each in pods if each["metadata"]["name"].startswith("hello-")] == []
    shown = shell("logs", "show", "one", "--role", "worker", "--index", "1")
    assert shown.stdout == "worker 1 of 3\n"


def test_the_log_of_what_never_started_says_so_and_why(shell: Shell, cluster: Cluster):
    cluster.control.refuse_image("nowhere:1", "manifest unknown: nowhere:1 not found")
    done = shell(
        "run", "hello.yaml", "--runtime", "kubernetes", "--run-id", "no-image",
        "--set", "spec.image=nowhere:1",
    )  # fmt: skip
    assert done.returncode == 1
    for more in ((), ("--tail", "5")):
        shown = shell("logs", "show", "no-image", "--role", "master", *more)
        assert (shown.returncode, shown.stdout) == (0, "")
        assert "master-0 was never started: container 'main': failed to pull" in shown.stderr


def test_what_is_missing_is_exit_2_with_the_rule_to_add(shell: Shell, cluster: Cluster):
    cluster.control.add_user("nobody", token="nobody")
    cluster.write_kubeconfig(shell.kubeconfig, token="nobody")
    done = shell("run", "hello.yaml", "--runtime", "kubernetes", "--run-id", "refused")
    assert done.returncode == 2
    assert done.stdout == ""
    assert (
        'resources: ["pods"]\n    verbs: [create, get, list, watch, patch, delete]' in done.stderr
    )
    assert "Traceback" not in done.stderr
    assert "refused" not in shell("list").stdout


def test_no_cluster_at_all_is_one_clear_message(shell: Shell):
    shell.kubeconfig.unlink()
    done = shell("run", "hello.yaml", "--runtime", "kubernetes")
    assert done.returncode == 1
    assert "error: cannot connect to a cluster" in done.stderr
    assert "hint: set KUBECONFIG" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_context_that_does_not_exist_is_named(shell: Shell):
    done = shell(
        "run", "hello.yaml", "--runtime", "kubernetes", "--set", "spec.runtime.connection=prod"
    )
    assert done.returncode == 1
    assert "the kubeconfig context 'prod'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.e2e
@pytest.mark.soak  # the snippets of the README run it as well, where nobody counts its ranks
def test_the_job_of_the_readme_trains_across_pods_as_it_stands(shell: Shell, cluster: Cluster):
    """Real distributed data parallel: ranks find each other by the names of their services."""
    pytest.importorskip("torch")
    (shell.home / "digits.yaml").write_text(readme_job(cluster))
    done = shell(
        "run", "digits.yaml", "--runtime", "kubernetes", "--run-id", "digits", "-o", "json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["state"] == "Succeeded"
    log = shell("logs", "show", "digits", "--role", "master").stdout
    assert "trained by 3 ranks" in log
