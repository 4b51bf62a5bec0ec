"""`run` as real processes on the local runtime: outcomes, exit codes, signals, resuming."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import signal
import sys
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest

from airflow_training.state.store import Store
from tests.cli.conftest import Background, alive, job_file

pytestmark = pytest.mark.e2e

STATUS_KEYS = [
    "run_id", "job", "state", "condition", "reason", "message", "job_attempt", "epoch",
    "fresh_jobs", "observed_at", "submitted_by", "submitted_at", "started_at", "running_at", "finished_at",
    "last_transition_at", "trained_seconds", "roles", "instances", "restarts", "root_cause", "kept", "advice",
    "output", "checkpoint", "plan", "environment", "usage", "unreachable", "expected_start", "undriven",
]  # fmt: skip
ROLE_KEYS = {
    "state", "reason", "message", "last_transition_at", "desired", "pending", "running",
    "succeeded", "failed", "stopped", "terminating", "unknown", "restarts",
}  # fmt: skip
INSTANCE_KEYS = {
    "role", "index", "attempt", "state", "reason", "message", "exit_code", "signal", "address",
    "node", "last_transition_at", "waiting_since", "progress", "eta_seconds", "data_files",
    "memory_bytes",
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
    me = pwd.getpwuid(os.getuid()).pw_name
    assert status["submitted_by"] == me
    listed = command("list", "-o", "json").json["runs"]
    assert listed[0]["submitted_by"] == me
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


FAST_REPORTER = """
import json, os, time
with open(os.environ["TRAINING_PROGRESS_FILE"], "a") as file:
    for step in range(200):
        loss = 1e6 if step == 77 else 1 / (step + 1)
        line = {"step": step, "time": time.time(), "metrics": {"loss": loss}}
        file.write(json.dumps(line) + chr(10))
        file.flush()
        time.sleep(0.005)
