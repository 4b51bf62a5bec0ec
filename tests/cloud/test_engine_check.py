"""What a cluster lacks for a submission is told before one byte of it moves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kubernetes_asyncio.config import kube_config

from airflow_training.admission.check import check_text
from airflow_training.cloud.service.admission import QuotaRefused
from airflow_training.cloud.service.engine_check import ask_runtime
from airflow_training.documents.resolved import ResolvedJob, RunKey
from airflow_training.errors import InputError, RuntimeUnavailable
from tests.kubernetes.emulator import Cluster

pytestmark = pytest.mark.e2e
KEY = RunKey(source="cli", run_id="train-0123456789")


def a_job(replicas: int = 2, **role: Any) -> ResolvedJob:
    document = {
        "apiVersion": "airflow-training/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "train"},
        "spec": {
            "framework": "custom",
            "runtime": {"name": "kubernetes"},
            "image": "torch:1",
            "command": ["python3", "train.py"],
            "code": {"uri": "/storage", "digest": f"sha256:{'0' * 64}"},
            "roles": [{"name": "worker", "replicas": replicas, **role}],
        },
    }
    [answer] = check_text(json.dumps(document), run_uid=KEY.uid)
    assert answer.resolved is not None, answer.problems
    return answer.resolved


@pytest.fixture
def kubeconfig(scripted_cluster: Cluster, airflow_home: Path, monkeypatch) -> Path:
    path = scripted_cluster.write_kubeconfig(airflow_home / "kubeconfig")
    monkeypatch.setenv("KUBECONFIG", str(path))
    monkeypatch.setattr(
        kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(path)
    )  # read at its import
    return path


@pytest.fixture
def scripted_cluster():
    with Cluster() as cluster:
        yield cluster


def a_quota(**hard: str) -> dict[str, Any]:
    metadata = {"name": "small"}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard}}  # fmt: skip


def test_a_cluster_with_room_takes_it_and_has_nothing_of_it(kubeconfig, scripted_cluster):
    ask_runtime(a_job(), KEY)
    assert scripted_cluster.control.list("pods") == []
    found = scripted_cluster.control.list("configmaps", namespace="default")
    assert not [each for each in found if each["metadata"]["name"].startswith("train")]


def test_a_quota_that_is_too_small_for_all_names_what_it_allows(kubeconfig, scripted_cluster):
    scripted_cluster.control.create(a_quota(pods="2"))
    with pytest.raises(InputError, match="allows 2"):
        ask_runtime(a_job(3), KEY)


def test_a_quota_that_others_have_used_names_what_is_used(kubeconfig, scripted_cluster):
    scripted_cluster.control.create(a_quota(pods="2"))
    pod = {"containers": [{"name": "main", "image": "busybox"}]}
    scripted_cluster.control.create(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "other"}, "spec": pod}
    )
    with pytest.raises(QuotaRefused, match="used: pods=1, limited: pods=2"):
        ask_runtime(a_job(2), KEY)
    ask_runtime(a_job(1), KEY)


def test_a_right_that_is_missing_is_named_with_its_rule(kubeconfig, scripted_cluster):
    scripted_cluster.control.add_user("nobody", token="nobody")
    scripted_cluster.write_kubeconfig(kubeconfig, token="nobody")
    with pytest.raises(InputError, match=r'resources: \["pods"\]'):
        ask_runtime(a_job(), KEY)


def test_no_cluster_is_told_as_one_that_is_away(kubeconfig):
    kubeconfig.unlink()
    with pytest.raises(RuntimeUnavailable, match="cannot connect to a cluster"):
        ask_runtime(a_job(), KEY)
