"""What Slurm, its administrators and crashes do to a run: nothing is lost, doubled or left alive."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import secrets
import shutil
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from airflow_training.agent.files import read_json
from airflow_training.agent.proc import parent_of
from airflow_training.documents.resolved import RunRef, Scheduling
from airflow_training.errors import RuntimeUnavailable
from airflow_training.runtimes.port import SupportsFinish
from airflow_training.runtimes.slurm.cluster import CommandCluster
from airflow_training.runtimes.slurm.runtime import SlurmRuntime
from airflow_training.runtimes.slurm.transport import CommandResult, LocalCommands
from tests.contracts.runtime import JOB, Harness, watching
from tests.runtimes.local_runs import COMMANDS
from tests.runtimes.slurm.lab import Lab
from tests.waiting import until, wait_until

pytestmark = pytest.mark.soak

GANG = Scheduling(gang="slurm", keeps_size=True)


@contextlib.asynccontextmanager
async def run_of(
    lab: Lab,
    root: Path,
    *,
    runtime: SlurmRuntime | None = None,
    **changes: Any,
) -> AsyncIterator[Harness]:
    """Yield a prepared run of the contract's job with other fields; nothing of it is left afterwards."""
    run = RunRef(uid=secrets.token_hex(10), job="faults", namespace="default", controller="tests")
    runtime = runtime or SlurmRuntime(root=root)
    await runtime.prepare(run, dataclasses.replace(JOB, **changes))
    try:
        yield Harness(runtime=runtime, run=run, commands=COMMANDS)
    finally:
        await SlurmRuntime(root=root).remove(run)
        await until(lambda: not lab.jobs(run.uid))


def small(scheduling: Scheduling = GANG) -> dict[str, Any]:
    return {
        "roles": tuple(role for role in JOB.roles if role.name != "quick"),
        "scheduling": scheduling,
    }


def job_ids(root: Path, harness: Harness) -> list[str]:
    """Return the jobs that were ever noted for a run."""
    found = (root / harness.run.uid).glob("allocations/*/submitted.json")
    return sorted(str((read_json(path) or {})["job"]) for path in found)


async def test_a_job_cancelled_by_an_administrator_is_told_and_made_again(lab, tmp_path):
    async with (
        run_of(lab, tmp_path) as harness,
        watching(harness.runtime, harness.run) as seen,
    ):
        await harness.runtime.create([harness.spec("sleeper")])
        await seen.state("sleeper", 0, "running")
        lab.run(["scancel", *lab.jobs()])
        failed = await seen.state("sleeper", 0, "failed")
        assert failed.reason == "SlurmCancelled"
        assert "CANCELLED" in failed.message
        again = await harness.runtime.create([harness.spec("sleeper", attempt=1)])
        assert again[0].result == "created"
        await seen.state("sleeper", 0, "running", attempt=1)
        assert len(job_ids(tmp_path, harness)) == 2


async def test_a_command_that_is_told_to_finish_leaves_its_output(lab, tmp_path):
    """Its agent hears it on its node, and the job ends as one that has done all."""
    begun, there = tmp_path / "begun", tmp_path / "there"
    script = f'echo early > "$TRAINING_OUTPUT_DIR/model.pt"; touch {begun}; sleep 600'
    async with (
        run_of(lab, tmp_path) as harness,
        watching(harness.runtime, harness.run) as seen,
    ):
        spec = harness.spec(
            "sleeper",
            command=("sh", "-c", script),
            output_uri=str(there),
            output_continuous=True,
            finishes=True,
        )
        await harness.runtime.create([spec])
        found = await seen.state("sleeper", 0, "running")
        await until((there / "model.pt").exists)  # while it runs
        refs = [harness.ref("sleeper", uid=found.uid)]
        assert isinstance(harness.runtime, SupportsFinish)
        for _ in range(3):
            await harness.runtime.finish_early(refs, grace_seconds=5)
        done = await seen.state("sleeper", 0, "succeeded", uid=found.uid)
        assert (done.exit_code, done.reason) == (0, "Completed")
        assert done.output is not None
        assert (there / "model.pt").read_text() == "early\n"
        await until(lambda: not lab.jobs(harness.run.uid))
        assert done == seen.now["sleeper", 0]


