"""What is made of the answers of Slurm that come late, or mean another job."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_training.agent.files import write_json
from airflow_training.documents.resolved import RunRef
from airflow_training.errors import RuntimeUnavailable
from airflow_training.runtimes.folders.attempt_state import AttemptState
from airflow_training.runtimes.folders.paths import RunFolder
from airflow_training.runtimes.slurm.allocation_options import AllocationOptions
from airflow_training.runtimes.slurm.allocations import Allocation, AllocationBook
from airflow_training.runtimes.slurm.attempts import AttemptReader, placement_file
from airflow_training.runtimes.slurm.cluster import CommandCluster
from airflow_training.runtimes.slurm.queue_watch import QueueWatch
from airflow_training.runtimes.slurm.requests import AllocationComponent, gang_request
from airflow_training.runtimes.slurm.sweep import find_living_runs
from airflow_training.runtimes.slurm.transport import CommandResult, LocalCommands
from tests.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.e2e


class _Answers:
    """Gives the answers of a cluster that is in the state a test wants."""

    def __init__(self) -> None:
        self.queue, self.submitted = "", "7\n"
        self.said: list[list[str]] = []

    def run(
        self, words: Sequence[str], *, given: str = "", keep: Sequence[int] = ()
    ) -> CommandResult:
        del given, keep
        self.said.append(list(words))
        output = {"squeue": self.queue, "sbatch": self.submitted}.get(words[0], "")
        return CommandResult(code=0, output=output, errors="")

    def cancelled(self) -> list[str]:
        return [word for words in self.said if words[0] == "scancel" for word in words[2:]]


class _Book:
    """One allocation of one run."""

    def __init__(self, root: Path) -> None:
        self.commands = _Answers()
        self.queue = QueueWatch(CommandCluster(self.commands))
        run = RunFolder(root, "u1")
        run.make()
        write_json(run.about, {"options": {}})
        self.book = AllocationBook(run, CommandCluster(self.commands), self.queue)
        request = gang_request({"worker": (AllocationComponent(), 1)}, AllocationOptions())
        self.allocation: Allocation = self.book.add(request, idle_seconds=1)[0]

    def submit(self) -> None:
        self.book.submit(self.allocation, ["keep"], job="digits")

    def line(self, job: str, state: str = "PENDING", name: str = "") -> str:
        return f"{job}|{state}|N/A|N/A||{name or self.allocation.name}|None\n"


@pytest.fixture
def one(tmp_path: Path) -> _Book:
    return _Book(tmp_path)


def test_a_job_of_another_name_is_not_ours_though_it_has_our_number(one):
    one.submit()
    one.commands.queue = one.line("7", "RUNNING", "somebody's")
    assert one.book.living() == []
    one.book.cancel([one.allocation])
    assert one.commands.cancelled() == []
    one.commands.queue = one.line("7", "RUNNING")
    assert one.book.living() == [one.allocation]
    one.book.cancel([one.allocation])
    assert one.commands.cancelled() == ["7"]


def test_an_answer_from_before_a_job_was_known_does_not_end_it(one):
    one.commands.queue = ""
    one.submit()
    write_json(one.allocation.submitted, {"job": "7", "at": 1.0})  # by a clock that is behind
    one.queue.poll()
    assert one.book.phase(one.allocation) == "queued"
    one.queue.since(one.queue.asked_at)
    assert one.book.phase(one.allocation) == "over"


def test_the_job_that_began_counts_where_sbatch_was_repeated(one):
    one.submit()
    write_json(one.allocation.folder / "started.json", {"job": "6", "at": 1.0, "members": {}})
    one.commands.queue = one.line("6", "RUNNING") + one.line("7", "FAILED")
    one.queue.poll()
    assert one.book.phase(one.allocation) == "running"
    one.commands.queue = one.line("6", "FAILED") + one.line("7")
    assert one.book.living() == [one.allocation], "the other would begin later"
    one.book.cancel([one.allocation])
    assert one.commands.cancelled() == ["6", "7"]


def test_an_sbatch_that_tells_no_number_is_found_by_name(one):
    one.commands.submitted = "Welcome!\n"
    with pytest.raises(RuntimeUnavailable, match="Welcome"):
        one.submit()
    assert one.allocation.job == ""
    one.commands.queue = one.line("9")
    one.submit()
    assert one.allocation.job == "9"
    assert sum(words[0] == "sbatch" for words in one.commands.said) == 1


@pytest.mark.parametrize(("left", "found"), [(100, False), (3600, True)])
def test_an_allocation_whose_time_is_nearly_over_takes_nothing_more(one, monkeypatch, left, found):
    one.submit()
    monkeypatch.setattr("airflow_training.runtimes.slurm.allocations.time.time", lambda: 5000.0)
    one.commands.queue = f"7|RUNNING|1000|{5000 + left}|n1|{one.allocation.name}|None\n"
    one.queue.poll()
    assert (one.book.accepting("worker-0") == one.allocation) is found


def test_a_sweep_leaves_runs_that_may_have_begun_just_now(one, tmp_path):
    one.submit()
    one.commands.queue = one.line("7", "RUNNING")
    about = {"controller": "c", "job": "digits", "namespace": "default", "options": {}}
    write_json(tmp_path / "u1" / "run.json", about)
    began = (tmp_path / "u1" / "run.json").stat().st_mtime

    def reader(run: RunRef) -> AttemptReader:
        return AttemptReader(RunFolder(tmp_path, run.uid), one.book, one.queue)

    assert find_living_runs(tmp_path, "c", reader, older_than=began - 1) == []
    ((run, jobs),) = find_living_runs(tmp_path, "c", reader, older_than=began + 1)
    assert (run.uid, jobs) == ("u1", "7")


@pytest.mark.parametrize(
    ("state", "reason"),
    [("PREEMPTED", "SlurmPreempted"), ("NODE_FAIL", "SlurmNodeFail"), ("RUNNING", "Error")],
)
def test_slurm_tells_who_ended_a_command_that_was_gone_before_its_agent_knew(one, state, reason):
    one.submit()
    reader = AttemptReader(one.book._run, one.book, one.queue)
    folder = one.book._run.attempt("worker", 0, (0, 0, 0))
    folder.control.mkdir(parents=True)
    order = {"uid": "a", "role": "worker", "index": 0, "grace_seconds": 30}
    write_json(folder.spec, order)
    write_json(placement_file(folder), {"uid": "a", "allocation": one.allocation.key, "step": "a"})
    end = {
        "uid": "a",
        "reason": "Error",
        "message": "",
        "exit_code": None,
        "signal": signal.SIGTERM,
    }
    write_json(folder.exit, {**end, "finished_at": 1.0, "in_place": False})
    write_json(one.allocation.folder / "steps" / "a.json", {"ended_at": 1.0})
    one.commands.queue = one.line("7", state)

    def explained() -> AttemptState | None:
        one.queue.poll()
        state = reader.read(folder)
        assert state is not None
        found = reader.settle(folder, state)
        return None if reader.unexplained(found) else found

    assert wait_until(explained, "the reason is known").end["reason"] == reason


def test_a_queue_that_hangs_holds_up_nobody_who_looks_at_files(one):
    one.queue.poll()
    asked, answer = threading.Event(), threading.Event()

    class Hangs(_Answers):
        def run(
            self, words: Sequence[str], *, given: str = "", keep: Sequence[int] = ()
        ) -> CommandResult:
            asked.set()
            assert answer.wait(PATIENCE)
            return super().run(words, given=given, keep=keep)

    hangs = Hangs()
    hangs.queue = one.line("7")
    one.queue._cluster = CommandCluster(hangs)
    wait_until(lambda: (one.queue.poll(), asked.is_set())[1])
    assert one.queue.of_job("7") == []
    answer.set()
    wait_until(lambda: one.queue.of_job("7"))


def test_options_of_the_user_s_own_commands_are_not_passed_on(monkeypatch):
    for name in ("SCANCEL_STATE", "SBATCH_CLUSTERS", "SLURM_JOB_ID", "SQUEUE_FORMAT", "SLURM_JWT"):
        monkeypatch.setenv(name, "given")
    lines = LocalCommands().run(["env"]).output.splitlines()
    assert [line for line in lines if line.endswith("=given")] == ["SLURM_JWT=given"]


def test_an_allocation_with_an_excluded_node_takes_nothing_new(one):
    write_json(one.allocation.folder / "started.json", {"members": {"worker-0": {"node": "n1"}}})
    assert one.book.accepting("worker-0", excluded=("n2",)) == one.allocation
    assert one.book.accepting("worker-0", excluded=("n1",)) is None


def test_an_excluded_node_that_the_cluster_does_not_have_any_more_is_left_out(one, monkeypatch):
    answer = one.commands.run

    def knows_no_n9(words: Sequence[str], **more: object) -> CommandResult:
        done: CommandResult = answer(words)
        if "--exclude=n9" in words:
            return CommandResult(
                code=1, output="", errors="sbatch: error: Invalid node name specified"
            )
        return done

    monkeypatch.setattr(one.commands, "run", knows_no_n9)
    request = gang_request({"worker": (AllocationComponent(), 1)}, AllocationOptions())
    request = replace(request, excluded=("n9",))
    (allocation,) = one.book.add(request, idle_seconds=1)
    one.book.submit(allocation, ["keep"], job="digits")
    assert [("--exclude=n9" in words) for words in one.commands.said if words[0] == "sbatch"] == [
        True,
        False,
    ]
    assert allocation.job == "7"