"""


def test_every_value_of_a_script_that_reports_fast_is_stored(command, home):
    path = job_file(
        Path("job.yaml"), ("worker", 2), command=[sys.executable, "-c", FAST_REPORTER]
    )  # fmt: skip
    assert command("run", str(path), "--run-id", "fast").code == 0
    store = Store(f"sqlite:///{home / 'airflow_training.db'}")
    (uid,) = (run.uid for run in store.runs())
    points = store.metrics.series(uid, name="loss")
    for index in (0, 1):
        told = [(each.step, each.value) for each in points if each.index == index]
        assert told == [(i, 1e6 if i == 77 else 1 / (i + 1)) for i in range(200)]


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


def test_a_run_id_runs_again_once_the_store_has_forgotten_it(home, command):
    path = job_file(
        Path("job.yaml"), command=["sh", "-c", "echo $(TRAINING_RUN_ID) >> runs; cat runs"]
    )
    words = ["run", str(path), "--run-id", "again", "-o", "json"]
    assert command(*words).code == 0
    assert command("db", "prune", "--older-than", "0s").code == 0
    done = command(*words)
    assert done.code == 0, done.stderr
    assert command("logs", "show", "again", "--role", "worker").stdout == "again\nagain\n"
    aside = Path(done.stderr.partition("its folder is now ")[2].split()[0])
    assert (aside / "worker-0" / "attempt-0.0.0" / "log").read_text() == "again\n"


def test_a_run_id_is_refused_while_a_run_that_the_store_has_lost_lives(start, home, command):
    path = job_file(
        Path("job.yaml"), command=["sh", "-c", "touch up; sleep 300"],
        env=[{"name": "MARKER", "value": f"lost-{home}"}],
    )  # fmt: skip
    host = start(str(path), "--run-id", "lost", "-o", "json")
    wait_for(Path("up"), host)
    host.kill()
    host.wait()
    for each in home.glob("airflow_training.db*"):
        each.unlink()
    try:
        refused = command("run", str(path), "--run-id", "lost")
        assert refused.code == 2, refused.stderr
        assert "an earlier run of this id" in refused.stderr
        assert alive(f"lost-{home}")
    finally:
        for pid in alive(str(home)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)


@pytest.fixture
def start(background: Callable[..., Background]) -> Callable[..., Background]:
    """Return a function that starts `run`."""
    return partial(background, "run")


def wait_for(path: Path, process: Background, text: str = "") -> None:
    """Return when a job has written a file; fail at once when its host is gone."""
    process.until(lambda: path.exists() and text in path.read_text(), f"{path} {text}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_job_cleanly(start, home, number):
    path = job_file(
        Path("job.yaml"), ("worker", 2), command=["sh", "-c", "echo up >> up; sleep 300"],
        env=[{"name": "MARKER", "value": f"signal-{home}"}],
    )  # fmt: skip
    process = start(str(path), "-o", "json")
    wait_for(Path("up"), process, "up\nup\n")
    process.send_signal(number)
    out, err = process.communicate()
    assert process.returncode == 1
    assert "Traceback" not in err
    told = json.loads(out)
    assert (told["state"], told["condition"]) == ("Stopped", "Stopped")
    assert (told["reason"], number.name in told["message"]) == ("Interrupted", True)
    assert {each["state"] for each in told["instances"]} == {"stopped"}
    worker = told["roles"]["worker"]
    assert (worker["state"], worker["stopped"], worker["failed"]) == ("Stopped", 2, 0)
    assert not alive(f"signal-{home}")


def test_a_killed_host_is_continued_and_the_instances_never_notice(start, home, command):
    script = "echo $$ >> pids; while [ ! -e go ]; do sleep 0.05; done"
    path = job_file(Path("job.yaml"), ("worker", 2), command=["sh", "-c", script])
    words = [str(path), "--run-id", "same", "-o", "json"]
    first = start(*words)
    wait_for(Path("pids"), first)
    first.until(lambda: len(Path("pids").read_text().split()) == 2)
    first.kill()
    first.wait()
    pids = Path("pids").read_text()
    second = start(*words)
    store = Store(f"sqlite:///{home / 'airflow_training.db'}")
    uid = store.find_run("same").uid
    wait_for(home / "training" / uid / "fence.json", second, '"generation": 2')
    asked = store.add_request(uid, "resume")  # nothing is paused: it only shows that it looked
    second.until(lambda: store.ledger(uid).job.seen_request >= asked)
    store.close()
    Path("go").touch()
    out, _ = second.communicate()
    assert second.returncode == 0
    assert Path("pids").read_text() == pids
    assert all(each["attempt"] == 0 for each in json.loads(out)["instances"])


def test_a_second_run_of_the_same_id_says_who_drives_it_and_watches(start, home):
    script = "touch up; while [ ! -e go ]; do sleep 0.05; done"
    path = job_file(Path("job.yaml"), command=["sh", "-c", script])
    words = [str(path), "--run-id", "same", "-o", "json"]
    first = start(*words)
    wait_for(Path("up"), first)
    second, third = start(*words), start(*words)
    for each in (second, third):
        while f"process {first.pid} on " not in (line := each.stderr.readline()):
            assert line, each.communicate()
    third.send_signal(signal.SIGINT)
    _, err = third.communicate()
    assert third.returncode == 1
    assert "driven by another process, which goes on" in err
    Path("go").touch()
    out, err = second.communicate()
    assert second.returncode == 0
    assert json.loads(out)["state"] == "Succeeded"
    assert "JobSucceeded" in err
    assert "Traceback" not in err


def test_what_instances_print_is_shown_with_their_names(command, home):
    script = 'echo "first of $TRAINING_INDEX"; sleep 1; printf "last of $TRAINING_INDEX"'
    path = job_file(Path("job.yaml"), ("worker", 2), command=["sh", "-c", script])
    done = command("run", str(path), "--logs")
    assert done.code == 0, done.stderr
    for index in range(2):
        for line in (f"first of {index}", f"last of {index}"):
            assert done.stderr.count(f"worker-{index} | {line}\n") == 1, done.stderr


def test_following_a_log_goes_on_into_later_attempts(start, home, background):
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
    words = ["logs", "show", "f", "--role", "worker", "--follow"]
    followers = [background(*each) for each in (words, [*words, "--attempt", "0"])]
    assert followers[0].stdout.readline() == "attempt 0\n"
    for attempt in range(3):
        wait_for(Path(f"up{attempt}"), host, str(attempt))
        Path(f"go{attempt}").touch()
    (all_out, all_err), (one_out, one_err) = (each.communicate() for each in followers)
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
    refused = command("pause", "s", "-o", "json")
    assert refused.code == 2
    assert "has no checkpoint: after pause it begins again at its first step" in refused.stderr
    assert command("pause", "s", "--yes", "-o", "json").json["request"] == "pause"
    process.until(lambda: command("status", "s", "-o", "json").json["state"] == "Paused")
    assert not alive(f"steer-{home}")
    Path("started").unlink()
    command("resume", "s")
    wait_for(Path("started"), process)
    Path("started").unlink()
    command("scale", "s", "--role", "worker", "--replicas", "2", "--yes")
    wait_for(Path("started"), process, "1")
    killed = command("kill", "s", "--reason", "enough", "-o", "json")
    assert killed.code == 0
    assert killed.json["state"] == "Stopped"
    assert not alive(f"steer-{home}")
    out, _ = process.communicate()
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
    for run, process in (("b", waiter), ("c", killed)):
        process.until(lambda: '"Queued"' in command("status", run, "-o", "json").stdout)  # noqa: B023 - called here
    assert command("kill", "c", "-o", "json").json["state"] == "Stopped"
    out, _ = killed.communicate()
    assert killed.returncode == 1
    assert json.loads(out)["usage"] == []
    Path("go").touch()
    for process in (holder, waiter):
        out, err = process.communicate()
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


def moment(text: str) -> float:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%f%z").timestamp()


def test_a_simulated_day_is_over_at_once_and_the_same_again(home, command):
    """A day of training, a lost machine, a quarter of an hour's outage, an hour's wait to restart."""
    Path("faults.yaml").write_text(
        "roles: {worker: {startSeconds: 1, runSeconds: 86400}}\n"
        "faults:\n"
        "  - {at: 3600, kill: worker, index: 1, signal: 9}\n"
        "  - {at: 40, lose: worker, index: 0, seconds: 10}\n"
        "  - {at: 4000, unreachable: 900}\n"
    )
    path = job_file(
        Path("job.yaml"), ("worker", 3), command=["no-such-command"],
        restart={"backoff": {"initialSeconds": 3600, "maxSeconds": 3600}},
        activeDeadlineSeconds=864000,
    )  # fmt: skip
    told = []
    for run_id in ("one", "two"):
        done = command(
            "run", str(path), "--simulate", "faults.yaml", "--run-id", run_id, "-o", "json"
        )
        assert done.code == 0
        assert [round(each["seconds"]) for each in done.json["usage"]] == [
            86400,
            3599,
            86400,
            86400,
        ]
        began = moment(done.json["submitted_at"])
        told.append(
            [
                (each["reason"], each["role"], each["index"], round(moment(each["at"]) - began, 2))
                for each in command("events", run_id, "-o", "json").json["events"]
            ]
        )
    assert told[0] == told[1]
    restarted = next(each[-1] for each in told[0] if each[0] == "InstanceRestarted")
    running = [each[-1] for each in told[0] if each[0] == "InstanceRunning"]
    assert (restarted, running) == (3600.0, [1.0, 1.0, 1.0, 7201.0])


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
        assert never.stderr == "after-0 was never started: waited for worker-0, which failed\n"


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
        _, err = process.communicate()
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


def test_relative_paths_start_where_one_says(home, command):
    Path("elsewhere").mkdir()
    path = job_file(Path("job.yaml"), command=["sh", "-c", "pwd > here"])
    done = command("run", str(path), "--base-dir", "elsewhere", "--run-id", "there")
    assert done.code == 0, done.stderr
    assert Path("elsewhere/here").read_text() == f"{Path('elsewhere').resolve()}\n"
