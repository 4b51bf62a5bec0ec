"""A run whose stop condition holds: saved, its output away, ended as succeeded; whoever drives it may be killed."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from airflow_training.state.store import open_store
from tests.cli.conftest import COMMAND, alive
from tests.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

EXAMPLE = Path(__file__).resolve().parents[2] / "dags" / "examples" / "digits"
SLOW = """
import json, os, pathlib, signal, sys, time
out = pathlib.Path(os.environ["TRAINING_OUTPUT_DIR"])
def end(*_):
    pathlib.Path("ending").touch()
    while not pathlib.Path("go").exists():
        time.sleep(0.05)
    (out / "model.pt").write_text("whole")
    sys.exit(143)
if os.environ["TRAINING_RANK"] == "0":
    signal.signal(signal.SIGTERM, end)
    pathlib.Path("begun").open("a").write("x")
    with open(os.environ["TRAINING_PROGRESS_FILE"], "a") as file:
        file.write(json.dumps({"step": 1, "metrics": {"loss": 0.05}, "time": time.time()}) + chr(10))
time.sleep(600)
"""


def write_slow_job() -> None:
    Path("train.py").write_text(SLOW)
    pod = {"terminationGracePeriodSeconds": 60}
    document = {
        "apiVersion": "airflow-training/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "slow"},
        "spec": {
            "framework": "custom",
            "command": ["python", "train.py"],
            "roles": [{"name": "worker", "replicas": 2, "template": {"spec": pod}}],
            "output": {"uri": "there"},
            "stop": {"until": "loss < 0.1"},
        },
    }
    Path("job.yaml").write_text(yaml.safe_dump(document))


def driving(run_id: str) -> subprocess.Popen[str]:
    words = [*COMMAND, "run", "job.yaml", "--run-id", run_id, "-o", "json"]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_ranks_save_together_and_rank_0_leaves_its_output(command, home):
    shutil.copy(EXAMPLE / "train.py", "train.py")
    document = yaml.safe_load((EXAMPLE / "digits-checkpointed.yaml").read_text())
    document["spec"]["checkpoint"]["everySteps"] = 100_000
    document["spec"]["stop"] = {"until": "step >= 30"}
    document["spec"]["output"] = {"uri": "there"}
    Path("job.yaml").write_text(yaml.safe_dump(document))
    words = ["run", "job.yaml", "--run-id", "d", "-p", "epochs=500", "-o", "json"]
    done = command(*words)
    assert done.code == 0, done.stderr
    told = done.json
    assert (told["state"], told["reason"]) == ("Succeeded", "StopConditionMet")
    assert told["message"].startswith("stop.until holds: step ")
    shown = command("checkpoints", "show", "d", "-o", "json").json
    assert shown["step"] >= 30
    [master] = [each for each in told["instances"] if each["role"] == "master"]
    assert (master["state"], master["exit_code"]) == ("succeeded", 0)
    assert Path("there").is_dir()


def test_whoever_drives_it_is_killed_between_order_and_end(home):
    write_slow_job()
    first = driving("k")
    wait_until(Path("ending").exists, alive=lambda: first.poll() is None)
    first.kill()
    first.communicate()
    second = driving("k")
    store = open_store()
    uid = store.find_run("k").uid
    wait_until(
        lambda: store.lease(uid) is not None and store.lease(uid).generation > 1,
        alive=lambda: second.poll() is None,
    )
    Path("go").touch()
    out, said = second.communicate(timeout=PATIENCE)
    assert second.returncode == 0, said
    told = json.loads(out)
    assert (told["state"], told["reason"]) == ("Succeeded", "StopConditionMet")
    assert Path("there/model.pt").read_text() == "whole"
    assert Path("begun").read_text() == "x"
    events = [each.event.reason for each in store.events(uid)]
    assert events.count("StopConditionMet") == 1
    assert not store.ledger(uid).job.restarts
    store.close()
    assert not alive(str(Path.cwd()))
