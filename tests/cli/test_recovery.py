"""A job with checkpoints on this machine: killed, hanging, paused, it goes on where it was."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sys
from pathlib import Path

import pytest

from airflow_training.cli import running
from tests.cli.conftest import job_file
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

TRAIN = """
import json, os, signal, sys, time
from airflow_training.agent.progress import report, report_checkpoint, section
from airflow_training.checkpoints import Group

told = json.loads(os.environ["TRAINING_CHECKPOINT"])
group = Group.open(
    told["root"], incarnation=told["incarnation"], order=told["order"],
    not_after=told["resume"]["not_after"],
)
asked_to_end = []
signal.signal(signal.SIGTERM, lambda *_: asked_to_end.append(1))
start = group.base.step if group.base else 0
attempt = int(os.environ["TRAINING_ATTEMPT"])
print("starts after step", start, flush=True)

def save(step):
    group.write(step, {"state": b"%d" % step}, document={})
    manifest = group.commit(step, deadline=600)
    report_checkpoint({"uri": told["root"], "step": step, "digest": manifest.digest}, took=0.01)

for step in range(start + 1, 41):
    time.sleep(0.05)
    report(step=step, total_steps=40)
    MISHAP
    if asked_to_end:
        save(step)
        sys.exit(143)
    if step % 5 == 0:
        save(step)
"""
CHECKPOINT = {"uri": "ckpt", "everySteps": 5}


def recovering(mishap: str, **spec) -> Path:
    """Write a job whose script meets a mishap between step and save."""
    Path("train.py").write_text(TRAIN.replace("MISHAP", mishap))
    spec = {"checkpoint": CHECKPOINT, "restart": {"backoff": {"initialSeconds": 0.05}}, **spec}
    return job_file(Path("job.yaml"), ("worker", 1), command=[sys.executable, "train.py"], **spec)


def starts(home: Path, instance: str = "worker-0") -> list[int]:
    """Return after which steps the attempts of the only run started."""
    logs = sorted(home.glob(f"training/*/{instance}/attempt-*/log"), key=_attempt)
    lines = [line for log in logs for line in log.read_text().splitlines()]
    return [int(line.split()[-1]) for line in lines if "starts after" in line]


def _attempt(log: Path) -> list[int]:
    return [int(each) for each in log.parent.name.removeprefix("attempt-").split(".")]


def reasons_of(command, run: str) -> list[str]:
    return [each["reason"] for each in command("events", run, "-o", "json").json["events"]]


def test_a_killed_job_goes_on_from_its_checkpoint(command, home):
    kill = "if step in (8, 23) and step > start + 3: os.kill(os.getpid(), 9)"
    path = recovering(kill)
    done = command("run", str(path), "--run-id", "r", "-o", "json")
    assert done.code == 0, done.stderr
    assert starts(home) == [0, 5, 20]
    status = done.json
    assert status["checkpoint"]["step"] == 40
    assert Path(status["checkpoint"]["uri"]).is_dir()
    assert status["restarts"]["infrastructure"] == 2
    assert "CheckpointCommitted" in reasons_of(command, "r")


def test_a_document_that_lies_in_no_folder_finds_its_checkpoints_again(
    typed, home, monkeypatch: pytest.MonkeyPatch
):
    """As one that was typed inside Airflow: its addresses lead to a folder of the run."""
    read = running.JobReference._read
    monkeypatch.setattr(
        running.JobReference, "_read", lambda self: dataclasses.replace(read(self), base_dir="")
    )
    path = recovering("if step in (8, 23) and step > start + 3: os.kill(os.getpid(), 9)")
    text = path.read_text().replace("train.py", str(Path("train.py").resolve()))
    path.write_text(text)
    done = typed("run", str(path), "--run-id", "r", "-o", "json")
    assert done.code == 0, done.stderr
    assert starts(home) == [0, 5, 20]
    kept = Path(done.json["checkpoint"]["uri"])
    assert kept.is_relative_to(next(home.glob("training/*/files/ckpt")))
    again = typed("run", "--from-run", "r", "--run-id", "again", "-o", "json")
    assert again.code == 0, again.stderr
    assert len(list(home.glob("training/*/files/ckpt/*"))) == 2


def test_a_damaged_checkpoint_is_passed_over_and_told(command, home):
    damage = """
    if step == 12 and start == 0:
        from pathlib import Path
        shard = next(Path(told["root"]).glob("shards/*/*-000000000010-*"))
        shard.unlink()
        shard.symlink_to(shard)
        os.kill(os.getpid(), 9)
