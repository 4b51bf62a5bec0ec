"""`cloud run` against a real Airflow, which a proxy serves below a path: users, rights, kills, bills."""

from __future__ import annotations

import json
import os
import pty
import secrets
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import httpx
import pytest

from airflow_training.accounts.operations import add_key
from airflow_training.cloud.client import CloudClient
from airflow_training.cloud.options import RunOptions
from airflow_training.cloud.packing import plan_packs
from airflow_training.cloud.protocol import PREFIX, SubmissionRequest, key_of
from airflow_training.cloud.submit import Submission, prepare
from airflow_training.compiler.submission import SUBMISSION_KEY
from airflow_training.errors import InputError, TrainingError
from airflow_training.state.account_records import Account, AccountLimit
from tests.airflow.conftest import run_airflow
from tests.airflow.jobs import shell
from tests.airflow.stack import PASSWORD, Airflow
from tests.cloud.terminal import Terminal
from tests.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

DAG = "training_job"
SCRIPT = """
import os, pathlib, sys, time
from pkg import width
print("rank", os.environ["TRAINING_RANK"], "width", width, sys.argv[1:], flush=True)
if "--until" in sys.argv:
    while not pathlib.Path(sys.argv[2]).exists():
        time.sleep(0.1)
pathlib.Path("out").mkdir(exist_ok=True)
pathlib.Path("out/model.pt").write_bytes(b"weights")
sys.exit(3 if "--fail" in sys.argv else 0)
"""


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Airflow]:
    """One of its own: its store keeps accounts at the end."""
    home = tmp_path_factory.mktemp("cloud")
    with run_airflow(home, path="/airflow") as running:
        running.stack.wait_dag(running.client, DAG)
        yield running


@pytest.fixture
def no_scheduler(airflow: Airflow) -> Iterator[None]:
    """Nothing that is queued begins, until the test starts it; it is there again at the end."""
    airflow.crash("scheduler", restart=False)
    yield
    if "scheduler" not in airflow.stack.processes:
        airflow.stack.start("scheduler")


@pytest.fixture
def project(tmp_path: Path, airflow_home: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "pkg").mkdir(parents=True)
    (folder / "train.py").write_text(SCRIPT)
    (folder / "pkg" / "__init__.py").write_text("width = 3\n")
    return folder


@pytest.fixture
def client_of(airflow: Airflow) -> Iterator[Callable[[str], CloudClient]]:
    """Return what makes the client of a key."""
    with ExitStack() as stack:
        yield lambda key: stack.enter_context(CloudClient.at(airflow.stack.url, key))


def begun(*words: str, cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "airflow_training.cli", "cloud", *words],
        cwd=cwd,
        env={**os.environ, "AIRFLOW_PASSWORD": PASSWORD},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def typed(*words: str, cwd: Path) -> tuple[int, str, str]:
    process = begun(*words, cwd=cwd)
    out, said = process.communicate(timeout=2 * PATIENCE)
    assert "Traceback" not in said
    return process.returncode, out, said


def log_in(airflow: Airflow, project: Path, user: str = "admin") -> None:
    code, _, said = typed("login", user, airflow.stack.url, "--username", user, cwd=project)
    assert code == 0, said


def captured(project: Path, *args: str) -> Submission:
    return prepare(["train.py", *args], RunOptions(resources={}), cwd=project)


def let_in(client: CloudClient, submission: Submission) -> tuple[str, SubmissionRequest]:
    """Submit and send all of it; return the submission's id, and what it was asked by."""
    key = key_of(submission.content, secrets.token_hex(8))
    request = replace(submission.request, key=key)
    sizes = {
        sha256: len(source) if isinstance(source, bytes) else source.stat().st_size
        for sha256, source in submission.sources.items()
    }
    while (answer := client.submit(request)).missing:
        for pack in plan_packs(answer.missing, sizes):
            client.send(answer.id, pack, submission.sources)
    return answer.id, request