@pytest.fixture
def blocker(lab: Lab) -> Iterator[str]:
    """A job of somebody else that has all nodes."""
    words = ["sbatch", "--parsable", "--exclusive", "-N3", "--output=/dev/null", "--wrap=sleep 600"]
    job = lab.run(words).strip()
    wait_until(lambda: "RUNNING" in lab.run(["squeue", "-h", "-o", "%T", "-j", job]))
    yield job
    lab.run(["scancel", job])


async def test_what_waits_in_the_queue_says_why_and_can_be_cancelled(blocker, lab, tmp_path):
    async with (
        run_of(lab, tmp_path) as harness,
        watching(harness.runtime, harness.run) as seen,
    ):
        await harness.runtime.create([harness.spec("sleeper"), harness.spec("sleeper", 1)])
        waiting = await seen.state("sleeper", 0, "pending")
        assert (waiting.reason, waiting.scheduled) == ("Unschedulable", False)
        words = re.compile(r"\((Resources|Priority)")
        await seen.until(lambda now: bool(words.search(now["sleeper", 0].message)))
        await harness.runtime.delete([harness.ref("sleeper", 1)], grace_seconds=1)
        await seen.gone("sleeper", 1)
        lab.run(["scancel", blocker])
        await seen.state("sleeper", 0, "running")


async def test_what_no_node_will_ever_take_never_fits(lab, tmp_path):
    async with (
        run_of(lab, tmp_path) as harness,
        watching(harness.runtime, harness.run) as seen,
    ):
        await harness.runtime.create([harness.spec("sleeper", resources={"cpu": "900"})])
        found = await seen.state("sleeper", 0, "pending", reason="NeverFits")
        assert "Slurm will never start it" in found.message


async def test_what_slurm_does_not_take_is_impossible_and_says_so(lab, tmp_path):
    async with run_of(lab, tmp_path, runtime_options={"constraint": "nothing"}) as harness:
        answer = (await harness.runtime.create([harness.spec("sleeper")]))[0]
        assert answer.result == "impossible"
        assert "feature" in answer.message


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"partition": "nothing"}, "partition"),
        ({"constraint": "nothing"}, "feature"),
    ],
)
async def test_a_check_tells_what_slurm_would_refuse(lab, tmp_path, options, said):
    async with run_of(lab, tmp_path) as harness:
        run = RunRef(uid="another", job="x", namespace="default", controller="tests")
        job = dataclasses.replace(JOB, runtime_options=options)
        firsts = [harness.spec("sleeper"), harness.spec("quick")]
        (problem,) = await harness.runtime.check(run, job, firsts)
        assert problem.field == "spec.runtime.options"
        assert said in problem.message.lower()
        assert await harness.runtime.check(run, JOB, firsts) == []


async def test_a_controller_that_restarts_changes_nothing(lab, tmp_path):
    async with (
        run_of(lab, tmp_path) as harness,
        watching(harness.runtime, harness.run) as seen,
    ):
        await harness.runtime.create([harness.spec("sleeper")])
        before = await seen.state("sleeper", 0, "running")
        lab.kill("slurmctld", signal.SIGTERM)  # killed, it forgets what it had not saved yet
        try:
            away = (await harness.runtime.create([harness.spec("sleeper", 1)]))[0]
            assert (away.result, away.reason) == ("refused", "SlurmAway")
        finally:
            lab.start_controller()
        assert (await harness.runtime.create([harness.spec("sleeper", 1)]))[0].result == "created"
        await seen.state("sleeper", 1, "running")
        after = seen.now["sleeper", 0]
        assert (after.uid, after.state, after.reason) == (before.uid, "running", before.reason)


async def test_a_node_that_is_lost_fails_what_ran_there(lab, tmp_path):
    async with (
        run_of(lab, tmp_path) as harness,
        watching(harness.runtime, harness.run) as seen,
    ):
        await harness.runtime.create([harness.spec("sleeper")])
        node = (await seen.state("sleeper", 0, "running")).node
        lab.kill(node)
        try:
            failed = await seen.state("sleeper", 0, "failed")
            assert failed.reason == "SlurmNodeFail"
            again = await harness.runtime.create([harness.spec("sleeper", attempt=1)])
            assert again[0].result == "created"
            # its agent lives on where no slurmd is left to end it: it ends itself first
            running = await seen.state("sleeper", 0, "running", attempt=1)
            assert running.node != node
        finally:
            lab.start_node(node)