"""
    done = command("run", str(recovering(damage)), "--run-id", "r", "-o", "json")
    assert done.code == 0, done.stderr
    assert starts(home) == [0, 5]
    events = command("events", "r", "-o", "json").json["events"]
    [told] = [each for each in events if each["reason"] == "CheckpointRejected"]
    assert told["level"] == "warning"
    assert re.search(r"step 10 is not restored: .*shards/.* cannot be read", told["message"])


def test_an_independent_instance_steps_back_by_itself(command, home):
    """It fails twice on what its newest checkpoint holds; the other one goes on undisturbed."""
    fail = "if os.environ['TRAINING_INDEX'] == '1' and step == 13 and start != 5: sys.exit(1)"
    path = recovering(fail, restart={"scope": "Instance", "backoff": {"initialSeconds": 0.05}})
    path.write_text(path.read_text().replace('"replicas": 1', '"replicas": 2'))
    done = command("run", str(path), "--run-id", "r", "-o", "json")
    assert done.code == 0, done.stderr
    assert starts(home, "worker-1") == [0, 10, 5]
    assert starts(home) == [0]
    assert reasons_of(command, "r").count("SteppedBack") == 1


def test_three_recoveries_without_progress_then_a_fresh_job_then_failure(command, home):
    path = recovering("if step == 8: os.kill(os.getpid(), 9)")
    done = command("run", str(path), "--run-id", "r", "-o", "json")
    assert done.code == 1
    assert starts(home) == [0] + [5] * 7
    assert (done.json["fresh_jobs"], done.json["reason"]) == (1, "MaxRestartsExceeded")
    assert done.json["restarts"]["infrastructure"] == 7


def test_a_script_that_hangs_is_restarted(command, home):
    """What does not hang is in a section, which may take an hour: the machine may be as slow as it likes."""
    hang = """
    if step == start + 1:
        work = section("eval")
        work.__enter__()
    if step == 18 and attempt == 0:
        work.__exit__(None, None, None)
        time.sleep(600)
"""
    path = recovering(hang, checkpoint={**CHECKPOINT, "progress": {"stallSeconds": 1}})
    done = command("run", str(path), "--run-id", "r", "-o", "json")
    assert done.code == 0, done.stderr
    assert starts(home) == [0, 15]
    log = command("logs", "show", "r", "--role", "worker", "--index", "0", "--attempt", "0").stdout
    assert re.search(r"no progress for \d+ s after step 18;", log)
    assert "train.py" in log, "its stack"
    assert done.json["restarts"]["infrastructure"] == 1


def test_pause_saves_first_and_resume_goes_on(command, background, home):
    path = recovering("while step == 7 and not (start or asked_to_end): time.sleep(0.01)")
    run = background("run", str(path), "--run-id", "r", "-o", "json")
    status = _until(command, lambda found: (found["checkpoint"] or {}).get("step", 0) >= 5)
    assert command("pause", "r").code == 0
    status = _until(command, lambda found: "is committed" in found["message"])
    step = status["checkpoint"]["step"]
    assert status["message"].endswith(f"the checkpoint of step {step} is committed")
    assert status["trained_seconds"] > 0
    assert command("resume", "r").code == 0
    out, _ = run.communicate()
    assert run.returncode == 0
    assert json.loads(out)["restarts"] == dict.fromkeys(json.loads(out)["restarts"], 0)
    assert step == 7
    assert starts(home) == [0, 7]


def _until(command, holds):
    """Return the status once it is as wanted."""
    answers = []

    def status():
        answers.append(command("status", "r", "-o", "json"))
        return answers[-1].json if answers[-1].code == 0 and holds(answers[-1].json) else None

    return wait_until(status, seen=lambda: answers[-1])


WRITES = """
import os, pathlib, time
out = pathlib.Path("out")
have = sorted(int(p.name) for p in out.glob("*")) if out.is_dir() else []
print("starts after step", have[-1] if have else 0, flush=True)
if not have:
    out.mkdir(exist_ok=True)
    (out / "4").write_text("whole")
    while not any(pathlib.Path("ckpt").rglob("manifests/*")):  # it is committed
        time.sleep(0.01)
    (out / "8").write_text("half")
    os.kill(os.getpid(), 9)
