"""Submissions that go wrong half-way, and folders of any name, on the cluster of the tests."""

from __future__ import annotations

import math
import signal
from collections.abc import Sequence

import pytest

from airflow_training.errors import RuntimeUnavailable
from airflow_training.runtimes.slurm.cluster import CommandCluster
from airflow_training.runtimes.slurm.runtime import SlurmRuntime
from airflow_training.runtimes.slurm.transport import CommandResult, LocalCommands
from tests.contracts.runtime import JOB, watching
from tests.runtimes.slurm.command_runs import ECHO, home, logs, start
from tests.runtimes.slurm.test_slurm_faults import _DiesAfterSubmitting, run_of, small
from tests.waiting import until, wait_until

__all__ = ["home"]

pytestmark = pytest.mark.soak


@pytest.mark.parametrize("name", ['it\'s "100%u" $(id)\n;x', "back\\slash%j"])
async def test_a_shared_folder_may_have_any_name(lab, tmp_path, name):
    async with (
        run_of(lab, tmp_path / name, **small()) as harness,
        watching(harness.runtime, harness.run) as seen,
    ):
        await harness.runtime.create([harness.spec("sleeper")])
        await seen.state("sleeper", 0, "running")
        assert list((tmp_path / name / harness.run.uid).glob("allocations/*/job*.log"))


class _TimesOut(LocalCommands):
    """As a slurmctld under load: it takes a job after `sbatch` has given up, and tells of it later still."""

    late = ""

    def run(
        self, words: Sequence[str], *, given: str = "", keep: Sequence[int] = ()
    ) -> CommandResult:
        done = super().run(words, given=given, keep=keep)
        if words[0] == "sbatch" and not type(self).late:
            type(self).late = done.output.strip()
            raise RuntimeUnavailable("sbatch gave no answer")
        if words[0] == "squeue":
            lines = done.output.splitlines(keepends=True)
            rest = "".join(each for each in lines if not each.startswith(f"{self.late}|"))
            return CommandResult(code=0, output=rest, errors="")
        return done


async def test_a_job_that_appears_after_its_sbatch_was_repeated_is_used_or_ended(lab, tmp_path):
    slow = SlurmRuntime(root=tmp_path, cluster=CommandCluster(_TimesOut()))
    async with run_of(lab, tmp_path, runtime=slow, **small()) as harness:
        assert (await slow.create([harness.spec("sleeper")]))[0].reason == "SlurmAway"
        assert (await slow.create([harness.spec("sleeper")]))[0].result == "created"
        runtime = SlurmRuntime(root=tmp_path)
        async with watching(runtime, harness.run) as seen:
            running = await seen.state("sleeper", 0, "running")
            await until(lambda: len(lab.jobs(harness.run.uid)) == 1)
            assert seen.now["sleeper", 0].uid == running.uid
            assert seen.now["sleeper", 0].state == "running"


async def test_a_sweep_finds_what_was_submitted_and_never_noted(lab, tmp_path):
    dying = SlurmRuntime(root=tmp_path, cluster=CommandCluster(_DiesAfterSubmitting()))
    async with run_of(lab, tmp_path, runtime=dying, **small()) as harness:
        with pytest.raises(KeyboardInterrupt):
            dying._launcher.create(dying._reader(harness.run), [harness.spec("sleeper")])
        runtime = SlurmRuntime(root=tmp_path)
        assert await runtime.living_runs("others", older_than=math.inf) == []
        ((run, jobs),) = await runtime.living_runs("tests", older_than=math.inf)
        assert (run.uid, [jobs]) == (harness.run.uid, lab.jobs(harness.run.uid))
        await runtime.remove(run)
        assert await runtime.living_runs("tests", older_than=math.inf) == []
        await until(lambda: not lab.jobs(harness.run.uid))


def test_a_sweep_ends_what_nobody_drives(home, lab):
    (home / "job.yaml").write_text(ECHO % "sleep 600")
    run = start("run", "job.yaml", "--run-id", "one")
    wait_until(lambda: sum("rank" in text for text in logs(home).values()) == 3)
    run.send_signal(signal.SIGKILL)
    run.communicate()
    swept = start("sweep", "--idle", "0")
    said = swept.communicate()[0]
    assert swept.returncode == 0, said
    assert "one" in said
    wait_until(lambda: not lab.jobs())


async def test_a_check_lets_a_job_wait_for_nodes_that_are_away(lab, tmp_path):
    async with run_of(lab, tmp_path) as harness:
        lab.run(["scontrol", "update", "nodename=n[1-3]", "state=drain", "reason=test"])
        try:
            found = await harness.runtime.check(harness.run, JOB, [harness.spec("sleeper")])
            assert [each.field for each in found] == ["run_id"], "of Slurm nothing is said"
        finally:
            lab.run(["scontrol", "update", "nodename=n[1-3]", "state=resume"])
