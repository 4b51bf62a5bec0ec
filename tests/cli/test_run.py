"""`run` as real processes on the local runtime: outcomes, exit codes, signals, resuming."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import COMMAND, alive, job_file

pytestmark = pytest.mark.e2e

STATUS_KEYS = [
    "run_id", "job", "state", "condition", "reason", "message", "job_attempt", "epoch",
    "fresh_jobs", "observed_at", "submitted_at", "started_at", "running_at", "finished_at",
    "last_transition_at", "trained_seconds", "roles", "instances", "restarts", "root_cause",
    "output", "checkpoint", "plan", "usage",
]  # fmt: skip
ROLE_KEYS = {
    "state", "reason", "message", "last_transition_at", "desired", "pending", "running",
    "succeeded", "failed", "terminating", "unknown", "restarts",
}  # fmt: skip
INSTANCE_KEYS = {
    "role", "index", "attempt", "state", "reason", "message", "exit_code", "signal", "address",
    "node", "last_transition_at", "progress", "eta_seconds", "data_files",
}  # fmt: skip
USAGE_KEYS = {
    "role", "index", "attempt", "started_at", "finished_at", "resources", "seconds",
}  # fmt: skip
EVENT_KEYS = {
    "at", "level", "reason", "message", "role", "index", "attempt", "rule", "data",
}  # fmt: skip


def test_a_job_that_succeeds(command, home, tmp_path):
    """Exit 0; one JSON document as spec.md has it; event lines on stderr; the story in the store."""
    script = (
        'echo "hello from $TRAINING_ROLE";'
        'echo "{\\"step\\": 7, \\"total_steps\\": 9, \\"metrics\\": {\\"loss\\": 0.5}}"'
        ' >> "$TRAINING_PROGRESS_FILE"; echo model > "$TRAINING_OUTPUT_DIR/model"'
    )
    path = job_file(
        Path("job.yaml"), ("master", 1), ("worker", 2), command=["sh", "-c", script],
        output={"uri": f"file://{tmp_path}/models/{{{{ run_id }}}}"},
    )  # fmt: skip
    done = command("run", str(path), "--run-id", "one", "-o", "json", "--log-format", "json")
    assert done.code == 0, done.stderr
    status = done.json
    assert list(status) == STATUS_KEYS
    assert (status["state"], status["condition"]) == ("Succeeded", "Finished")
    assert set(status["roles"]) == {"master", "worker"}
    assert all(set(each) == ROLE_KEYS for each in status["roles"].values())
    assert [(each["role"], each["index"]) for each in status["instances"]] == [
        ("master", 0), ("worker", 0), ("worker", 1),
    ]  # fmt: skip
    assert all(set(each) == INSTANCE_KEYS for each in status["instances"])
    assert all(
        each["state"] == "succeeded" and each["exit_code"] == 0 for each in status["instances"]
    )
    assert status["instances"][0]["progress"] == {
        "step": 7, "total_steps": 9, "epoch": None, "samples": None,
    }  # fmt: skip
    assert set(status["output"]) == {"uri", "bytes", "digest"}
    assert Path(status["output"]["uri"].removeprefix("file://"), "model").read_text() == "model\n"
    assert all(set(each) >= USAGE_KEYS for each in status["usage"])
    assert len(status["usage"]) == 3
    lines = [json.loads(line) for line in done.stderr.splitlines()]  # and nothing else
    assert all(set(line) == EVENT_KEYS for line in lines)
    assert [line["reason"] for line in lines][-2:] == ["JobSucceeded", "JobDrained"]

    told = command("events", "one", "-o", "json").json["events"]
    assert [each["reason"] for each in told] == [line["reason"] for line in lines]
    shown = command("status", "one", "-o", "json").json
    assert {**shown, "observed_at": 0} == {**status, "observed_at": 0}
    table = command("status", "one")
    assert "step 7/9, loss 0.5" in table.stdout
    log = command("logs", "show", "one", "--role", "worker", "--index", "1")
    assert log.stdout == "hello from worker\n"
    listed = command("list", "-o", "json").json["runs"]
    assert [(each["run_id"], each["state"], each["source"]) for each in listed] == [
        ("one", "Succeeded", "cli")
    ]
    exported = command("export", "one", "-o", "json").json
    assert exported == json.loads(path.read_text())

    again = command("run", str(path), "--run-id", "one", "-o", "json")
    assert again.code == 0
    assert again.json["finished_at"] == status["finished_at"]
    other = job_file(Path("other.yaml"), name="other")
    refused = command("run", str(other), "--run-id", "one", "-o", "json")
    assert refused.code == 2
    assert refused.stdout == ""
    copy = command(
        "run", "--from-run", "one", "--set", "spec.roles.worker.replicas=1", "-o", "json"
    )
    assert copy.code == 0
    assert copy.json["roles"]["worker"]["desired"] == 1


def test_a_job_that_fails(command, home):
    script = "[ $TRAINING_INDEX = 1 ] || exec sleep 300; echo boom; exit 3"
    path = job_file(
        Path("job.yaml"), ("worker", 2), command=["sh", "-c", script],
        restart={"backoff": {"initialSeconds": 0.05}, "maxRestarts": 1},
    )  # fmt: skip
    done = command("run", str(path), "--run-id", "bad", "-o", "json")
    assert done.code == 1
    assert done.json["state"] == "Failed"
    assert sum(done.json["restarts"].values()) == 1
    assert done.json["root_cause"]
    assert "next: airflow-training logs show bad --role worker --index 1\n" in done.stderr
    words = ["logs", "show", "bad", "--role", "worker", "--index", "1"]
    assert command(*words, "--attempt", "0").stdout == "boom\n"
    followed = command(*words, "--follow")
    assert (followed.code, followed.stdout) == (0, "boom\n"), "the newest attempt, and it is over"
    missing = command(*words, "--attempt", "7")
    assert missing.code == 2
    assert "allowed: 0, 1" in missing.stderr
    unknown = command("logs", "show", "bad", "--role", "wrker")
    assert unknown.code == 2
    assert "did you mean 'worker'?" in unknown.stderr
    assert "did you mean 'bad'?" in command("status", "badd").stderr
    assert command("events", "bad", "--role", "wrker").code == 2
    ended = command("kill", "bad")
    assert ended.code == 2
    assert "has ended" in ended.stderr


@pytest.fixture
def start(home: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Return a function that starts `run`; whatever is left of it is stopped after the test."""
    started: list[subprocess.Popen[str]] = []

    def run(*words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*COMMAND, "run", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=60)