def dag_runs(airflow: Airflow) -> Sequence[tuple[str, str]]:
    """Return id and user of each run of the generic DAG, the oldest first."""
    with closing(sqlite3.connect(airflow.stack.home / "airflow.db", timeout=PATIENCE)) as database:
        question = "select run_id, triggering_user_name from dag_run where dag_id = ? order by id"
        return database.execute(question, (DAG,)).fetchall()


def test_an_unchanged_script_runs_in_airflow_and_its_model_comes_back(airflow, project):
    log_in(airflow, project)
    code, out, said = typed("run", "train.py", "--lr", "0.1", cwd=project)
    assert (code, out) == (0, "rank 0 width 3 ['--lr', '0.1']\n"), said
    assert (project / "out/model.pt").read_bytes() == b"weights"
    assert "model: out/model.pt (7 bytes)" in said
    [(run, user)] = dag_runs(airflow)
    assert (user, airflow.wait_run(DAG, run)) == ("admin", "success")
    uid = airflow.uid(DAG, run)
    record = airflow.store.run(uid)
    assert record is not None
    assert (record.submitted_by, record.state, record.job) == ("admin", "Succeeded", "train")
    story = {each.event.reason: each.event for each in airflow.store.events(uid)}
    assert story["Submitted"].data["command"]["args"] == ["--lr", "0.1"]
    assert "EnvironmentReady" in story
    logged = airflow.client.get("/eventLogs", params={"event": "trigger_dag_run", "run_id": run})
    assert [each["owner"] for each in logged.json()["event_logs"]] == ["admin"]

    code, out, said = typed("bill", run, "-o", "json", cwd=project)
    used = sum(each.seconds for each in airflow.store.usage.of_run(uid))
    [row] = json.loads(out)["rows"]
    assert (code, abs(float(row["instance_seconds"]) - used) < 1) == (0, True), said

    # the same again costs next to nothing, is another run, and ends as the program ends
    code, out, said = typed("run", "train.py", "--fail", cwd=project)
    assert code == 3, said
    assert "ended as Failed" in said
    code, out, said = typed("list", "-o", "json", cwd=project)
    rows = {each["run_id"]: each["exit_code"] for each in json.loads(out)["runs"]}
    assert sorted(rows.values()) == [0, 3]


def test_a_login_asks_for_user_and_password(airflow, project):
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "airflow_training.cli", "cloud", "login", "office", airflow.stack.url],
        cwd=project, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    shown = Terminal(ours)
    try:
        shown.until(b"user of that Airflow")
        os.write(ours, b"admin\n")
        shown.until(b"password: ")  # the space comes once what is typed is not dropped any more
        os.write(ours, f"{PASSWORD}\n".encode())
        shown.rest()
        assert process.wait(PATIENCE) == 0, shown.text
    finally:
        os.close(ours)
    assert PASSWORD.encode() not in shown.text
    code, out, said = typed("targets", cwd=project)
    assert (code, airflow.stack.url in out) == (0, True), said


def test_what_only_the_worker_can_refuse_is_told_where_it_was_sent_from(airflow, project):
    log_in(airflow, project)
    code, out, said = typed("run", "--resources", "cpu=100000", "train.py", cwd=project)
    assert (code, out) == (1, ""), said
    assert "100000" in said
    assert "airflow-training cloud logs --all" in said


def test_an_interrupt_leaves_the_run_or_stops_it(airflow, project, tmp_path):
    log_in(airflow, project)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "airflow_training.cli", "cloud", "run", "train.py", "--until", str(tmp_path / "end")],
        cwd=project, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    shown = Terminal(ours)
    try:
        shown.until(b"rank 0")
        process.send_signal(signal.SIGINT)
        shown.until(b"[c]ontinue?")
        os.write(ours, b"d\n")
        shown.rest()
        assert process.wait(PATIENCE) == 0, shown.text
    finally:
        os.close(ours)
    run = dag_runs(airflow)[-1][0]
    assert airflow.run_state(DAG, run) == "running"
    code, _, said = typed("stop", run, cwd=project)
    assert code == 0, said
    code, out, said = typed("logs", run, cwd=project)
    assert (code, "ended as Stopped" in said) == (1, True), said
    assert out.startswith("rank 0 width 3")
    airflow.wait_run(DAG, run)
    assert airflow.alive("train") == []


