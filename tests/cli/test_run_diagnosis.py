"""`run` of scripts that fail in a known way: what is tried again, and what a person is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import job_file
from tests.waiting import PATIENCE

pytestmark = pytest.mark.e2e

OUT_OF_MEMORY = """\
print("step 7 loss 0.5", flush=True)
raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 15.90 GiB total capacity)")
"""
AT_STEP_7 = """\
import json, os
with open(os.environ["TRAINING_PROGRESS_FILE"], "a") as file:
    print(json.dumps({"step": 7, "total_steps": 9}), file=file)
print("attempt", os.environ["TRAINING_ATTEMPT"], flush=True)
raise KeyError("label")
"""


def run(command, script: str, run_id: str, *, backoff_seconds: float):
    """Run a script; the first diagnosis of a process comes late, and the restart waits for it."""
    restart = {"backoff": {"initialSeconds": backoff_seconds, "factor": 1}, "maxRestarts": 5}
    Path("train.py").write_text(script)
    path = job_file(Path("job.yaml"), command=[sys.executable, "train.py"], restart=restart)
    return command("run", str(path), "--run-id", run_id, "-o", "json")


@pytest.mark.parametrize(
    ("script", "cause", "line", "evidence"),
    [
        pytest.param(
            OUT_OF_MEMORY, "cuda-out-of-memory", 5, "RuntimeError: CUDA out of memory", id="memory"
        ),
        pytest.param(
            "import torchh_vision\n",
            "module-not-found",
            4,
            "ModuleNotFoundError: No module named 'torchh_vision'",
            id="module",
            marks=pytest.mark.soak,
        ),
        pytest.param("def f(\n", "python-exception", 4, "SyntaxError: ", id="syntax"),
    ],
)
def test_what_needs_a_change_first_is_not_tried_again(command, home, script, cause, line, evidence):
    done = run(command, script, "bad", backoff_seconds=0)
    assert done.code == 1
    status = done.json
    assert (status["state"], status["reason"]) == ("Failed", "NotRetryable")
    assert sum(status["restarts"].values()) == 0, done.stderr
    root = status["root_cause"]
    assert (root["id"], root["retryable"], root["line"]) == (cause, "no", line)
    assert (root["role"], root["index"], root["attempt"]) == ("worker", 0, 0)
    assert root["evidence"].startswith(evidence)
    assert f"RootCause  {cause} (" in done.stderr
    shown = command("status", "bad").stdout
    assert f"root cause: {cause} (" in shown
    assert f"proof: worker-0:{line}" in shown
    assert f"what to do: {root['advice']}" in shown
    again = command("logs", "diagnose", "bad", "-o", "json").json
    assert (again["causes"][0]["id"], again["causes"][0]["line"]) == (cause, line)


@pytest.mark.parametrize(
    ("words", "headline"),
    [
        pytest.param(["pyhton", "train.py"], "pyhton: command not found", id="no-such-command"),
        pytest.param(
            ["sh", "-c", "pyhton train.py"],
            "sh: 1: pyhton: not found",
            id="not-for-a-shell",
            marks=pytest.mark.soak,
        ),
        pytest.param([sys.executable, "absent.py"], "can't open file", id="no-such-script"),
    ],
)
def test_a_command_that_cannot_start_is_the_headline_and_not_tried_again(
    command, home, words, headline
):
    path = job_file(Path("job.yaml"), command=words, restart={"backoff": {"initialSeconds": 0}})
    status = command("run", str(path), "--run-id", "typo", "-o", "json").json
    assert (status["state"], status["reason"]) == ("Failed", "NotRetryable")
    assert headline in status["message"]
    assert headline in status["root_cause"]["evidence"]
    assert sum(status["restarts"].values()) == 0
    (guilty,) = status["roles"].values()
    assert guilty["state"] == "Failed"
    assert headline in guilty["message"]


def test_the_same_error_at_the_same_step_is_tried_once_more(command, home):
    done = run(command, AT_STEP_7, "same", backoff_seconds=10)
    assert done.code == 1
    status = done.json
    assert status["reason"] == "SameErrorAgain"
    (who,) = status["roles"]
    assert status["message"] == (
        f"{who}-0: exit code 1 (python-exception): KeyError: 'label';"
        " the same error at step 7 for the second time"
    )
    assert status["restarts"]["user"] == 1, done.stderr
    assert status["root_cause"]["id"] == "python-exception"
    assert status["root_cause"]["evidence"] == "KeyError: 'label'"


def test_a_run_that_succeeds_loads_nothing_that_reads_logs(home):
    path = job_file(Path("job.yaml"))
    words = [sys.executable, "-X", "importtime", "-m", "airflow_training.cli", "run", str(path)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=PATIENCE)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "airflow_training.supervise.drive" in loaded
    assert [name for name in loaded if name.startswith("airflow_training.logs")] == []
    assert "airflow_training.supervise.followers.diagnosing" not in loaded


LOSES_A_PEER = """\
import os, pathlib, sys, time
mark = pathlib.Path("failing")
if os.environ["TRAINING_INDEX"] == "1":
    print("Traceback (most recent call last):", file=sys.stderr)
    print('  File "train.py", line 7, in <module>', file=sys.stderr)
    print("ValueError: bad batch 7", file=sys.stderr, flush=True)
    mark.touch()
    time.sleep(600)
