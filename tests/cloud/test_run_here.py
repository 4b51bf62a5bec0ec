"""`cloud run` against this machine, with real processes: logs, exit code, model, kills."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import httpx
import pytest

import airflow_training
from airflow_training import __version__
from airflow_training.accounts.operations import add_key
from airflow_training.cli.cloud import login
from airflow_training.cloud.targets import cloud_folder
from airflow_training.state.account_records import Account, AccountLimit
from airflow_training.state.store import open_store
from tests.cloud.terminal import Terminal
from tests.waiting import PATIENCE, wait_until

SCRIPT = """
import os, pathlib, sys
from pkg import width
rank = os.environ["TRAINING_RANK"]
print("rank", rank, "of", os.environ["TRAINING_WORLD_SIZE"], "width", width, sys.argv, flush=True)
if rank == "0":
    pathlib.Path("out").mkdir(exist_ok=True)
    pathlib.Path("out/model.pt").write_bytes(b"weights")
    pathlib.Path("notes.txt").write_text("not a model")
if "--fail" in sys.argv:
    sys.exit(3)
"""


@pytest.fixture
def here(tmp_path: Path, airflow_home: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    (folder / "pkg.py").write_text("width = 3\n")
    return folder


def typed(*words: str, cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "airflow_training.cli", "cloud", *words],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def done(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, said = process.communicate(timeout=PATIENCE)
    return process.returncode, out, said


def test_two_replicas_run_and_the_model_lies_where_the_script_saves_it(here):
    code, out, said = done(
        typed("run", "--replicas", "2", "--all", "train.py", "--lr", "0.1", cwd=here)
    )
    assert code == 0, said
    lines = sorted(out.splitlines())
    assert lines == [
        f"[{rank}] rank {rank} of 2 width 3 ['train.py', '--lr', '0.1']" for rank in (0, 1)
    ]
    assert (here / "out/model.pt").read_bytes() == b"weights"
    assert "model: out/model.pt (7 bytes)" in said
    assert not (here / "notes.txt").exists()
    [record] = open_store().runs()
    assert (record.state, record.job) == ("Succeeded", "train")
    story = {each.event.reason: each.event for each in open_store().events(record.uid)}
    assert story["Submitted"].data["command"]["args"] == ["--lr", "0.1"]
    assert {"EnvironmentReady", "JobSucceeded"} <= story.keys()


def test_the_process_ends_as_the_run_ended(here):
    code, out, said = done(typed("run", "train.py", "--fail", cwd=here))
    assert code == 3, said
    assert out.startswith("rank 0 of 1")
    assert "next: airflow-training status" in said


def test_a_run_that_was_left_is_followed_later(here):
    code, out, said = done(typed("run", "--detach", "train.py", cwd=here))
    assert code == 0, said
    run = out.strip()
    code, out, said = done(typed("logs", run, cwd=here))
    assert (code, out.startswith("rank 0")) == (0, True), said
    assert (here / "out/model.pt").exists()


def test_what_the_script_is_set_to_is_recorded_with_the_run(here):
    (here / "train.py").write_text(
        "import argparse\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--lr', type=float)\nparser.add_argument('--epochs', default=3)\n"
        "print(parser.parse_args().lr)\n"
    )
    code, out, said = done(typed("run", "train.py", "--lr", "0.25", cwd=here))
    assert (code, out) == (0, "0.25\n"), said
    [record] = open_store().runs()
    [told] = open_store().environments.software(record.uid).values()
    assert told["parameters"] == {"argparse": {"lr": 0.25, "epochs": 3}}


def test_the_line_in_a_script_sends_it_away(here):
    (here / "line.py").write_text(
        "import os\nfrom airflow_training import cloud\ncloud.run(mode='cloud')\n"
        "print('there', 'TRAINING_ROLE' in os.environ)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.run(
        [sys.executable, "line.py"],
        cwd=here,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (process.returncode, process.stdout) == (0, "there True\n"), process.stderr


def test_a_service_that_is_killed_is_started_again_and_the_run_goes_on(here):
    (here / "train.py").write_text(
        "import pathlib, time\nprint('begun', flush=True)\n"
        "while not pathlib.Path('/proc/self/cwd/go').exists():\n    time.sleep(0.1)\n"
        "pathlib.Path('model.pt').write_bytes(b'weights')\n"
    )
    process = typed("run", "train.py", cwd=here)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    [service] = [
        int(each)
        for each in children
        if b"airflow_training.cloud.service\0" in Path(f"/proc/{each}/cmdline").read_bytes()
    ]
    os.kill(service, signal.SIGTERM)
    [record] = open_store().runs()
    folder = cloud_folder() / "service" / "runs" / record.key.run_id / "project"
    (folder / "go").touch()
    code, _, said = done(process)
    assert code == 0, said
    assert (here / "model.pt").read_bytes() == b"weights"


def test_an_interrupt_without_a_terminal_stops_the_run(here):
    (here / "train.py").write_text("import time\nprint('begun', flush=True)\ntime.sleep(600)\n")
    process = typed("run", "train.py", cwd=here)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    code, _, said = done(process)
    assert code != 0
    assert "stopping" in said
    [record] = open_store().runs()
    assert record.state == "Stopped"


@pytest.mark.parametrize(
    ("answer", "state", "code"),
    [
        pytest.param(b"d\n", "Succeeded", 0, id="detach"),
        pytest.param(b"s\n", "Stopped", 1, id="stop"),
        pytest.param(None, "Stopped", 1, id="a-second-interrupt-stops"),
    ],
)
def test_an_interrupt_asks_whoever_sits_at_the_terminal(here, answer, state, code):
    (here / "train.py").write_text(
        "import pathlib, time\nprint('begun', flush=True)\n"
        f"while not pathlib.Path({str(here / 'end')!r}).exists():\n    time.sleep(0.1)\n"
    )
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "airflow_training.cli", "cloud", "run", "train.py"],
        cwd=here, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    shown = Terminal(ours)
    try:
        shown.until(b"begun")
        process.send_signal(signal.SIGINT)
        shown.until(b"[c]ontinue?")
        if answer is None:
            process.send_signal(signal.SIGINT)
        else:
            os.write(ours, answer)
        shown.rest()
        assert process.wait(PATIENCE) == code, shown.text
    finally:
        (here / "end").touch()
        os.close(ours)
    [record] = open_store().runs()
    wait_until(lambda: open_store().ledger(record.uid).job.state == state)


def test_a_condition_ends_a_run_and_its_model_comes_back(here):
    (here / "train.py").write_text(
        "import json, os, pathlib, time\n"
        "pathlib.Path('model.pt').write_text('early')\n"
        "for step in range(1, 10_000):\n"
        "    line = {'step': step, 'metrics': {'loss': 1 / step}, 'time': time.time()}\n"
        "    with open(os.environ['TRAINING_PROGRESS_FILE'], 'a') as file:\n"
        "        file.write(json.dumps(line) + chr(10))\n"
        "    time.sleep(0.2)\n"
    )
    until = "loss < 0.3 and step >= 5"
    code, _, said = done(typed("run", "--replicas", "2", "--until", until, "train.py", cwd=here))
    assert code == 0, said
    assert "stop.until holds: loss 0." in said
    assert (here / "model.pt").read_text() == "early"
    [record] = open_store().runs()
    assert record.state == "Succeeded"
    assert open_store().ledger(record.uid).job.reason == "StopConditionMet"


EARLY = """
import os, pathlib, time
for number in range(3):
    with open("model.pt", "wb") as file:
        for _ in range(4):
            file.write(b"%d" % number * 1000)
            file.flush()
            time.sleep(0.1)
    pathlib.Path("log.txt").write_text("no model")
    print("saved", number, flush=True)
    while not os.path.exists(os.path.join(os.environ["GO"], str(number))):
        time.sleep(0.05)
