"""The agent in a pod around a command, as a real process: how both end."""

from __future__ import annotations

import json
import signal
import socket
import sys

import pytest

from airflow_training.agent.order import ORDER_VARIABLE, VERSION, Order
from airflow_training.agent.pod_attempts import FILES
from tests.kubernetes.pod_agent.programs import agent, last_words
from tests.waiting import PATIENCE, wait_until


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["sh", "-c", "exit 7"], 7),
        (["sh", "-c", "kill -9 $$"], 137),
        (["true"], 0),
        (["there-is-no-such-command"], 127),
        (["/"], 126),
    ],
)
def test_run_ends_as_the_command_did(tmp_path, program, python, command, code):
    log = tmp_path / "termination-log"
    with agent(python, program, Order(termination_log=str(log)), "run", "--", *command) as process:
        assert process.wait(PATIENCE) == code
    if code in (126, 127):
        assert json.loads(log.read_text())["airflow-training"]["reason"] in (
            "CommandNotFound",
            "StartError",
        )
    else:  # then the end of the log is the message
        assert not log.exists()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2"])
def test_run_passes_signals_on(tmp_path, program, python, name):
    ready, got = tmp_path / "ready", tmp_path / "got"
    script = f"trap 'echo {name} > {got}; exit 9' {name[3:]}; echo > {ready}; while :; do sleep 0.05; done"
    with agent(python, program, Order(), "run", "--", "sh", "-c", script) as process:
        wait_until(ready.exists)
        process.send_signal(getattr(signal, name))
        assert process.wait(PATIENCE) == 9
    assert got.read_text().strip() == name


def test_run_buries_orphans_and_keeps_the_commands_streams(program, python):
    script = "(sleep 0.2 &) ; echo out; echo err >&2; exit 3"
    with agent(python, program, Order(), "run", "--", "sh", "-c", script) as process:
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err) == (3, "out\n", "err\n")


@pytest.mark.parametrize(
    ("text", "arguments", "why"),
    [
        pytest.param("{}", ["hold"], "nothing is to be held", id="hold-nothing"),
        pytest.param("{}", ["run"], "no command", id="no-command"),
        pytest.param("{}", ["run", "--"], "no command", id="an-empty-command"),
        pytest.param("{", ["run", "--", "true"], "no JSON", id="no-json"),
        pytest.param("[]", ["run", "--", "true"], "no JSON object", id="no-object"),
        pytest.param(
            json.dumps({"version": VERSION + 1}),
            ["run", "--", "true"],
            f"understands versions up to {VERSION}",
            id="of-a-later-version",
        ),
        pytest.param(
            json.dumps({"version": VERSION, "what": 1}),
            ["run", "--", "true"],
            "has no field 'what'",
            id="an-unknown-field",
        ),
    ],
)
def test_an_order_that_is_not_understood_is_refused(program, python, text, arguments, why):
    with agent(python, program, Order(), *arguments, **{ORDER_VARIABLE: text}) as process:
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert why in err
    assert "usage: agent hold" in err
    assert "Traceback" not in err


def test_last_words_are_never_too_long_to_be_read(tmp_path, program, python):
    log = tmp_path / "termination-log"
    command = "ü" * 1500
    with agent(python, program, Order(termination_log=str(log)), "run", "--", command) as process:
        assert process.wait(PATIENCE) == 126
    assert log.stat().st_size <= 2000
    words = json.loads(log.read_text())["airflow-training"]
    assert words["reason"] == "StartError"
    assert words["message"].startswith("ü" * 100)


def test_run_ends_what_hangs_and_says_where_it_stood(tmp_path, program, python):
    progress = tmp_path / "progress"
    script = f"""
import json, time
def here_it_waits():
    time.sleep(600)
with open({str(progress)!r}, "a") as file:
    for step in range(12):
        file.write(json.dumps({{"step": step, "time": step / 100}}) + "\\n")
here_it_waits()
"""
    order = Order(
        progress_file=str(progress),
        stall={"stallSeconds": 0.5},
        termination_log=str(tmp_path / "log"),
    )
    command = [sys.executable, "-X", "faulthandler", "-c", script]
    with agent(python, program, order, "run", "--", *command) as process:
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode != 0
    assert last_words(tmp_path)["reason"] == "Hang"
    assert "after step 11" in last_words(tmp_path)["message"]
    assert "here_it_waits" in err


def test_a_folder_that_cannot_be_committed_keeps_the_command_from_starting(tmp_path, program):
    told = {
        "root": "nowhere://a/b", "group": "job", "incarnation": "0.0.0", "order": 0, "keep": 3,
        "keep_every": None, "resume": {"kind": "latest", "not_after": None}, "initial": None,
        "environment": "",
    }  # fmt: skip
    order = Order(watch=str(tmp_path / "out"), termination_log=str(tmp_path / "log"))
    command = ["touch", tmp_path / "started"]
    env = {"TRAINING_CHECKPOINT": json.dumps(told)}
    with agent(sys.executable, program, order, "run", "--", *command, **env) as process:
        assert process.wait(PATIENCE) == 1
    assert last_words(tmp_path)["reason"] == "CheckpointRefused"
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("at", ["while-it-runs", "before-it-starts"])
def test_a_command_that_was_ordered_to_stop_has_not_succeeded(tmp_path, program, python, at):
    """Nobody may follow: then the pod ends, and what ended well was still stopped."""
    ready, orders = tmp_path / "ready", tmp_path / "order"
    script = f"trap 'exit 0' TERM; echo > {ready}; while :; do sleep 0.05; done"
    before = socket.create_server(("", 0))
    order = Order(
        orders_file=str(orders),
        in_place_seconds=0.2,
        ports={"first": before.getsockname()[1]} if at == "before-it-starts" else {},
    )
    with before, agent(python, program, order, "run", "--", "sh", "-c", script) as process:
        if at == "while-it-runs":
            wait_until(ready.exists)
        stop = {"turn": 0, "do": "stop", "grace_seconds": 30, "dump_stacks": False}
        orders.write_text(json.dumps(stop))
        assert process.wait(PATIENCE) == 143
    assert ready.exists() == (at == "while-it-runs")


def test_a_command_finds_what_is_given_to_it_while_it_runs(tmp_path, program, python):
    plan, said = tmp_path / "plan" / "plan.json", tmp_path / "said"
    script = (
        f"cat {plan} >> {said}; until grep -q new {plan}; do sleep 0.05; done; cat {plan} >> {said}"
    )

    def give(text: str) -> None:
        fresh = tmp_path / "orders" / ".files"
        fresh.write_text(json.dumps({str(plan): text}))
        fresh.replace(tmp_path / "orders" / FILES)

    (tmp_path / "orders").mkdir()
    give("old\n")
    order = Order(orders_file=str(tmp_path / "orders" / "order"))
    with agent(python, program, order, "run", "--", "sh", "-c", script) as process:
        wait_until(lambda: said.exists() and said.read_text() == "old\n")
        give("new\n")
        assert process.wait(PATIENCE) == 0
    assert said.read_text() == "old\nnew\n"


def test_an_agent_ends_its_command_at_a_deadline_of_its_own_in_a_pod_too(program, python):
    order = Order(deadline_seconds=0.3, grace_seconds=1)
    with agent(python, program, order, "run", "--", "sleep", "600") as process:
        assert process.wait(PATIENCE) == 143