def spare_job() -> dict[str, Any]:
    """Two instances, each on a node of its own, and the third node of the cluster as a spare one."""
    return {
        "roles": (JOB.roles[0],),
        "scheduling": GANG,
        "runtime_options": {"spareNodes": 1},
    }


async def test_what_ran_on_a_lost_node_goes_on_on_a_spare_one_without_the_queue(lab, tmp_path):
    async with (
        run_of(lab, tmp_path, **spare_job()) as harness,
        watching(harness.runtime, harness.run) as seen,
    ):
        await harness.runtime.create([harness.spec("sleeper"), harness.spec("sleeper", 1)])
        first = await seen.state("sleeper", 0, "running")
        second = await seen.state("sleeper", 1, "running")
        assert len({first.node, second.node}) == 2
        lab.kill(second.node)
        try:
            failed = await seen.state("sleeper", 1, "failed")
            assert failed.reason == "SlurmNodeFail"
            again = harness.spec("sleeper", 1, attempt=1)
            assert (await harness.runtime.create([again]))[0].result == "created"
            moved = await seen.state("sleeper", 1, "running", attempt=1)
            assert moved.node not in (first.node, second.node)
            now = seen.now["sleeper", 0]
            assert (now.uid, now.state, now.node) == (first.uid, "running", first.node)
            assert len(job_ids(tmp_path, harness)) == 1, "nothing was queued"
        finally:
            lab.start_node(second.node)


async def test_without_another_spare_node_the_allocation_is_given_back(lab, tmp_path):
    async with (
        run_of(lab, tmp_path, **spare_job()) as harness,
        watching(harness.runtime, harness.run) as seen,
    ):
        await harness.runtime.create([harness.spec("sleeper"), harness.spec("sleeper", 1)])
        first = await seen.state("sleeper", 0, "running")
        second = await seen.state("sleeper", 1, "running")
        (spare,) = {"n1", "n2", "n3"} - {first.node, second.node}
        lab.kill(spare)
        lab.kill(second.node)
        try:
            for index in (0, 1):
                failed = await seen.state("sleeper", index, "failed")
                assert failed.reason == "SlurmNodeFail"
            assert "no other node is left for sleeper-1" in seen.now["sleeper", 0].message
        finally:
            for node in (spare, second.node):
                lab.start_node(node)
        specs = [harness.spec("sleeper", index, attempt=1) for index in (0, 1)]
        await harness.runtime.create(specs)
        for index in (0, 1):
            await seen.state("sleeper", index, "running", attempt=1)
        assert len(job_ids(tmp_path, harness)) == 2


def lose_keepers(root: Path) -> None:
    """Kill what keeps allocations as the loss of its node does: nobody is left to tell Slurm of it."""
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        pid = int(each.parent.name)
        with contextlib.suppress(OSError):
            words = each.read_bytes().split(b"\0")
            if b"keep" in words and any(word.startswith(bytes(root)) for word in words):
                parent = parent_of(pid)
                assert parent is not None
                os.kill(parent, signal.SIGKILL)
                os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("keeper", ["goes on", "dies"])
async def test_the_node_that_keeps_the_allocation_has_no_spare_one(lab, tmp_path, keeper):
    async with (
        run_of(lab, tmp_path, **spare_job()) as harness,
        watching(harness.runtime, harness.run) as seen,
    ):
        await harness.runtime.create([harness.spec("sleeper"), harness.spec("sleeper", 1)])
        first = await seen.state("sleeper", 0, "running")
        await seen.state("sleeper", 1, "running")
        lab.kill(first.node)
        if keeper == "dies":
            lose_keepers(tmp_path)
        try:
            for index in (0, 1):
                failed = await seen.state("sleeper", index, "failed")
                assert failed.reason == "SlurmNodeFail"
            await until(lambda: not lab.jobs(harness.run.uid))
        finally:
            lab.start_node(first.node)