def wait_for(path: Path, process: subprocess.Popen[str], text: str = "") -> None:
    """Return when a job has written a file; fail at once when its host is gone."""
    deadline = time.monotonic() + 60
    while not (path.exists() and text in path.read_text()):
        assert time.monotonic() < deadline, path
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_job_cleanly(start, home, number):
    path = job_file(
        Path("job.yaml"), ("worker", 2), command=["sh", "-c", "touch up; sleep 300"],
        env=[{"name": "MARKER", "value": f"signal-{home}"}],
    )  # fmt: skip
    process = start(str(path), "-o", "json")
    wait_for(Path("up"), process)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Traceback" not in err
    assert json.loads(out)["state"] == "Stopped"
    assert not alive(f"signal-{home}")


def test_a_killed_host_is_continued_and_the_instances_never_notice(start, home, command):
    script = "echo $$ >> pids; while [ ! -e go ]; do sleep 0.05; done"
    path = job_file(Path("job.yaml"), ("worker", 2), command=["sh", "-c", script])
    words = [str(path), "--run-id", "same", "-o", "json"]
    first = start(*words)
    wait_for(Path("pids"), first)
    deadline = time.monotonic() + 60
    while len(Path("pids").read_text().split()) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    first.kill()
    first.wait()
    pids = Path("pids").read_text()
    second = start(*words)
    time.sleep(1.0)
    Path("go").touch()
    out, _ = second.communicate(timeout=60)
    assert second.returncode == 0
    assert Path("pids").read_text() == pids
    assert all(each["attempt"] == 0 for each in json.loads(out)["instances"])