while not mark.exists():
    time.sleep(0.05)
print("RuntimeError: [../gloo/transport/tcp/pair.cc:589] Connection closed by peer [10.0.0.3]:2345")
sys.exit(1)
"""


@pytest.mark.parametrize("scope", ["Job", "Instance"])
def test_the_headline_is_who_failed_first_though_only_who_lost_it_has_ended(command, home, scope):
    script = Path("train.py")
    script.write_text(LOSES_A_PEER)
    path = job_file(
        Path("job.yaml"),
        command=[sys.executable, str(script.absolute())],
        roles=[{"name": "worker", "replicas": 2}],
        restart={"scope": scope, "maxRestarts": 0},
    )
    done = command("run", str(path), "--run-id", "lost", "-o", "json")
    assert done.code == 1
    status = done.json
    first = "worker-1: python-exception: ValueError: bad batch 7"
    assert status["message"] == f"{first}; maxRestarts 0 is used up"
    assert (status["root_cause"]["role"], status["root_cause"]["index"]) == ("worker", 1)
    assert f"JobFailed  {status['message']} (MaxRestartsExceeded)" in done.stderr
    assert "worker-1: " in command("status", "lost").stdout.splitlines()[1]


THEN_ANOTHER = """\
import os, time
time.sleep(0.5)
if os.environ["TRAINING_ATTEMPT"] == "0":
    raise RuntimeError("vault lost while saving")
raise RuntimeError("half a file in the vault")
"""


def test_the_first_cause_of_attempts_that_got_nowhere_is_the_headline(command, home):
    (home / "causes").mkdir()
    for name, text in {"vault-lost": "vault lost", "vault-broken": "half a file"}.items():
        (home / "causes" / f"{name}.yaml").write_text(
            f"{{id: {name}, meaning: It is gone, category: infrastructure, retry: 'yes', advice: Ask ACME.,\n"
            f" signatures: [{{name: text, pattern: '{text}', confidence: 0.9, example: '{text}'}}]}}\n"
        )
    Path("train.py").write_text(THEN_ANOTHER)
    restart = {"backoff": {"initialSeconds": 0.1, "factor": 1}, "maxRestarts": 1}
    path = job_file(Path("job.yaml"), command=[sys.executable, "train.py"], restart=restart)
    done = command("run", str(path), "--run-id", "two", "-o", "json")
    assert done.code == 1
    assert done.json["reason"] == "MaxRestartsExceeded", done.stderr
    root = done.json["root_cause"]
    assert (root["id"], root["attempt"]) == ("vault-lost", 0), done.stderr
    assert done.json["message"] == (
        "worker-0: vault-lost: RuntimeError: vault lost while saving;"
        " then worker-0: exit code 1 (vault-broken): RuntimeError: half a file in the vault;"
        " maxRestarts 1 is used up"
    )


def test_a_run_that_somebody_has_stopped_was_not_preempted(background, command, home):
    Path("train.py").write_text(
        "import signal, sys, time\n"
        "def end(*_):\n"
        "    print('Received SIGTERM: 15', flush=True)\n"
        "    sys.exit(143)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "open('up', 'w').close()\n"
        "time.sleep(600)\n"
    )
    path = job_file(Path("job.yaml"), command=[sys.executable, "train.py"])
    process = background("run", str(path), "--run-id", "one")
    process.until(lambda: Path("up").exists() or None)
    assert command("kill", "one", "--reason", "wrong data").code == 0
    process.wait()
    found = command("logs", "diagnose", "one")
    assert "stopped      run one did not fail: wrong data" in found.stdout
    assert "preempt" not in found.stdout
    assert command("logs", "diagnose", "one", "-o", "json").json["causes"] == []
