"""However a run fails: its exit code, status, JSON, events and diagnosis say the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import job_file

pytestmark = pytest.mark.e2e

UNKNOWN = ("unknown", "user-error", "unknown")
KILLED = ("unknown", "infrastructure", "unknown")


def shell(script: str) -> dict[str, Any]:
    return {"command": ["bash", "-c", script]}


@pytest.mark.parametrize(
    ("spec", "cause", "headline"),
    [
        pytest.param(shell("exit 7"), UNKNOWN, "worker-0: exit code 7: it printed nothing", id="silent"),
        pytest.param(shell("echo bye; exit 7"), UNKNOWN, "worker-0: exit code 7: last line: bye", id="last-line"),
        pytest.param(
            shell("echo no licence; exit 1"), UNKNOWN, "worker-0: exit code 1: last line: no licence", id="no-exception"
        ),
        pytest.param(
            shell(r"printf '\033[1;31mERROR\033[0m no seat\n-----\n'; exit 3"),
            UNKNOWN,
            "worker-0: exit code 3: last line: ERROR no seat",
            id="colours-and-a-ruler",
        ),
        pytest.param(
            shell("echo loss 1; kill -KILL $BASHPID"), KILLED, "worker-0: signal 9: last line: loss 1", id="killed"
        ),
        pytest.param(shell("echo loss 1; exit 143"), KILLED, "worker-0: exit code 143: last line: loss 1", id="told"),
        pytest.param(
            shell("python -c 'import torhc'"),
            ("module-not-found", "configuration", "no"),
            "worker-0: exit code 1 (module-not-found): ModuleNotFoundError: No module named 'torhc'",
            id="import",
        ),
        pytest.param(
            {"command": ["trainn"]},
            ("container-start-error", "configuration", "no"),
            "worker-0: exit code 127 (StartError, container-start-error): trainn: command not found",
            id="not-found",
        ),
        pytest.param(
            {"command": ["sleep", "600"], "activeDeadlineSeconds": 1},
            ("time-limit", "preemption", "no"),
            "activeDeadlineSeconds 1 is used up: ",
            id="deadline",
        ),
    ],
)  # fmt: skip
def test_all_answers_about_a_failure_agree(command, spec, cause, headline):
    path = job_file(Path("job.yaml"), restart={"maxRestarts": 0}, **spec)
    done = command("run", str(path), "--run-id", "bad", "-o", "json")
    status = command("status", "bad", "-o", "json").json
    assert (done.code, done.json["message"]) == (1, status["message"])
    assert status["message"].startswith(headline)
    root = status["root_cause"]
    assert (root["id"], root["category"], root["retryable"]) == cause
    (found, *_) = command("logs", "diagnose", "bad", "-o", "json").json["causes"]
    assert (found["id"], found["category"], found["retryable"]) == cause
    assert found["rank"] == root["rank"]
    events = command("events", "bad", "-o", "json").json["events"]
    (ended,) = (each for each in events if each["reason"] == "JobFailed")
    assert ended["message"] == f"{status['message']} ({status['reason']})"
    shown = command("status", "bad").stdout
    assert f"{status['message']} ({status['reason']})" in shown
    assert "one more try may help" not in command("logs", "diagnose", "bad").stdout
