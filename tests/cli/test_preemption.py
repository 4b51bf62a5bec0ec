"""Runs that give their place to one of a higher priority, as real processes on the local runtime."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.cli.conftest import Background, job_file

pytestmark = pytest.mark.e2e

WAITS = "echo up >> {0}-ups; touch {0}-up; while [ ! -e {0}-go ]; do sleep 0.05; done"


@pytest.fixture
def low(background, home, monkeypatch) -> Background:
    """The driver of a run that has the only place, until the file `low-go` is there."""
    monkeypatch.setenv("AIRFLOW__TRAINING__MAX_RUNNING_JOBS", "1")
    path = job_file(Path("low.yaml"), command=["sh", "-c", WAITS.format("low")], name="low")
    driver: Background = background("run", str(path), "--run-id", "low", "-o", "json")
    driver.until(Path("low-up").exists)
    return driver


@pytest.fixture
def high(low, background, command) -> Background:
    """The driver of a run that has taken the place, until the file `high-go` is there."""
    path = job_file(
        Path("high.yaml"),
        command=["sh", "-c", WAITS.format("high")],
        name="high",
        schedulingPolicy={"priority": 1, "preemptionPolicy": "PreemptLowerPriority"},
    )
    driver: Background = background("run", str(path), "--run-id", "high", "-o", "json")
    driver.until(Path("high-up").exists)
    status = command("status", "low", "-o", "json").json
    assert (status["state"], status["reason"]) == ("Queued", "QueuePreempted")
    assert status["message"] == "makes room for run high, whose priority is 1"
    assert {each["state"] for each in status["instances"]} == {"pending"}
    return driver


def ends_well(driver: Background) -> None:
    _, err = driver.communicate()
    assert driver.returncode == 0, err


def test_a_lower_one_ends_and_goes_on_when_the_higher_one_is_over(low, high, command):
    assert low.poll() is None
    Path("high-go").touch()
    ends_well(high)
    Path("low-go").touch()
    out, err = low.communicate()
    assert low.returncode == 0, err
    status = json.loads(out)
    assert status["roles"]["worker"]["restarts"] == 0
    assert Path("low-ups").read_text().split() == ["up", "up"]
    reasons = [each["reason"] for each in command("events", "low", "-o", "json").json["events"]]
    wanted = ("QueuePreempted", "Queued", "Resumed", "JobSucceeded")
    assert [each for each in reasons if each in wanted] == [*wanted]


def test_it_goes_on_with_another_driver_where_its_own_was_killed(low, high, background):
    low.send_signal(signal.SIGKILL)
    low.wait()
    again = background("run", "low.yaml", "--run-id", "low", "-o", "json")
    Path("high-go").touch()
    ends_well(high)
    Path("low-go").touch()
    out, err = again.communicate()
    assert again.returncode == 0, err
    assert json.loads(out)["roles"]["worker"]["restarts"] == 0


def test_it_can_be_killed_while_it_waits(low, high, command):
    assert command("kill", "low", "-o", "json").json["state"] == "Stopped"
    low.communicate()
    assert low.returncode == 1
    assert command("status", "high", "-o", "json").json["state"] == "Running"
    Path("high-go").touch()
    ends_well(high)