"""


def test_models_come_back_while_it_trains_and_nothing_that_was_changed_here_is_lost(here, tmp_path):
    (here / "train.py").write_text(EARLY)
    go = tmp_path / "go"
    go.mkdir()
    words = ["run", "--returns", "checkpoints", "--env", f"GO={go}", "train.py"]
    process = typed(*words, cwd=here)
    model = here / "model.pt"

    def lives() -> bool:
        return process.poll() is None

    wait_until(lambda: model.exists() and model.read_bytes() == b"0" * 4000, alive=lives)
    (go / "0").touch()
    wait_until(lambda: model.read_bytes() == b"1" * 4000, alive=lives)
    model.write_text("mine")
    (go / "1").touch()
    [record] = open_store().runs()
    beside = here / f"model.pt.cloud-{record.key.run_id}"
    wait_until(lambda: beside.exists() and beside.read_bytes() == b"2" * 4000, alive=lives)
    (go / "2").touch()
    code, out, said = done(process)
    assert (code, out) == (0, "saved 0\nsaved 1\nsaved 2\n"), said
    assert model.read_text() == "mine"
    assert said.count("was changed while the run went on") == 1
    assert not (here / "log.txt").exists()
    assert not list(here.glob(".*.part"))


def test_a_condition_that_is_none_is_refused_before_anything_runs(here):
    code, _, said = done(typed("run", "--until", "loss", "train.py", cwd=here))
    assert code == 2
    assert "spec.stop.until: 'loss' is no comparison" in said
    assert open_store().runs() == []


KILLED = """
import os, signal, sys
from pathlib import Path
import httpx
from airflow_training.cloud.client import connect
from airflow_training.cloud.options import RunOptions
from airflow_training.cloud.submit import prepare, submit
from airflow_training.cloud.targets import find_target