(out / "12").write_text("the last")
"""


def test_a_watched_folder_is_committed_and_put_back(command, home):
    Path("train.py").write_text(WRITES)
    path = job_file(
        Path("job.yaml"), ("worker", 1), command=[sys.executable, "train.py"],
        checkpoint={"uri": "ckpt", "watch": "out"}, restart={"backoff": {"initialSeconds": 0.05}},
    )  # fmt: skip
    done = command("run", str(path), "--run-id", "r", "-o", "json")
    assert done.code == 0, done.stderr
    assert starts(home) == [0, 4], "what was half written is not there"
    assert done.json["checkpoint"]["step"] == 12
    assert sorted(each.name for each in Path("out").iterdir()) == ["12", "4"]


def test_a_watched_folder_that_cannot_be_committed_is_refused_before_the_start(command, home):
    path = job_file(
        Path("job.yaml"), ("worker", 1), command=["touch", "started"],
        checkpoint={"uri": "nowhere://a/b", "watch": "out"},
    )  # fmt: skip
    done = command("run", str(path), "--run-id", "r", "-o", "json")
    assert done.code == 1
    assert done.json["restarts"]["user"] == 0
    assert "no driver for nowhere:// is known" in done.json["message"]
    assert not Path("started").exists()


def test_open_runs_are_taken_up_after_whoever_drove_them_is_gone(command, background, home):
    go_on = Path("go-on").absolute()
    path = recovering(f"while step == 12 and not os.path.exists({str(go_on)!r}): time.sleep(0.01)")
    run = background("run", str(path), "--run-id", "r")
    _until(command, lambda found: (found["checkpoint"] or {}).get("step", 0) >= 10)
    run.kill()
    run.wait()
    go_on.touch()
    done = command("run", "--open", "-o", "json")
    assert done.code == 0, done.stderr
    assert done.json == {"runs": [{"run_id": "r", "state": "Succeeded"}]}
    assert starts(home) == [0], "its instance went on meanwhile"
    assert command("run", "--open", "-o", "json").json == {"runs": []}
    assert command("run", str(path), "--open").code == 2


def test_a_machine_that_was_rebooted_goes_on_from_the_checkpoint(command, background, home):
    path = recovering("while step == 12 and not start: time.sleep(0.01)")
    run = background("run", str(path), "--run-id", "r")
    _until(command, lambda found: (found["checkpoint"] or {}).get("step", 0) >= 10)
    run.kill()
    run.wait()
    (state,) = home.glob("training/*/worker-0/attempt-*/.agent/state.json")
    agent = json.loads(state.read_text())["agent"]
    for pid in (agent["pid"], json.loads(state.read_text())["child"]["pid"]):
        os.kill(pid, 9)
    known = json.loads(state.read_text())
    known["agent"]["boot_id"] = "another boot"
    state.write_text(json.dumps(known))
    done = command("run", "--open", "-o", "json")
    assert done.code == 0, done.stderr
    assert starts(home) == [0, 10]
    assert "NodeLost" in str(command("events", "r", "-o", "json").json)


def test_a_device_that_is_lost_keeps_the_training_from_starting_until_it_is_back(
    command, background, home
):
    lost = Path("lost").absolute()
    mishap = (
        f"if step == 8 and attempt == 0: open({str(lost)!r}, 'w').close(); os.kill(os.getpid(), 9)"
    )
    ask = f'if [ -e {lost} ]; then echo \'[]\'; else echo \'[{{"id": "0", "name": "NPU"}}]\'; fi'
    path = recovering(
        f"if step == 1 and attempt == 0: time.sleep(1.5)\n    {mishap}",  # the first record comes after 1 s
        env=[{"name": "TRAINING_DEVICE_COMMAND", "value": ask}],
        restart={"backoff": {"initialSeconds": 0.05}, "readyTimeoutSeconds": 0.5},
    )
    run = background("run", str(path), "--run-id", "r", "-o", "json")
    run.until(lambda: [*home.glob("training/*/worker-0/attempt-0.0.1/.agent/exit.json")])
    lost.unlink()
    out, _ = run.communicate()
    assert run.returncode == 0
    status = json.loads(out)
    assert (status["state"], status["checkpoint"]["step"]) == ("Succeeded", 40)
    assert starts(home)[:2] == [0, 5], "nothing was started in between"
    told = [
        each["data"]
        for each in command("events", "r", "-o", "json").json["events"]
        if each["reason"] == "InstanceRestarted"
    ]
    assert len(told) >= 2
    assert "EnvironmentNotReady" in told[1]["recovery_why"]
    assert all(each["counted"] for each in told)
    assert status["restarts"]["infrastructure"] == len(told)
    log = command("logs", "show", "r", "--role", "worker", "--index", "0", "--attempt", "1").stdout
    assert "devices: 0 of 1 are there, missing 1 x NPU" in log
