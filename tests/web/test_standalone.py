"""The pages without Airflow: for who has the token, and for nobody else."""

from __future__ import annotations

import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.routing import Mount

from airflow_training.web.standalone import standalone_app
from tests.waiting import PATIENCE
from tests.web.conftest import a_run

TOKEN = "the token of this test"


@pytest.fixture
def app(airflow_home: Path) -> FastAPI:
    return standalone_app(TOKEN)


@pytest.fixture
def client(app: FastAPI) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of libraries that the client imports
        from fastapi.testclient import TestClient
    return TestClient(app, base_url="http://127.0.0.1:8080", follow_redirects=False)


def test_the_token_becomes_a_cookie_and_leaves_the_address(client):
    answer = client.get("/runs/abc", params={"token": TOKEN})
    assert (answer.status_code, answer.headers["location"]) == (303, "/runs/abc")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert client.get("/training/api/me").json()["standalone"] is True
    page = client.get("/runs/abc")
    assert page.status_code == 200
    assert '<base href="/">' in page.text
    assert '<div id="root">' in page.text
    assert "default-src 'self'" in page.headers["content-security-policy"]


def test_an_address_of_nothing_gives_a_page(client):
    for path in ("/foo", "/runs", "/runs/abc/def", "/favicon.ico"):
        assert client.get(path).status_code == 401
        page = client.get(path, headers={"Cookie": f"training_token_8080={TOKEN}"})
        assert page.status_code == 404
        assert '<html lang="en">' in page.text
        assert '<div id="root">' in page.text
        assert "default-src 'self'" in page.headers["content-security-policy"]
    assert client.get("/foo", params={"token": TOKEN}).status_code == 401, "leads nowhere else"


def test_nothing_is_reached_without_the_token(app, client):
    run = a_run()
    mounted: Any
    [mounted] = [route.app for route in app.routes if isinstance(route, Mount)]
    names = {
        "dag": "digits",
        "uid": run.uid,
        "run_id": "first",
        "name": "x.js",
        "version": "1",
        "tuning": "ab",
    }
    other = {"other_dag": "digits", "other": run.uid}
    paths = [
        f"/training{route.path.format(**names, **other)}"
        for route in mounted.routes
        if isinstance(route, APIRoute) and "/static/" not in route.path
    ]
    assert len(paths) > 8
    for path in ["/", "/usage", f"/runs/{run.uid}", "/foo", *paths]:
        for query in ("", "?token=", "?token=wrong", "?token=ä"):
            assert client.get(path + query).status_code in (401, 405), path
            wrong = {"Authorization": "Bearer wrong", "Cookie": "training_token_8080=wrong"}
            assert client.get(path + query, headers=wrong).status_code in (401, 405), path


def test_the_token_works_as_a_bearers_too(client):
    run = a_run()
    mine = {"Authorization": f"Bearer {TOKEN}"}
    assert client.get(f"/training/api/dags/digits/trainings/{run.uid}", headers=mine).is_success


def test_another_name_of_this_machine_is_not_answered(client):
    mine = {"Authorization": f"Bearer {TOKEN}", "Host": "evil.example"}
    assert client.get("/training/api/me", headers=mine).status_code == 400


@pytest.mark.e2e
def test_the_command_serves_at_the_address_that_it_prints(airflow_home: Path):
    command = [sys.executable, "-m", "airflow_training.cli", "ui", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as serving:
        assert serving.stdout is not None
        address = serving.stdout.readline().decode().strip()
        assert address.startswith("http://127.0.0.1:")
        with httpx.Client(follow_redirects=True, timeout=PATIENCE) as browser:
            page = browser.get(address)
            assert page.status_code == 200
            assert "token" not in str(page.url)
            assert browser.get(page.url.join("/training/api/me")).json()["standalone"] is True
            assert httpx.get(page.url).status_code == 401
        taken = subprocess.run(
            [*command, "--port", str(page.url.port)],
            check=False,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert taken.returncode == 2
        assert "cannot be used" in taken.stderr
        serving.send_signal(signal.SIGINT)
        _, said = serving.communicate(timeout=PATIENCE)
    assert b"Traceback" not in said


@pytest.mark.e2e
def test_a_run_serves_its_own_page_while_it_runs(airflow_home: Path, tmp_path: Path):
    (tmp_path / "job.yaml").write_text(
        "{apiVersion: airflow-training/v1, kind: TrainingJob, metadata: {name: paged}, spec:"
        " {framework: custom, command: [sh, -c, 'until [ -e end ]; do sleep 0.1; done'],"
        " roles: [{name: worker}]}}"
    )
    command = [sys.executable, "-m", "airflow_training.cli", "run", "job.yaml", "--ui"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        address = next(line for line in running.stderr if "its page: " in line).split()[-1]
        with httpx.Client(follow_redirects=True, timeout=PATIENCE) as browser:
            page = browser.get(address)
            uid = page.url.path.rpartition("/")[2]
            found = browser.get(page.url.join(f"/training/api/dags/~/trainings/{uid}")).json()
        assert found["summary"]["job"] == "paged"
        (tmp_path / "end").touch()
        running.stderr.read()
    assert running.returncode == 0


@pytest.mark.e2e
def test_airflow_is_not_imported():
    program = (
        "import sys; from airflow_training.web.standalone import standalone_app;"
        "standalone_app('x'); from airflow_training.cli.ui import ui;"
        "print(sorted(name for name in sys.modules if name.split('.')[0] == 'airflow'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    assert done.stdout.strip() == "[]"


def test_a_draft_whose_run_is_gone_can_still_be_checked_and_says_so(client):
    client.get("/", params={"token": TOKEN})
    document = (
        "apiVersion: airflow-training/v1\nkind: TrainingJob\nmetadata: {name: left}\n"
        "spec: {framework: custom, command: [python, train.py], roles: [{name: worker}]}\n"
    )
    body = {"document": document, "origin": {"dag": "~", "uid": "nolongerthere"}}
    told = client.post("/training/api/check", json=body).json()
    assert told["mistakes"] == []
    [warning] = [each for each in told["warnings"] if "gone" in each["message"]]
    assert "the run nolongerthere that this came from is gone" in warning["message"]
    assert str(Path.cwd()) in warning["message"]
    for path in ("presets/saved?name=left&version=1&by=me", "networks/left/1"):
        gone = client.get(f"/training/api/{path}")
        assert gone.status_code == 404
        assert "no" in gone.json()["detail"]