point, count = int(sys.argv[1]), 0
plain = httpx.Client.request

def here():
    global count
    count += 1
    if count - 1 == point:
        os.kill(os.getpid(), signal.SIGKILL)

def halfway(pieces):
    data = b"".join(pieces)
    yield data[: len(data) * 2 // 3]
    here()
    yield data[len(data) * 2 // 3 :]

def request(self, method, path, **options):
    here()
    if path.endswith("/pack"):
        options["content"] = halfway(options["content"])
    answer = plain(self, method, path, **options)
    here()
    return answer

httpx.Client.request = request
with connect(find_target("here")) as client:
    submission = prepare(["train.py"], RunOptions(resources={}), cwd=Path.cwd())
    print(submit(client, submission, target="here").run_id)
"""


def killed_at(point: int, here: Path) -> None:
    """Kill the client at a point and submit again: there is one run, and it succeeds."""
    (here.parent / "killed.py").write_text(KILLED)
    words = [sys.executable, str(here.parent / "killed.py"), str(point)]
    process = subprocess.run(words, cwd=here, capture_output=True, timeout=PATIENCE, check=False)
    assert process.returncode == -signal.SIGKILL, process.stderr
    assert len(open_store().runs()) <= 1
    code, _, said = done(typed("run", "train.py", cwd=here))
    assert code == 0, said
    [record] = open_store().runs()
    assert record.state == "Succeeded"


@pytest.mark.parametrize("point", [0, 5, 10, 11])
def test_a_client_that_was_killed_and_tries_again_has_one_run(here, point):
    killed_at(point, here)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", range(12))
def test_a_client_that_was_killed_at_any_point_has_one_run(here, point):
    killed_at(point, here)


def test_a_service_elsewhere_is_a_target(here, monkeypatch, capsys):
    process = typed("serve", "--port", "0", "--token", "secret", cwd=here)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        wait_until(lambda: _answers(url), alive=lambda: process.poll() is None)
        code, _, said = done(typed("login", "office", url, "--key", "wrong", cwd=here))
        assert (code, "no such key" in said) == (2, True), said
        with monkeypatch.context() as older:
            older.setattr(airflow_training, "__version__", "0.0.1")
            login("office", url, key="secret")
        said = capsys.readouterr().err
        assert f"office has airflow-training {__version__}, and here is 0.0.1" in said
        assert f"next: pip install '{url}/training/client/airflow_training-" in said
        code, _, said = done(typed("login", "office", url, "--key", "secret", cwd=here))
        assert (code, "here is" in said) == (0, False), said
        code, out, said = done(typed("run", "train.py", cwd=here))
        assert (code, out.startswith("rank 0")) == (0, True), said
        assert " on office: " in said
        assert (here / "out/model.pt").exists()
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)


def test_a_service_that_keeps_accounts_reserves_and_bills(here):
    store = open_store()
    store.accounts.save(Account(name="ada"))
    store.accounts.set_limit(
        AccountLimit(account="ada", kind="instance_hours", period="total", amount=Decimal(10))
    )
    key, _ = add_key(store, "ada")
    process = typed("serve", "--port", "0", cwd=here)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        wait_until(lambda: _answers(url), alive=lambda: process.poll() is None)
        assert done(typed("login", "office", url, "--key", key, cwd=here))[0] == 0
        code, _, said = done(typed("run", "train.py", cwd=here))
        assert (code, "24 asked, 10 free" in said) == (2, True), said
        code, _, said = done(typed("run", "--hours", "4", "--bill", "train.py", cwd=here))
        assert code == 0, said
        assert "bill: 0" in said
        assert "charged to ada" in said
        assert "estimate: 0 EUR for 4 h of 4 instance-hours" in said
        [record] = store.runs()
        code, out, said = done(typed("bill", record.key.run_id, "-o", "json", cwd=here))
        bill = json.loads(out)
        assert (bill["account"], bill["final"]) == ("ada", True), said
        used = sum(each.seconds for each in store.usage.of_run(record.uid))
        assert abs(float(bill["instance_seconds"]) - used) < 1
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/training/cloud/v1/").is_success
    except httpx.TransportError:
        return False