async def test_a_drained_node_gets_nothing_new(lab, tmp_path):
    async with (
        run_of(lab, tmp_path) as harness,
        watching(harness.runtime, harness.run) as seen,
    ):
        await harness.runtime.create([harness.spec("sleeper")])
        node = (await seen.state("sleeper", 0, "running")).node
        lab.run(["scontrol", "update", f"nodename={node}", "state=drain", "reason=test"])
        try:
            await harness.runtime.create([harness.spec("sleeper", 1)])
            other = await seen.state("sleeper", 1, "running")
            assert other.node != node
            assert seen.now["sleeper", 0].state == "running"
            view = await harness.runtime.cluster_view()
            assert node not in {each.name for each in view.nodes}
        finally:
            lab.run(["scontrol", "update", f"nodename={node}", "state=resume"])


async def test_the_end_of_the_time_limit_is_announced_by_a_signal(lab, tmp_path):
    options = {"time": "1", "signalSeconds": 55}
    async with (
        run_of(lab, tmp_path, runtime_options=options) as harness,
        watching(harness.runtime, harness.run) as seen,
    ):
        saver = ("sh", "-c", "trap 'echo saves; exit 0' TERM; while :; do sleep 0.1; done")
        await harness.runtime.create([harness.spec("sleeper", command=saver)])
        failed = await seen.state("sleeper", 0, "failed")
        assert failed.reason == "SlurmTimeLimit"
        assert b"saves" in await harness.runtime.tail_log(harness.ref("sleeper"), limit=100)
        # what is left of the time is no use to the next attempt, and no signal would announce its end
        again = await harness.runtime.create([harness.spec("sleeper", attempt=1)])
        assert again[0].result == "created"
        assert len(job_ids(tmp_path, harness)) == 2


async def test_a_preempted_job_is_told_as_such(lab, tmp_path):
    async with (
        run_of(lab, tmp_path, runtime_options={"partition": "spare"}) as harness,
        watching(harness.runtime, harness.run) as seen,
    ):
        await harness.runtime.create([harness.spec("sleeper")])
        await seen.state("sleeper", 0, "running")
        other = lab.run(
            [
                "sbatch",
                "--parsable",
                "-p",
                "urgent",
                "--exclusive",
                "--output=/dev/null",
                "--wrap=true",
            ]
        ).strip()
        failed = await seen.state("sleeper", 0, "failed")
        assert failed.reason == "SlurmPreempted"
        lab.run(["scancel", other], check=False)


async def test_a_killed_agent_is_replaced_in_the_same_allocation(lab, tmp_path):
    async with (
        run_of(lab, tmp_path, **small()) as harness,
        watching(harness.runtime, harness.run) as seen,
    ):
        await harness.runtime.create([harness.spec("sleeper"), harness.spec("sleeper", 1)])
        before = await seen.state("sleeper", 0, "running")
        await seen.state("sleeper", 1, "running")
        state = read_json(tmp_path / harness.run.uid / "sleeper-0/current/.agent/state.json")
        assert state is not None
        os.kill(state["agent"]["pid"], signal.SIGKILL)
        failed = await seen.state("sleeper", 0, "failed")
        assert failed.reason == "AgentLost"
        again = await harness.runtime.create([harness.spec("sleeper", attempt=1)])
        assert again[0].result == "created"
        after = await seen.state("sleeper", 0, "running", attempt=1)
        assert after.node == before.node
        assert len(job_ids(tmp_path, harness)) == 1
        assert seen.now["sleeper", 1].state == "running"


class _DiesAfterSubmitting(LocalCommands):
    """As a driver that is killed when Slurm has the job and nobody has noted its number."""

    def run(
        self, words: Sequence[str], *, given: str = "", keep: Sequence[int] = ()
    ) -> CommandResult:
        done = super().run(words, given=given, keep=keep)
        if words[0] == "sbatch":
            raise KeyboardInterrupt
        return done


