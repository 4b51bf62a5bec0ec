"""A look inside instances on the nodes of a real Slurm: what runs, what stays of a job that has failed."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from airflow_training.agent.proc import arguments_of, living_processes
from airflow_training.runtimes.slurm.login.program import connected_command
from tests.runtimes.slurm.command_runs import home, logs, start
from tests.runtimes.slurm.lab import Lab
from tests.runtimes.slurm.ssh_server import SshServer
from tests.terminals import terminal, use_as_a_person
from tests.waiting import wait_until

__all__ = ["home"]

pytestmark = pytest.mark.e2e

SHELL = [sys.executable, "-m", "airflow_training.cli", "shell", "one"]
JOB = """\
apiVersion: airflow-training/v1
kind: TrainingJob
metadata: {name: looked-into}
spec:
  framework: pytorch
  command: [sh, -c, '%(does)s']
  restart: {maxRestarts: 0%(restart)s}
  runtime: {name: slurm, %(connection)soptions: {partition: main, time: "30"}}
  schedulingPolicy: {gang: slurm}
  roles:
    - name: master
      template: {spec: {containers: [{name: pytorch, resources: {requests: {cpu: "2"}}}]}}
    - {name: worker, replicas: 2}
"""
WAITS = 'cd "$TRAINING_OUTPUT_DIR"; echo state of $TRAINING_INDEX > left; echo waits; sleep 600'


def write_job(home: Path, does: str, *, restart: str = "", connection: str = "") -> None:
    words = {"does": does, "restart": restart, "connection": connection}
    (home / "job.yaml").write_text(JOB % words)


def run_inside(*words: str, given: str = "") -> tuple[int, str, str]:
    done = subprocess.run(
        [*SHELL, *words], input=given, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


def kill(lab: Lab) -> None:
    killed = start("kill", "one")
    said = killed.communicate()[0]
    assert killed.returncode == 0, said
    wait_until(lambda: not lab.jobs())


@pytest.fixture
def waiting(home: Path, lab: Lab) -> Iterator[None]:
    """Have a run of which all instances wait: two components of a job, two nodes and more."""
    write_job(home, WAITS)
    with running(lambda: logs(home).values(), lab):
        yield


@contextlib.contextmanager
def running(printed: Callable[[], Iterable[str]], lab: Lab) -> Iterator[None]:
    """Start the job, and kill it afterwards; `printed`: what instances have in their logs."""
    run = start("run", "job.yaml", "--run-id", "one")
    try:
        wait_until(lambda: "".join(printed()).count("waits") == 3, alive=lambda: run.poll() is None)
        yield
    finally:
        if run.poll() is None:
            kill(lab)
        print(run.communicate()[0])


def test_a_command_runs_in_the_instance_that_is_named(home, lab, waiting):
    says = "echo $TRAINING_ROLE $TRAINING_INDEX on $SLURMD_NODENAME; cat; echo bad >&2; exit 3"
    found = {}
    for role, index in (("master", "0"), ("worker", "0"), ("worker", "1")):
        of = ("--role", role, "--index", index, "--", "sh", "-c", says)
        code, out, errors = run_inside(*of, given="what is typed\n")
        assert code == 3
        assert "bad\n" in errors
        first, second = out.splitlines()
        assert second == "what is typed"
        found[f"{role} {index}"] = first
    assert [each.partition(" on ")[0] for each in found.values()] == list(found)
    nodes = {each.partition(" on ")[2] for each in found.values()}
    assert len(nodes) > 1, "not all of them are on the node where the first one is"


def test_a_terminal_is_a_terminal_there(home, lab, waiting):
    with terminal([*SHELL, "--role", "worker", "--index", "1"]) as shell:
        shell.type(b'cd "$TRAINING_OUTPUT_DIR"\n')
        use_as_a_person(shell, text=b"state of 1")


def test_what_it_starts_ends_with_the_run(home, lab, waiting):
    with terminal([*SHELL, "--role", "worker", "--index", "0"]) as shell:
        shell.type(b"echo he''re; sleep 600\n")
        shell.read(b"here")
        kill(lab)
        assert shell.end() != 0
    status = start("status", "one").communicate()[0]
    assert "Stopped" in status
    assert "had to be killed" not in status


def test_what_stays_of_a_failed_job_can_be_looked_into(home, lab):
    fails = "test $TRAINING_ROLE.$TRAINING_INDEX != worker.1 || exit 7"
    write_job(home, f"echo state > left; {fails}; sleep 600", restart=", keepFailedSeconds: 600")
    run = start("run", "job.yaml", "--run-id", "one")
    said = run.communicate()[0]
    assert run.returncode == 1, said
    code, out, errors = run_inside("--", "sh", "-c", "echo $TRAINING_ROLE $TRAINING_INDEX")
    assert (code, out, errors) == (0, "worker 1\n", "")
    code, out, errors = run_inside("--role", "worker", "--index", "0", "--", "true")
    assert (code, out) == (2, "")
    assert "nothing of worker-0 lives" in errors
    kill(lab)
    code, _, errors = run_inside("--", "true")
    assert code == 2
    assert "nothing of worker-1 lives" in errors


def test_the_cluster_may_be_one_that_is_logged_in_to(home, lab, login_node: SshServer):
    there = home / "on the cluster"
    write_job(home, WAITS, connection=f'connection: "{login_node.address(there)}", ')

    def printed() -> Iterator[str]:
        return (each.read_text() for each in there.glob("*/*/attempt-*/log"))

    with running(printed, lab):
        of = ("--role", "worker", "--index", "1")
        says = "echo $TRAINING_ROLE $TRAINING_INDEX; cat; echo bad >&2; exit 3"
        code, out, errors = run_inside(*of, "--", "sh", "-c", says, given="what is typed\n")
        assert (code, out) == (3, "worker 1\nwhat is typed\n")
        assert "bad\n" in errors
        with terminal([*SHELL, *of]) as shell:
            shell.type(b'cd "$TRAINING_OUTPUT_DIR"\n')
            use_as_a_person(shell, text=b"state of 1")
    wait_until(lambda: login_node.sessions == 0)


def test_a_command_ends_with_the_connection_through_which_it_was_started(
    home, lab, login_node: SshServer
):
    there = home / "on the cluster"
    write_job(home, WAITS, connection=f'connection: "{login_node.address(there)}", ')

    def printed() -> Iterator[str]:
        return (each.read_text() for each in there.glob("*/*/attempt-*/log"))

    with running(printed, lab):
        says = 'touch "$TRAINING_OUTPUT_DIR/begun"; exec sleep 543'
        with subprocess.Popen([*SHELL, "--", "sh", "-c", says], stdin=subprocess.PIPE) as shell:
            wait_until(lambda: list(home.rglob("begun")), alive=lambda: shell.poll() is None)
            assert sleeping("543")
            shell.kill()
        wait_until(lambda: not sleeping("543"))


def sleeping(seconds: str) -> list[int]:
    """Return the pids of processes that sleep so long."""
    words = [b"sleep", seconds.encode(), b""]
    return [pid for pid in living_processes() if arguments_of(pid, "cmdline") == words]


@pytest.mark.parametrize("shell", ["sh", "bash", "csh", "tcsh", "zsh", "fish"])
def test_any_shell_of_a_login_takes_words_as_they_are(shell):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    words = ["sh", "-c", 'printf "%s\\n" "$@"; exit 7', "-", "a!b $HOME `id` 'c' \\", "two\nlines"]
    line = connected_command(words, python=sys.executable)
    done = subprocess.run([shell, "-c", line], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("a!b $HOME `id` 'c' \\\ntwo\nlines\n", 7)