def test_a_submission_that_an_api_server_was_killed_in_is_one_run(
    airflow, client_of, project, no_scheduler
):
    """Tasks that start while no API server answers fail, so none does."""
    client = client_of(airflow.token_of("admin"))
    submission = captured(project)
    before = dag_runs(airflow)
    known, request = let_in(client, submission)
    answered: list[str] = []

    def start() -> None:
        try:
            answered.append(client.start(known))
        except TrainingError:
            answered.append("")

    asking = threading.Thread(target=start)
    asking.start()
    wait_until(lambda: len(dag_runs(airflow)) > len(before), "Airflow has the run")
    airflow.crash("api-server")
    asking.join(PATIENCE)
    run = client.submit(request).run_id
    assert answered in ([""], [run])
    assert client.start(known) == client.start(known) == run
    assert [each for each, _ in dag_runs(airflow)] == [*(each for each, _ in before), run]
    airflow.stack.start("scheduler")
    assert airflow.wait_run(DAG, run) == "success"
    story = [each.event.reason for each in airflow.store.events(airflow.uid(DAG, run))]
    assert (story.count("Submitted"), story.count("JobStarted")) == (1, 1)


def test_a_run_that_is_stopped_before_it_begins_never_does(
    airflow, client_of, project, tmp_path, no_scheduler
):
    client = client_of(airflow.token_of("admin"))
    known, _ = let_in(client, captured(project, "--until", str(tmp_path / "never")))
    run = client.start(known)
    state = client.run(run)
    assert (state.state, state.over) == ("Pending", False)
    assert "queued in Airflow" in state.message
    assert not client.log(run, rank=0, attempt=-1, offset=0).end
    with pytest.raises(InputError, match="it has used nothing"):
        client.bill(run)
    client.stop(run)
    state = client.run(run)
    assert (state.state, state.exit_code) == ("Stopped", 1)
    airflow.stack.start("scheduler")
    assert airflow.wait_run(DAG, run) == "failed"
    assert airflow.store.run(airflow.uid(DAG, run)) is None
    assert "was stopped by admin" in airflow.text(DAG, run, "plan")


def test_a_submission_that_is_sent_again_makes_no_other_run_of_one_that_was_deleted(
    airflow, client_of, project
):
    client = client_of(airflow.token_of("admin"))
    known, _ = let_in(client, captured(project))
    run = client.start(known)
    assert airflow.wait_run(DAG, run) == "success"
    # as if the API server had been killed before it kept that the run began
    folder = airflow.stack.home / "training-cloud" / "airflow"
    kept = folder / "submissions" / known / "submission.json"
    kept.write_text(json.dumps({**json.loads(kept.read_text()), "started": False}))
    (folder / "runs" / f"{run}.json").unlink()
    before = dag_runs(airflow)
    assert (client.start(known), dag_runs(airflow)) == (run, before)
    assert airflow.client.delete(f"/dags/{DAG}/dagRuns/{run}").is_success
    assert client.start(known) == run
    assert run not in [each for each, _ in dag_runs(airflow)]
    assert client.run(run).state == "Succeeded"


def test_a_dag_run_that_says_that_somebody_else_has_sent_it_has_no_such_story(airflow):
    event = {"at": 1, "reason": "Submitted", "message": "train.py, by ada", "data": {"by": "ada"}}
    conf = {"job": json.dumps(shell("forged", "true")), SUBMISSION_KEY: [event]}
    made = airflow.client.post(
        f"/dags/{DAG}/dagRuns", json={"logical_date": None, "dag_run_id": "forged", "conf": conf}
    )
    assert made.is_success, made.text
    assert airflow.wait_run(DAG, "forged") == "success"
    story = [each.event.reason for each in airflow.store.events(airflow.uid(DAG, "forged"))]
    assert "JobSucceeded" in story
    assert "Submitted" not in story


