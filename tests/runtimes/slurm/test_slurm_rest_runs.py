"""Jobs by a real slurmrestd: as they would be by Slurm's commands, with a token alone, and seldom asked for."""

from __future__ import annotations

import contextlib
import pwd
import re
import time
from pathlib import Path
from typing import Any

import pytest

from airflow_training.errors import RuntimeUnavailable
from airflow_training.runtimes.slurm.allocation_options import AllocationOptions
from airflow_training.runtimes.slurm.cluster import (
    CommandCluster,
    SlurmCluster,
    SlurmSubmission,
    SubmitRefused,
)
from airflow_training.runtimes.slurm.queue_view import read_job_id
from airflow_training.runtimes.slurm.requests import AllocationComponent, AllocationRequest
from airflow_training.runtimes.slurm.rest import RestCluster
from airflow_training.runtimes.slurm.runtime import SlurmRuntime
from airflow_training.settings import user_name
from tests.contracts.runtime import watching
from tests.ports import free_port
from tests.runtimes.slurm.command_runs import ECHO, FAILS_ONCE, home, logs, start
from tests.runtimes.slurm.lab import Lab
from tests.runtimes.slurm.test_slurm_login import prepared
from tests.waiting import until, wait_until

__all__ = ["home"]

pytestmark = pytest.mark.e2e

USER = "games"  # Slurm takes no tokens of root and of the user that it runs as


@pytest.fixture(scope="module")
def url(lab: Lab) -> str:
    if not lab.tokens:
        pytest.skip("tokens of Slurm are not installed: no slurm-wlm-jwt-plugin")
    address = f"127.0.0.1:{free_port()}"
    lab.start_rest(address)
    return f"http://{address}"


@pytest.fixture
def cluster(lab: Lab, url: str, tmp_path: Path) -> RestCluster:
    token = tmp_path / "token"
    token.write_text(lab.run(["scontrol", "token", f"username={USER}", "lifespan=600"]))
    return RestCluster(url=url, user=USER, uid=pwd.getpwnam(USER).pw_uid, token_file=str(token))


def sleeping(*cpus: int, spare_nodes: int = 0, **options: Any) -> SlurmSubmission:
    components = tuple(
        AllocationComponent(cpus=each, memory_mb_per_cpu=100) for each in cpus or (2,)
    )
    members = tuple((f"worker-{number}",) for number, _ in enumerate(components))
    return SlurmSubmission(
        request=AllocationRequest(
            components=components,
            elements=(members,),
            spare_nodes=spare_nodes,
            tasks_per_node=1 if spare_nodes else 0,
        ),
        options=AllocationOptions(**{"partition": "main", "time": "10:00", **options}),
        name="airflow-training.rest",
        comment="run one",
        script="#!/bin/sh\nsleep 300\n",
    )  # fmt: skip


def test_a_job_is_queued_seen_and_cancelled_by_a_token(cluster: RestCluster, lab: Lab):
    job = cluster.submit(sleeping())
    wait_until(lambda: cluster.queue()[job].state == "RUNNING", seen=cluster.queue)
    listed = lab.run(["squeue", "--noheader", f"--jobs={job}", "--format=%u %C %l"])
    assert listed.split() == [USER, "2", "10:00"]
    cluster.cancel([job])
    wait_until(lambda: cluster.queue()[job].state == "CANCELLED", seen=cluster.queue)
    cluster.cancel([job])  # once more is no error


def test_nodes_are_seen_by_a_token(cluster: RestCluster, lab: Lab):
    assert {each.name for each in cluster.nodes("")} == {f"n{n + 1}" for n in range(lab.nodes)}
    assert [each.name for each in cluster.nodes("short")] == ["n1"]


def test_what_slurm_refuses_is_told_in_its_words(cluster: RestCluster):
    with pytest.raises(SubmitRefused, match="partition") as refused:
        cluster.submit(sleeping(partition="nowhere"))
    assert refused.value.answer.kind == "impossible"