async def test_a_submission_that_nobody_has_noted_is_found_again(lab, tmp_path):
    dying = SlurmRuntime(root=tmp_path, cluster=CommandCluster(_DiesAfterSubmitting()))
    async with run_of(lab, tmp_path, runtime=dying, **small()) as harness:
        specs = [harness.spec("sleeper"), harness.spec("sleeper", 1)]
        reader = dying._reader(harness.run)
        with pytest.raises(KeyboardInterrupt):
            dying._launcher.create(reader, specs)
        runtime = SlurmRuntime(root=tmp_path)
        made = await runtime.create(specs)
        assert [each.result for each in made] == ["created", "created"]
        async with watching(runtime, harness.run) as seen:
            await seen.state("sleeper", 0, "running")
            await seen.state("sleeper", 1, "running")
        assert len({job.partition("+")[0] for job in lab.jobs()}) == 1


async def test_a_submission_that_nobody_has_noted_is_ended_by_remove(lab, tmp_path):
    dying = SlurmRuntime(root=tmp_path, cluster=CommandCluster(_DiesAfterSubmitting()))
    async with run_of(lab, tmp_path, runtime=dying, **small()) as harness:
        with pytest.raises(KeyboardInterrupt):
            dying._launcher.create(dying._reader(harness.run), [harness.spec("sleeper")])
        assert lab.jobs()
        await SlurmRuntime(root=tmp_path).remove(harness.run)
        await until(lambda: not lab.jobs())


async def test_roles_that_differ_are_components_of_one_job(lab, tmp_path):
    job: dict[str, Any] = {
        "scheduling": GANG,
        "roles": tuple(
            dataclasses.replace(
                role,
                template={
                    "spec": {
                        "containers": [
                            {"name": role.container, "resources": {"limits": {"cpu": cpus}}}
                        ]
                    }
                },
            )
            for role, cpus in zip(JOB.roles[:2], ("1", "4"), strict=True)
        ),
    }
    async with (
        run_of(lab, tmp_path, **job) as harness,
        watching(harness.runtime, harness.run) as seen,
    ):
        peer = f"sleeper-1.{harness.run.uid}.slurm"
        shown = ("sh", "-c", f"echo {peer}; echo cpus=$SLURM_CPUS_PER_TASK; sleep 600")
        await harness.runtime.create(
            [
                harness.spec("sleeper", command=shown),
                harness.spec("sleeper", 1, command=shown),
                harness.spec("quick", command=shown),
            ]
        )
        await seen.state("sleeper", 0, "running")
        await seen.state("quick", 0, "running")
        assert len({job.partition("+")[0] for job in lab.jobs()}) == 1

        async def log(kind: str) -> bytes:
            return await harness.runtime.tail_log(harness.ref(kind), limit=1000)  # type: ignore[arg-type]

        assert b"127.0.0.1" in await log("sleeper")
        assert b"cpus=4" in await log("quick")


async def test_who_cannot_reach_the_queue_says_so(lab, tmp_path, monkeypatch):
    async with run_of(lab, tmp_path) as harness:
        monkeypatch.setenv("SLURM_CONF", str(tmp_path / "none"))
        monkeypatch.setattr("airflow_training.runtimes.slurm.transport._SECONDS", 3.0)
        with pytest.raises(RuntimeUnavailable):
            await harness.runtime.cluster_view()
        monkeypatch.undo()


async def test_an_allocation_goes_though_its_srun_has_missed_the_end(lab, tmp_path, monkeypatch):
    """As on a machine under load: what has ended, its agent has written down."""
    own = tmp_path / "bin"
    own.mkdir()
    deaf = own / "srun"
    deaf.write_text(f'#!/bin/sh\n{shutil.which("srun")} "$@"\nexec sleep 3600\n')
    deaf.chmod(0o755)
    monkeypatch.setenv("PATH", f"{own}:{os.environ['PATH']}")
    async with (
        run_of(lab, tmp_path / "runs", **small()) as harness,
        watching(harness.runtime, harness.run) as seen,
    ):
        short = [harness.spec("sleeper", i, command=("sh", "-c", "exit 0")) for i in range(2)]
        await harness.runtime.create([*short, harness.spec("broken"), harness.spec("broken", 1)])
        for index in range(2):
            await seen.state("sleeper", index, "succeeded")
            await seen.state("broken", index, "failed")
        await until(lambda: not lab.jobs(harness.run.uid), patience=400)