def test_who_may_only_look_sends_and_ends_nothing(airflow, client_of, project):
    admin = client_of(airflow.token_of("admin"))
    known, _ = let_in(admin, captured(project))
    run = admin.start(known)
    log_in(airflow, project, "reader")
    before = len(dag_runs(airflow))
    code, _, said = typed("run", "--target", "reader", "train.py", cwd=project)
    assert code == 2
    assert f"does not let reader start runs of {DAG} (POST, RUN)" in said
    code, _, said = typed("stop", "--target", "reader", run, cwd=project)
    assert (code, f"change runs of {DAG} (PUT, RUN)" in said) == (2, True), said
    assert len(dag_runs(airflow)) == before
    code, out, said = typed("logs", "--target", "reader", run, cwd=project)
    assert (code, out) == (0, "rank 0 width 3 []\n"), said
    assert client_of(airflow.token_of("reader")).runs() == []
    address = f"{airflow.stack.url}{PREFIX}/submissions"
    document = dict(captured(project).request.to_json())
    headers = {"Authorization": f"Bearer {airflow.token_of('reader')}"}
    assert httpx.post(address, json=document, headers=headers).status_code == 403
    assert httpx.post(address, json=document).status_code == 401


EXPIRED = """
from airflow.api_fastapi.app import create_auth_manager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
user = SimpleAuthManagerUser(username="admin", role="admin")
print(create_auth_manager().generate_jwt(user, expiration_time_in_seconds=-3600))
"""


def test_a_login_that_has_expired_is_told(airflow, project):
    made = subprocess.run(
        [sys.executable, "-c", EXPIRED], env=airflow.stack.env, capture_output=True, text=True, check=True
    )  # fmt: skip
    token = made.stdout.split()[-1]
    code, _, said = typed("login", "old", airflow.stack.url, "--key", token, cwd=project)
    assert code == 2
    assert "Airflow's token of this login has expired" in said
    assert "log in again: airflow-training cloud login NAME URL" in said


def test_a_client_of_another_version_is_refused(airflow, project):
    document = {**captured(project).request.to_json(), "protocol": 2}
    headers = {"Authorization": f"Bearer {airflow.token_of('admin')}"}
    refused = httpx.post(
        f"{airflow.stack.url}{PREFIX}/submissions", json=document, headers=headers, timeout=PATIENCE
    )
    assert refused.status_code == 422
    assert "another version of the protocol" in refused.text
    offered = httpx.get(f"{airflow.stack.url}/training/client", timeout=PATIENCE).json()
    assert httpx.get(offered["url"], timeout=PATIENCE).content[:2] == b"PK"


def test_a_paused_dag_is_told_before_anything_moves(airflow, client_of, project):
    client = client_of(airflow.token_of("admin"))
    airflow.pause_dag(DAG)
    try:
        with pytest.raises(InputError, match=f"airflow dags unpause {DAG}"):
            let_in(client, captured(project))
    finally:
        airflow.pause_dag(DAG, paused=False)


def test_accounts_limit_airflows_users_and_their_keys_are_taken(airflow, client_of, project):
    """The last one: from here on this store keeps accounts."""
    store = airflow.store
    store.accounts.save(Account(name="ada"))
    key, _ = add_key(store, "ada")
    reading, _ = add_key(store, "ada", scope="read")
    with pytest.raises(InputError, match="accounts add admin"):
        let_in(client_of(airflow.token_of("admin")), captured(project))
    with pytest.raises(InputError, match="read"):
        let_in(client_of(reading), captured(project))
    client = client_of(key)
    known, _ = let_in(client, captured(project))
    run = client.start(known)
    assert dag_runs(airflow)[-1] == (run, "ada")
    assert airflow.wait_run(DAG, run) == "success"
    assert client_of(reading).bill(run)["account"] == "ada"
    store.accounts.set_limit(
        AccountLimit(account="ada", kind="instance_hours", period="total", amount=Decimal(1))
    )
    with pytest.raises(InputError, match="instance"):
        let_in(client, captured(project))