def test_a_token_that_slurm_did_not_make_is_named(url: str, tmp_path: Path):
    token = tmp_path / "forged"
    token.write_text("SLURM_JWT=e30.e30.e30")
    cluster = RestCluster(url=url, user=USER, uid=pwd.getpwnam(USER).pw_uid, token_file=str(token))
    with pytest.raises(
        RuntimeUnavailable, match=f"perhaps {token} has no token of {USER} that is valid now"
    ):
        cluster.queue()
    with pytest.raises(RuntimeUnavailable, match=f"perhaps {token} "):
        cluster.submit(sleeping())  # not refused for good: it may be renewed


# the same by commands ---------------------------------------------------------------------------------
ASKED = (
    "Partition", "TimeLimit", "NumNodes", "NumCPUs", "NumTasks", "CPUs/Task", "MinMemoryCPU", "OverSubscribe", "TresPerNode",
    "NtasksPerN:B:S:C", "Comment", "StdOut", "StdIn",
)  # fmt: skip


def shown(lab: Lab, cluster: SlurmCluster, job: SlurmSubmission) -> list[dict[str, str]]:
    """Return each component of a job, once it runs, as Slurm shows what was asked for."""
    id_ = read_job_id(cluster.submit(job))

    def lines() -> list[str]:
        return lab.run(["scontrol", "show", "job", id_, "--oneliner"]).splitlines()

    wait_until(lambda: all("JobState=RUNNING" in each for each in lines()), seen=lines)
    found = [dict(re.findall(r"(\S+?)=(\S*)", line)) for line in lines()]
    cluster.cancel([id_])
    wait_until(lambda: not lab.jobs())
    return [{name: each.get(name, "") for name in ASKED} for each in found]


@pytest.mark.parametrize(
    ("cpus", "options"),
    [
        pytest.param((2,), {}, id="plain"),
        pytest.param((2,), {"exclusive": True}, id="whole-nodes"),
        pytest.param((2,), {"spare_nodes": 2}, id="spare-nodes"),
        pytest.param((1, 3), {}, id="components"),
        pytest.param((1,), {"partition": "spare", "time": "1-02:00"}, id="partition-and-time"),
    ],
)
def test_slurm_is_asked_for_the_same_as_by_its_commands(lab, rest_url, cpus, options):
    job = sleeping(*cpus, **options)
    by_rest = shown(lab, RestCluster(url=rest_url, user=user_name()), job)
    assert by_rest == shown(lab, CommandCluster(), job)
    assert len(by_rest) == len(cpus)


def test_a_gang_of_the_command_line_runs_by_slurmrestd(home, lab, rest_url, monkeypatch):
    monkeypatch.setenv("AIRFLOW__TRAINING__SLURM_REST_URL", rest_url)
    (home / "job.yaml").write_text(ECHO % FAILS_ONCE)
    run = start("run", "job.yaml", "--run-id", "one")
    said = run.communicate()[0]
    assert run.returncode == 0, said
    assert "InstanceRestarted" in said
    assert "rank 1 of 3, master at 127.0.0.1" in logs(home)["worker-0 attempt-0.0.1"]
    wait_until(lambda: not lab.jobs())


async def test_where_nothing_changes_slurmrestd_is_asked_seldom(
    lab, rest_url, tmp_path, monkeypatch
):
    """Two requests a minute: the pause between two of them grows to half a minute, for all runs together."""
    asked: list[float] = []
    ask = RestCluster._ask

    def noted(*given: Any) -> Any:
        asked.append(time.monotonic())
        return ask(*given)

    monkeypatch.setattr(RestCluster, "_ask", noted)
    runtime = SlurmRuntime(root=tmp_path, cluster=RestCluster(url=rest_url, user=user_name()))
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(3):
            harness = await stack.enter_async_context(prepared(lab, runtime))
            seen = await stack.enter_async_context(watching(runtime, harness.run))
            await runtime.create([harness.spec("sleeper")])
            await seen.state("sleeper", 0, "running")
        await until(lambda: asked[-1] - asked[-2] >= 30.0, "the pause is half a minute")
