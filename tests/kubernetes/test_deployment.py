"""What docker/ says about a deployment, against the code: rights, options, what an image is built from."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_training.control.first_ledger import new_ledger
from airflow_training.documents.resolved import (
    ResolvedJob,
    ResolvedNetworkPolicy,
    ResolvedRole,
    RunKey,
    Scheduling,
)
from airflow_training.runtimes.kubernetes.facts import facts_of
from airflow_training.runtimes.kubernetes.logs import LogArchive
from airflow_training.runtimes.kubernetes.pods import PodOptions
from airflow_training.runtimes.kubernetes.rights import USEFUL_RIGHTS, check_cluster, needed_rights
from airflow_training.runtimes.kubernetes.runtime import KubernetesRuntime
from airflow_training.settings import OPTIONS
from airflow_training.state.store import Store
from airflow_training.supervise.cleanup import clean_up
from airflow_training.supervise.loop import Supervisor
from tests.kubernetes.conftest import connect_to
from tests.kubernetes.emulator import Cluster
from tests.kubernetes.samples import RUN, a_job, a_role
from tests.waiting import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
GANGS = ("none", "volcano", "coscheduling", "kueue")
USER = "system:serviceaccount:airflow:airflow-triggerer"
TOKEN = "the triggerer's"


def manifest() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((ROOT / "docker" / "rbac.yaml").read_text()))


def test_the_role_grants_exactly_what_jobs_need():
    role = next(one for one in manifest() if one["kind"] == "Role")
    granted = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    guarded = a_role(network_policy=ResolvedNetworkPolicy(ingress=()))
    needed = {
        (kind.group, f"{kind.plural}/{sub}" if sub else kind.plural, verb)
        for gang in GANGS
        for kind, sub, verb in needed_rights(
            facts_of(RUN, a_job(guarded, gang=gang)), callback=True
        )
    }
    useful = {
        (kind.group, f"{kind.plural}/{sub}" if sub else kind.plural, verb)
        for kind, sub, verb in USEFUL_RIGHTS
    }
    assert granted == needed | useful


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(installed=["volcano", "coscheduling", "kueue"]) as cluster:
        cluster.control.behave("team/.*", exit_code=0, after=0.2)
        cluster.control.create_namespace("team")
        cluster.control.add_user(USER, token=TOKEN)
        # as `kubectl apply -n team -f docker/rbac.yaml`
        cluster.control.bind(
            [{**one, "metadata": {**one["metadata"], "namespace": "team"}} for one in manifest()]
        )
        cluster.control.create(
            {
                "apiVersion": "kueue.x-k8s.io/v1beta1",
                "kind": "LocalQueue",
                "metadata": {"name": "research", "namespace": "team"},
                "spec": {"clusterQueue": "all"},
            }
        )
        yield cluster


def the_job(gang: str, *, ssh: bool) -> ResolvedJob:
    container = {
        "name": "main",
        "image": "busybox",
        "command": ["sh", "-c", "exit 0"],
        "resources": {"requests": {"cpu": "1"}},
    }
    metadata = {"annotations": {"airflow-training/ssh-keys": "/etc/mpi/ssh"}} if ssh else {}
    template = {"metadata": metadata, "spec": {"containers": [container]}}
    queue = "research" if gang == "kueue" else ""
    return ResolvedJob(
        name="digits",
        namespace="team",
        runtime="kubernetes",
        roles=(ResolvedRole(name="worker", replicas=2, template=template),),
        scheduling=Scheduling(gang=gang, startup="ordered", queue=queue),
        clean_pod_policy="All",
    )


@pytest.mark.e2e
@pytest.mark.parametrize("gang", GANGS)
async def test_a_run_gets_by_with_the_role(cluster: Cluster, tmp_path: Path, gang: str):
    runtime = KubernetesRuntime(
        connect=connect_to(cluster, token=TOKEN),
        archive=LogArchive(str(tmp_path / "logs"), tail_bytes=0),
        options=PodOptions(agent_image="python:3", callback_url="http://here"),
        callback_token=lambda uid: "token",
    )
    job = the_job(gang, ssh=gang == "none")
    store = Store(f"sqlite:///{tmp_path}/store.db")
    ledger = new_ledger(job, now=store.now(), activate_all=True)
    run = store.create_run(
        RunKey(source="test", run_id=gang), job, ledger, controller="site-1", queue=False
    )
    assert await check_cluster(runtime.api, job, facts_of(RUN, job), callback=True) == []
    supervisor = Supervisor(store=store, runtime=runtime, run_uid=run.uid, owner="test")
    assert await asyncio.wait_for(supervisor.run(), PATIENCE) == "Succeeded"
    await clean_up(run.uid, store=store, runtime=runtime, timeout_seconds=30)
    left = [
        f"{plural}/{each['metadata']['name']}"
        for plural in ("pods", "services", "configmaps", "secrets")
        for each in cluster.control.list(plural, namespace="team")
        if run.uid in str(each["metadata"].get("labels"))
    ]
    assert left == []


def test_volumes_of_the_compose_file_are_writable_folders_of_the_image():
    """A named volume takes its owner from the folder that the image has there, else it is root's."""
    compose = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())
    mounted = {each.partition(":")[2] for each in compose["x-airflow"]["volumes"]}
    dockerfile = (ROOT / "docker" / "airflow.Dockerfile").read_text()
    made = set(re.findall(r"^RUN mkdir -m 775 (.+)$", dockerfile, re.MULTILINE)[0].split())
    assert mounted == made | {"/opt/airflow/logs"}, "logs is in Airflow's own image"


def files() -> list[Path]:
    return sorted(path for path in (ROOT / "docker").iterdir() if path.is_file())


@pytest.mark.parametrize("path", files(), ids=lambda path: path.name)
def test_options_that_are_set_exist(path: Path):
    named = re.findall(r"AIRFLOW__TRAINING__([A-Z_]+)", path.read_text())
    assert [name for name in named if name.lower() not in OPTIONS] == []


@pytest.mark.parametrize("path", [p for p in files() if p.suffix == ".yaml"], ids=lambda p: p.name)
def test_documents_can_be_read_and_hold_no_secret(path: Path):
    text = path.read_text()
    assert list(yaml.safe_load_all(text))
    assert re.findall(r"(?i)(?:password|secret|token): *['\"]?[a-z0-9]{12,}", text) == []


@pytest.mark.parametrize(
    "path", [p for p in files() if p.suffix == ".Dockerfile"], ids=lambda p: p.name
)
def test_what_an_image_copies_is_there(path: Path):
    for sources in re.findall(
        r"^COPY (?!--from)(?:--\S+ )*(.+) \S+$", path.read_text(), re.MULTILINE
    ):
        for source in sources.split():
            assert (ROOT / source).exists(), source


def test_the_image_of_the_examples_holds_what_its_script_imports():
    script = (ROOT / "dags/examples/digits/train.py").read_text()
    dockerfile = (ROOT / "docker" / "digits.Dockerfile").read_text()
    packages = {
        "airflow_training": "COPY airflow_training ",
        "torch": " python3-torch ",
        "sklearn": " python3-sklearn ",
    }
    for module in set(re.findall(r"^(?:from|import) (\w+)", script, re.MULTILINE)) & {*packages}:
        assert packages[module] in dockerfile
