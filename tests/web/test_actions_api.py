"""Buttons: whoever presses them how often, one thing happens, to the run as it was seen."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from airflow_training.state.store import RunRecord, open_store
from tests.state.samples import START, a_ledger
from tests.waiting import PATIENCE
from tests.web.conftest import a_run


def press(
    client: Any,
    run: RunRecord,
    action: str = "pause",
    *,
    key: str = "k",
    user: str = "op",
    seen: str = "0.0",
    headers: Any = None,
    **body: Any,
) -> Any:
    return client.post(
        f"/api/dags/digits/trainings/{run.uid}/actions",
        headers={"user": user, "Idempotency-Key": key, **(headers or {})},
        json={"action": action, "seen": seen, **body},
    )


def asked(run: RunRecord) -> list[tuple[str, str]]:
    return [(each.kind, each.by) for each in open_store().requests(run.uid)]


def test_a_button_is_recorded_with_who_pressed_it(client):
    run = a_run()
    answer = press(client, run, "stop", reason="enough")
    assert (answer.status_code, answer.json()) == (202, {"request": 1, "action": "stop"})
    assert asked(run) == [("stop", "op")]
    [told] = open_store().events(run.uid)
    assert (told.event.reason, told.event.message) == ("ActionRequested", "stop by op: enough")
    found = client.get(f"/api/dags/digits/trainings/{run.uid}").json()
    assert found["summary"]["phrase"] == "received the stop command"
    assert found["actions"] == ["kill"]


def test_what_is_being_stopped_can_be_killed_once(client):
    run = a_run()
    assert press(client, run, "stop").status_code == 202
    assert press(client, run, "kill", key="b", seen="0.1").status_code == 202
    assert press(client, run, "kill", key="b", seen="0.1").status_code == 202
    assert press(client, run, "kill", key="c", seen="0.2").status_code == 409
    assert asked(run) == [("stop", "op"), ("kill", "op")]


def test_a_double_click_is_one_action(client):
    run = a_run()
    answers = [press(client, run, key="k").json() for _ in range(3)]
    assert answers == [{"request": 1, "action": "pause"}] * 3
    assert asked(run) == [("pause", "op")]


def test_a_retry_of_what_ended_everything_is_the_same_answer(client):
    run = a_run()
    assert press(client, run, "stop").status_code == 202
    assert press(client, run, "stop").status_code == 202
    assert asked(run) == [("stop", "op")]


def test_the_second_of_two_users_is_told_what_is(client):
    run = a_run()
    assert press(client, run, "pause", key="a", user="admin").status_code == 202
    answer = press(client, run, "stop", key="b")
    assert answer.status_code == 409
    assert answer.json()["seen"] == "0.1"
    assert "running" in answer.json()["detail"]
    assert press(client, run, "stop", key="b", seen=answer.json()["seen"]).status_code == 202
    assert asked(run) == [("pause", "admin"), ("stop", "op")]


def test_of_many_at_once_one_is_heard(client):
    run = a_run()
    codes: list[int] = []
    together = threading.Barrier(8)

    def click(number: int) -> None:
        together.wait()
        codes.append(press(client, run, key=f"key-{number // 2}").status_code)

    threads = [threading.Thread(target=click, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes) == [202, 202] + [409] * 6
    assert len(asked(run)) == 1


def test_a_role_is_scaled(client):
    run = a_run()
    assert press(client, run, "scale", role="worker", replicas=5).status_code == 202
    [request] = open_store().requests(run.uid)
    assert (request.kind, request.role, request.replicas) == ("scale", "worker", 5)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"action": "explode"}, 422),
        ({"action": "scale"}, 422),
        ({"action": "scale", "role": "chief", "replicas": 2}, 422),
        ({"action": "scale", "role": "worker", "replicas": 0}, 422),
        ({"action": "scale", "role": "worker", "replicas": 10**7}, 422),
        ({"reason": "x" * 2000}, 422),
        ({"seen": "yesterday"}, 409),
        ({"action": "resume"}, 409),
    ],
)
def test_what_makes_no_sense_does_nothing(client, body, code):
    run = a_run()
    assert press(client, run, **{"action": "pause", **body}).status_code == code
    assert asked(run) == []


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": ""}, 415),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 202),
        ({"Sec-Fetch-Site": "none"}, 202),
        ({"Content-Type": "application/json; charset=utf-8"}, 202),
        ({"Idempotency-Key": ""}, 422),
        ({"Idempotency-Key": "k" * 129}, 422),
    ],
)
def test_only_our_own_pages_press_buttons(client, headers, code):
    run = a_run()
    assert press(client, run, headers=headers).status_code == code
    assert len(asked(run)) == (code == 202)


def test_a_key_means_one_action(client):
    run = a_run()
    assert press(client, run, "pause").status_code == 202
    assert press(client, run, "stop", seen="0.1").status_code == 422
    assert asked(run) == [("pause", "op")]


def test_with_act_on_own_only_who_submitted_acts(client, monkeypatch):
    monkeypatch.setenv("AIRFLOW__TRAINING__ACT_ON", "own")
    mine, theirs = a_run("mine", submitted_by="op"), a_run("theirs", submitted_by="ann")
    assert press(client, mine).status_code == 202
    assert press(client, theirs).status_code == 403
    assert press(client, theirs, user="admin").status_code == 403
    assert asked(theirs) == []


def test_a_run_that_is_over_takes_no_actions(client):
    run = a_run(ledger=a_ledger(state="Succeeded", drained=True, finished_at=START))
    answer = press(client, run, "stop")
    assert (answer.status_code, answer.json()["actions"]) == (409, [])


SERVER = """
import socket, sys, uvicorn
from airflow_training.web.standalone import standalone_app
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen(128)
print(listener.getsockname()[1], flush=True)
uvicorn.Server(uvicorn.Config(standalone_app("token"), log_level="error")).run(sockets=[listener])
"""


class Server:
    """`airflow-training ui` as a process that can be killed."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        port = int(self.process.stdout.readline())
        self.client = httpx.Client(
            base_url=f"http://127.0.0.1:{port}/training",
            headers={"Authorization": "Bearer token"},
            timeout=PATIENCE,
        )

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.client.close()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.mark.e2e
def test_a_server_that_is_killed_while_it_answers_acts_once(airflow_home: Path):
    run = a_run()
    dice = random.Random(7)
    trials = 4
    for trial in range(trials):
        seen = f"0.{trial}"
        server = Server()
        server.client.get("/api/me").raise_for_status()
        answers: list[int] = []

        def click(server: Server = server, seen: str = seen, answers: Any = answers) -> None:
            try:
                answers.append(press(server.client, run, key=seen, seen=seen).status_code)
            except httpx.HTTPError:
                answers.append(0)

        clicking = threading.Thread(target=click)
        clicking.start()
        clicking.join(dice.random() * 0.05)
        server.kill()
        clicking.join()
        server = Server()
        try:
            assert press(server.client, run, key=seen, seen=seen).status_code == 202, answers
        finally:
            server.kill()
        assert len(asked(run)) == trial + 1
    assert len(open_store().events(run.uid)) == trials