def test_following_a_log_goes_on_into_later_attempts(start, home, command):
    """Until the instance is done; with --attempt until that attempt is over."""
    script = (
        'echo "attempt $TRAINING_ATTEMPT"; echo "$TRAINING_ATTEMPT" > "up$TRAINING_ATTEMPT";'
        'while [ ! -e "go$TRAINING_ATTEMPT" ]; do sleep 0.05; done; exit $((2 - TRAINING_ATTEMPT))'
    )
    path = job_file(
        Path("job.yaml"), command=["sh", "-c", script],
        restart={"backoff": {"initialSeconds": 0.1}},
    )  # fmt: skip
    host = start(str(path), "--run-id", "f", "-o", "json")
    wait_for(Path("up0"), host, "0")
    words = [*COMMAND, "logs", "show", "f", "--role", "worker", "--follow"]
    followers = [
        subprocess.Popen(each, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for each in (words, [*words, "--attempt", "0"])
    ]
    try:
        assert followers[0].stdout.readline() == "attempt 0\n"
        for attempt in range(3):
            wait_for(Path(f"up{attempt}"), host, str(attempt))
            Path(f"go{attempt}").touch()
        (all_out, all_err), (one_out, one_err) = (
            each.communicate(timeout=60) for each in followers
        )
    finally:
        for each in followers:
            each.kill()
            each.wait()
    assert all_out == "attempt 1\nattempt 2\n"
    assert all_err == "worker-0 was restarted: attempt 1\nworker-0 was restarted: attempt 2\n"
    assert (one_out, one_err) == ("attempt 0\n", "")
    assert [each.returncode for each in followers] == [0, 0]


def test_steering_a_run_from_another_terminal(start, home, command):
    """pause, resume, scale and kill reach the process that drives the run."""
    script = 'echo "$TRAINING_INDEX" >> started; sleep 300'
    path = job_file(
        Path("job.yaml"), ("worker", 1), command=["sh", "-c", script],
        env=[{"name": "MARKER", "value": f"steer-{home}"}],
    )  # fmt: skip
    process = start(str(path), "--run-id", "s", "-o", "json")
    wait_for(Path("started"), process)
    assert command("pause", "s", "-o", "json").json["request"] == "pause"
    deadline = time.monotonic() + 60
    while alive(f"steer-{home}"):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert command("status", "s", "-o", "json").json["state"] == "Paused"
    Path("started").unlink()
    command("resume", "s")
    wait_for(Path("started"), process)
    Path("started").unlink()
    command("scale", "s", "--role", "worker", "--replicas", "2")
    wait_for(Path("started"), process, "1")
    killed = command("kill", "s", "--reason", "enough", "-o", "json")
    assert killed.code == 0
    assert killed.json["state"] == "Stopped"
    assert not alive(f"steer-{home}")
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert json.loads(out)["message"] == "enough"


def test_killing_a_run_whose_host_is_dead(start, home, command):
    path = job_file(
        Path("job.yaml"), command=["sh", "-c", "touch up; sleep 300"],
        env=[{"name": "MARKER", "value": f"orphan-{home}"}],
    )  # fmt: skip
    process = start(str(path), "--run-id", "o")
    wait_for(Path("up"), process)
    process.kill()
    process.wait()
    assert alive(f"orphan-{home}")
    assert command("kill", "o", "-o", "json").json["state"] == "Stopped"
    assert not alive(f"orphan-{home}")


def test_sweep_ends_what_nobody_drives(start, home, command):
    path = job_file(
        Path("job.yaml"), command=["sh", "-c", "touch up; sleep 300"],
        env=[{"name": "MARKER", "value": f"swept-{home}"}],
    )  # fmt: skip
    process = start(str(path), "--run-id", "o")
    wait_for(Path("up"), process)
    driven = command("sweep", "--idle", "0", "-o", "json")
    assert driven.json == {"swept": []}, "somebody drives it"
    process.kill()
    process.wait()
    assert command("sweep", "-o", "json").json == {"swept": []}, "it may still be continued"
    found = command("sweep", "--idle", "0", "--dry-run", "-o", "json").json["swept"]
    assert [each["run_id"] for each in found] == ["o"]
    assert alive(f"swept-{home}")
    assert [
        each["done"] for each in command("sweep", "--idle", "0", "-o", "json").json["swept"]
    ] == [True]
    assert not alive(f"swept-{home}")
    assert command("sweep", "--idle", "0", "-o", "json").json == {"swept": []}


def test_init_writes_a_job_that_runs_as_it_is(home, command):
    assert command("init").code == 0
    done = command("run", "job.yaml", "--param", "steps=3", "-o", "json")
    assert done.code == 0, done.stderr
    assert [each["progress"]["step"] for each in done.json["instances"]] == [3, 3, 3]


def test_a_second_job_waits_for_its_turn(start, home, command, monkeypatch):
    monkeypatch.setenv("AIRFLOW__TRAINING__MAX_RUNNING_JOBS", "1")
    first = job_file(
        Path("a.yaml"), command=["sh", "-c", "touch up; while [ ! -e go ]; do sleep 0.05; done"]
    )
    second = job_file(Path("b.yaml"), command=["true"], name="second")
    holder = start(str(first), "--run-id", "a", "-o", "json")
    wait_for(Path("up"), holder)
    waiter = start(str(second), "--run-id", "b", "-o", "json")
    killed = start(str(second), "--run-id", "c", "-o", "json")
    deadline = time.monotonic() + 60
    for run in ("b", "c"):
        while '"Queued"' not in command("status", run, "-o", "json").stdout:
            assert time.monotonic() < deadline
    assert command("kill", "c", "-o", "json").json["state"] == "Stopped"
    out, _ = killed.communicate(timeout=60)
    assert killed.returncode == 1
    assert json.loads(out)["usage"] == []
    Path("go").touch()
    for process in (holder, waiter):
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
    assert json.loads(out)["started_at"]


def test_a_job_larger_than_this_machine_is_refused(home, command):
    path = job_file(Path("job.yaml"), resources={"limits": {"cpu": "4000"}})
    done = command("run", str(path))
    assert done.code == 2
    assert "4000" in done.stderr
    assert done.stdout == ""
    assert command("list", "-o", "json").json == {"runs": []}


def test_a_simulated_run(home, command):
    Path("faults.yaml").write_text(
        "{roles: {'*': {runSeconds: 0.5}}, faults: [{kill: worker, index: 1, after: 0.1, attempt: 0}]}"
    )
    path = job_file(
        Path("job.yaml"), ("worker", 3), command=["no-such-command"],
        restart={"backoff": {"initialSeconds": 0.1}},
    )  # fmt: skip
    done = command("run", str(path), "--simulate", "faults.yaml", "-o", "json")
    assert done.code == 0
    assert done.json["roles"]["worker"]["restarts"] == 1


def test_a_simulated_run_that_fails_names_a_command_that_tells_more(home, command):
    Path("faults.yaml").write_text("[{kill: worker, index: 1, after: 0.1, exitCode: 3}]")
    path = job_file(Path("job.yaml"), ("worker", 2), restart={"maxRestarts": 0})
    done = command("run", str(path), "--simulate", "faults.yaml", "--run-id", "s")
    assert done.code == 1
    assert done.stderr.splitlines()[-1] == "next: airflow-training events s"
    assert "worker-1" in command("events", "s").stdout
    log = command("logs", "show", "s", "--role", "worker")
    assert log.code == 2
    assert "a simulated run prints nothing" in log.stderr


def test_what_was_never_started_has_no_log(home, command):
    path = job_file(Path("job.yaml"), command=["no-such-program"], restart={"maxRestarts": 0})
    document = json.loads(path.read_text())
    document["spec"]["roles"].append({"name": "after", "dependsOn": [{"role": "worker"}]})
    path.write_text(json.dumps(document))
    done = command("run", str(path), "--run-id", "n", "-o", "json")
    assert done.code == 1
    words = ["logs", "show", "n", "--role"]
    assert "no-such-program" in command(*words, "worker").stdout
    for more in ([], ["--follow"]):
        never = command(*words, "after", *more)
        assert (never.code, never.stdout) == (0, "")
        assert never.stderr == "after-0 was never started\n"


def test_a_busy_machine_queues(start, home, command):
    """Two jobs that each ask for most of the processors run one after the other."""
    cores = str(max(1, (len(os.sched_getaffinity(0)) + 1) // 2 + 1))
    limits = {"limits": {"cpu": cores}}
    if int(cores) > len(os.sched_getaffinity(0)):
        pytest.skip("one processor only")
    script = (
        'echo "start $TRAINING_RUN_ID" >> order; sleep 1; echo "stop $TRAINING_RUN_ID" >> order'
    )
    path = job_file(Path("job.yaml"), command=["sh", "-c", script], resources=limits)
    both = [start(str(path), "--run-id", name, "-o", "json") for name in ("a", "b")]
    for process in both:
        _, err = process.communicate(timeout=90)
        assert process.returncode == 0, err
    order = [line.split() for line in Path("order").read_text().splitlines()]
    assert [what for what, _ in order] == ["start", "stop", "start", "stop"]


def test_one_local_instance_where_the_framework_allows_it(home, command):
    script = 'echo "rank $RANK of $WORLD_SIZE"'
    path = job_file(
        Path("job.yaml"), ("master", 1), ("worker", 3), command=["sh", "-c", script],
        framework="pytorch", image="i:1",
    )  # fmt: skip
    done = command("run", str(path), "--single", "--run-id", "alone", "-o", "json")
    assert done.code == 0
    assert [each["role"] for each in done.json["instances"]] == ["master"]
    assert command("logs", "show", "alone", "--role", "master").stdout == "rank 0 of 1\n"
