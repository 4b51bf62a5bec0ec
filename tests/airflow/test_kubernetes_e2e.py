"""A DAG on a cluster, reached through an Airflow connection, from plan to cleanup."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import yaml

from tests.airflow.stack import Airflow
from tests.kubernetes.emulator import Cluster
from tests.kubernetes.readme import readme_job
from tests.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SCRIPT = "echo trained by $TRAINING_ROLE; sleep 2"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(kubelet="processes") as cluster:
        yield cluster


def connect(airflow: Airflow, name: str, kubeconfig: dict[str, Any]) -> None:
    """Make a Kubernetes connection as one does in Airflow's UI."""
    body = {
        "connection_id": name,
        "conn_type": "kubernetes",
        "extra": json.dumps({"kube_config": json.dumps(kubeconfig)}),
    }
    answer = airflow.ask("POST", "/connections", body)
    assert answer.status_code in (201, 409), answer.text


def job(airflow: Airflow, name: str, connection: str) -> dict[str, Any]:
    document = airflow.document(
        name,
        {"name": "master"},
        {"name": "worker", "replicas": 2, "dependsOn": [{"role": "master"}]},
    )
    document["spec"] |= {
        "runtime": {"name": "kubernetes", "connection": connection},
        "image": "busybox",
        "command": ["sh", "-c", SCRIPT],
    }
    return document


def test_a_job_runs_on_the_cluster_of_an_airflow_connection(airflow: Airflow, cluster: Cluster):
    connect(airflow, "emulated", cluster.kubeconfig())
    airflow.write(job(airflow, "clustered", "emulated"))
    run_id = airflow.trigger("clustered")
    assert airflow.wait_run("clustered", run_id) == "success"
    ledger = airflow.ledger("clustered", run_id)
    assert (ledger.job.state, ledger.job.restarts) == ("Succeeded", ())
    assert "running on node-" in airflow.log("clustered", run_id, "reconcile")
    # what the job keeps is there to be looked at, with its log, and nothing else
    pods = cluster.control.list("pods", namespace="default")
    assert [pod["status"]["phase"] for pod in pods] == ["Succeeded"] * 3
    assert not [
        each
        for each in cluster.control.list("services", namespace="default")
        if each["metadata"]["name"].startswith("clustered-")
    ]
    where = {"dag_id": "clustered", "run_id": run_id, "task_id": "worker.run"}
    page = httpx.get(
        f"{airflow.stack.url}/training/log",
        params={**where, "role": "worker", "index": 1},
        headers=airflow.client.headers,
        timeout=PATIENCE,
    )
    assert page.text == "trained by worker\n"


@pytest.mark.soak  # in `make e2e` the snippets of the README run it
def test_the_job_of_the_readme_trains_as_a_dag(airflow: Airflow, cluster: Cluster):
    pytest.importorskip("torch")
    connect(airflow, "emulated", cluster.kubeconfig())
    document = yaml.safe_load(readme_job(cluster))
    document["metadata"]["name"] = "readme"
    document["spec"]["runtime"] = {"name": "kubernetes", "connection": "emulated"}
    # Within 17 hours of its weekly time Airflow starts a new DAG at once, and two runs would want the
    # port of the master on this machine, which is every pod's.
    del document["spec"]["dag"]["schedule"]
    airflow.write(document)
    run_id = airflow.trigger("readme")
    assert airflow.wait_run("readme", run_id) == "success"
    ledger = airflow.ledger("readme", run_id)
    assert (ledger.job.state, ledger.job.restarts) == ("Succeeded", ())


def test_plan_fails_with_the_rule_that_is_missing(airflow: Airflow, cluster: Cluster):
    cluster.control.add_user("airflow", token="only-looks")
    cluster.control.allow(
        "airflow", [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
    )
    connect(airflow, "looking", cluster.kubeconfig(token="only-looks"))
    airflow.write(job(airflow, "forbidden", "looking"))
    run_id = airflow.trigger("forbidden")
    assert airflow.wait_run("forbidden", run_id) == "failed"
    told = airflow.text("forbidden", run_id, "plan")
    assert "the connection may not create pods" in told
    assert 'resources: ["services"]' in told
    assert airflow.store.run(airflow.uid("forbidden", run_id)) is None


@pytest.mark.soak
def test_plan_says_so_when_the_cluster_cannot_be_reached(airflow: Airflow, cluster: Cluster):
    nowhere = cluster.kubeconfig()
    nowhere["clusters"][0]["cluster"]["server"] = "http://127.0.0.1:9"
    connect(airflow, "nowhere", nowhere)
    airflow.write(job(airflow, "unreachable", "nowhere"))
    run_id = airflow.trigger("unreachable")
    # it is asked for two minutes, and after a part of them a wait is patient enough for the rest
    wait_until(lambda: "asked again in 16 s" in airflow.text("unreachable", run_id, "plan"))
    assert airflow.wait_run("unreachable", run_id) == "failed"
    told = airflow.text("unreachable", run_id, "plan")
    assert "the job could not be checked: the cluster does not answer" in told
    assert "Traceback" not in told
