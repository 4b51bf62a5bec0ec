"""Data that stays on the laptop is read by a run elsewhere: fetched when it is read, waited for, never wrong."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_training.cloud.service.run_data import DataPlace, RunData
from airflow_training.interception.protocol import RANGE_BYTES
from airflow_training.remote_data.chunks import RANGED_FROM_BYTES
from airflow_training.remote_data.errors import DataNotShared, SourceAway
from airflow_training.remote_data.manifest import DataManifest
from airflow_training.remote_data.server import HttpSource
from tests.cloud.elsewhere import Elsewhere, cloud, done, sharer_file, sharer_pid
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(
    900
)  # several whole runs, where more tests run than there are cores

TWO_RANKS = """
import csv, os, pathlib, sys
rank = int(os.environ["TRAINING_RANK"])
data = pathlib.Path("data")
names = sorted(each.name for each in (data / "small").iterdir())
with open(data / "table.csv") as file:
    rows = list(csv.reader(file))
for name in names[rank::2]:
    assert (data / "small" / name).read_bytes() == name.encode() * 100, name
print("rank", rank, len(names), len(rows), os.path.realpath(data), flush=True)
if rank == 0:
    pathlib.Path("model.pt").write_bytes(b"weights")
"""

IN_TURNS = """
import os, pathlib, time
turns = pathlib.Path(os.environ["TURNS"])
for name in ("a.bin", "c.bin", "e.bin"):
    while not (turns / name).exists():
        time.sleep(0.05)
    print(name, pathlib.Path("data", name).read_bytes()[:3].decode(), flush=True)
"""


AFTER_A_TURN = """
import pathlib, subprocess
shell = "touch $TURNS/begun; until [ -e $TURNS/c.bin ]; do sleep 0.1; done; cd data; cat c.*; touch $TURNS/read"
subprocess.run(["sh", "-c", shell], check=True)
pathlib.Path("model.pt").write_bytes(b"weights")
"""


@pytest.fixture
def laptop(tmp_path: Path, airflow_home: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "data" / "small").mkdir(parents=True)
    for number in range(200):
        name = f"{number:03d}.bin"
        (folder / "data" / "small" / name).write_bytes(name.encode() * 100)
    (folder / "data" / "table.csv").write_text("x,y\n" * 1000)
    (folder / "train.py").write_text(TWO_RANKS)
    return folder


@pytest.fixture
def turns(laptop: Path) -> Path:
    """A folder whose files say what the script may read by now."""
    shutil.rmtree(laptop / "data")
    (laptop / "data").mkdir()
    for name in "abcdef":
        (laptop / "data" / f"{name}.bin").write_bytes(name.encode() * 3)
    (laptop / "train.py").write_text(IN_TURNS)
    folder = laptop.parent / "turns"
    folder.mkdir()
    return folder


@pytest.fixture
def service(tmp_path: Path, airflow_home: Path, sqlite_template: Path) -> Iterator[Elsewhere]:
    home = tmp_path / "elsewhere"
    home.mkdir()
    shutil.copy(sqlite_template, home / "airflow_training.db")
    elsewhere = Elsewhere(home)
    url = elsewhere.start()
    code, _, said = done(cloud("login", "office", url, "--key", "secret", cwd=tmp_path))
    assert code == 0, said
    yield elsewhere
    for each in elsewhere.store.runs():
        elsewhere.store.add_request(each.uid, "kill")
    for lock in (airflow_home / "training-cloud" / "client" / "data").glob("*.lock"):
        with contextlib.suppress(ValueError, ProcessLookupError):
            os.kill(int(lock.read_text()), signal.SIGKILL)
    elsewhere.kill()


def sent(laptop: Path, turns: Path, *options: str) -> str:
    """The id of a run that reads a file of its data when `turns` has one of that name."""
    words = ["run", "--detach", "--env", f"TURNS={turns}", *options, "train.py"]
    code, out, said = done(cloud(*words, cwd=laptop))
    assert code == 0, said
    return out.strip()


def printed(run: str, laptop: Path) -> str:
    """What it prints until its end."""
    code, out, said = done(cloud("logs", run, cwd=laptop))
    assert code == 0, said
    return out


@pytest.mark.e2e
def test_two_ranks_read_what_stays_and_only_what_they_read_travels(laptop, service, airflow_home):
    code, out, said = done(cloud("run", "--replicas", "2", "--all", "train.py", cwd=laptop))
    assert code == 0, said
    lines = sorted(out.splitlines())
    [run] = [each.key.run_id for each in service.store.runs()]
    there = service.home / "training-cloud" / "served" / "runs" / run / "project" / "data"
    assert lines == [f"[{rank}] rank {rank} 200 1000 {there}" for rank in (0, 1)]
    assert "stays here, and office gets it when the run reads it: data/ (201 files" in said
    assert (laptop / "model.pt").read_bytes() == b"weights"
    size = sum(each.stat().st_size for each in (laptop / "data").rglob("*") if each.is_file())
    log = sharer_file(airflow_home, run, "log")
    wait_until(lambda: f"201 files were read, {size} bytes sent" in log.read_text())
    story = service.story(run)
    assert story["DataShared"].data == {"files": 201, "bytes": size}
    assert story["DataFetched"].data["files"] == 201
    came = [each for each in said.splitlines() if each.startswith("model:")]
    assert came == ["model: model.pt (7 bytes)"]

    (laptop / "model.pt").unlink()
    code, _, said = done(cloud("run", "--replicas", "2", "train.py", cwd=laptop))
    assert code == 0, said
    again = next(each.key.run_id for each in service.store.runs() if each.key.run_id != run)
    log = sharer_file(airflow_home, again, "log")
    wait_until(lambda: "201 files were read, 0 bytes sent" in log.read_text())


AT_RANDOM = """
import pathlib
with open("data/large.bin", "rb") as file:
    file.seek(20_000_000)
    print(file.read(3))
pathlib.Path("model.pt").write_bytes(b"weights")
"""


@pytest.mark.e2e
def test_of_a_large_file_only_what_is_read_travels(laptop, service, airflow_home):
    with (laptop / "data" / "large.bin").open("wb") as file:
        file.truncate(RANGED_FROM_BYTES)
        file.seek(20_000_000)
        file.write(b"abc")
    (laptop / "train.py").write_text(AT_RANDOM)
    code, out, said = done(cloud("run", "train.py", cwd=laptop))
    assert (code, out) == (0, "b'abc'\n"), said
    [run] = [each.key.run_id for each in service.store.runs()]
    log = sharer_file(airflow_home, run, "log")
    wait_until(lambda: f"1 files were read, {RANGE_BYTES} bytes sent" in log.read_text())


HIDDEN = """
mount -t tmpfs none {place} || exit 77
cp -r {project} {place}/project
mkdir {place}/outside
head -c 10000000 /dev/urandom > {place}/outside/large.bin
cd {place}/project
sha256sum < {place}/outside/large.bin
exec "$@"
"""


@pytest.mark.soak
def test_the_service_reads_no_file_of_the_laptop_by_itself(laptop, service, tmp_path):
    """The laptop's files lie in a file system that no process of the service can see."""
    place = tmp_path / "hidden"
    place.mkdir()
    (laptop / "train.py").write_text(
        "import hashlib, sys\n"
        f"print(open({str(laptop / 'train.py')!r}).readline().strip())\n"
        "print(hashlib.sha256(open(sys.argv[1], 'rb').read()).hexdigest(), sys.argv[1])\n"
    )
    script = tmp_path / "hide.sh"
    script.write_text(HIDDEN.format(place=place, project=laptop))
    before = ["unshare", "--map-root-user", "--mount", "sh", str(script)]
    large = f"{place}/outside/large.bin"
    process = cloud("run", "train.py", large, cwd=tmp_path, before=before)
    code, out, said = done(process)
    if (code in (1, 77) and "unshare" in said) or code == 77:
        pytest.skip("this machine lets nobody have a file system of their own")
    assert code == 0, said
    digest, _, found = out.splitlines()
    assert not Path(large).exists()
    assert found == f"{digest.split()[0]} ../data/0/large.bin"


@pytest.mark.soak
def test_a_killed_laptop_is_waited_for_and_shares_again(laptop, service, turns, airflow_home):
    (turns / "a.bin").touch()
    run = sent(laptop, turns)
    pid = sharer_pid(airflow_home, run)
    following = cloud("logs", run, cwd=laptop)
    assert following.stdout is not None
    assert following.stdout.readline() == "a.bin aaa\n"
    os.kill(pid, signal.SIGKILL)
    (turns / "c.bin").touch()
    waiting = wait_until(lambda: service.story(run).get("WaitingForData"))
    assert waiting.data["since"] <= waiting.at
    assert "airflow-training cloud share" in waiting.message
    sharing = cloud("share", run, cwd=laptop)
    assert following.stdout.readline() == "c.bin ccc\n"
    (turns / "e.bin").touch()
    code, out, said = done(following)
    assert (code, out) == (0, "e.bin eee\n"), said
    assert "WaitingForData: since " in said
    assert done(sharing)[0] == 0
    story = service.story(run)
    assert "DataAvailable" in story
    assert not [each for each in story if "Restart" in each]


@pytest.mark.soak
def test_a_killed_service_is_waited_for(laptop, service, turns, airflow_home):
    (turns / "a.bin").touch()
    run = sent(laptop, turns)
    wait_until(lambda: service.story(run).get("JobRunning"))
    service.kill()
    for name in ("c.bin", "e.bin"):
        (turns / name).touch()
    wait_until(lambda: service.story(run).get("WaitingForData"))
    service.start()
    assert printed(run, laptop) == "a.bin aaa\nc.bin ccc\ne.bin eee\n"
    assert service.state(run) == "Succeeded"


@pytest.mark.soak
def test_a_killed_fetcher_is_started_again(laptop, service, turns, airflow_home):
    (turns / "a.bin").touch()
    run = sent(laptop, turns)
    following = cloud("logs", run, cwd=laptop)
    assert following.stdout is not None
    assert following.stdout.readline() == "a.bin aaa\n"
    os.kill(int((service.data_state(run) / "host.lock").read_text()), signal.SIGKILL)
    for name in ("c.bin", "e.bin"):
        (turns / name).touch()
    code, out, said = done(following)
    assert (code, out) == (0, "c.bin ccc\ne.bin eee\n"), said


@pytest.mark.soak
def test_a_file_that_changes_fails_the_run_by_its_name(laptop, service, turns):
    (turns / "a.bin").touch()
    run = sent(laptop, turns)
    wait_until(lambda: service.story(run).get("JobRunning"))
    (laptop / "data" / "c.bin").write_bytes(b"others")
    (turns / "c.bin").touch()
    code, _, said = done(cloud("logs", run, cwd=laptop))
    assert code == 1
    assert "DataSourceChanged: " in said
    assert f"{laptop}/data/c.bin: it has changed since the run was submitted" in said
    assert service.story(run)["DataSourceChanged"].level == "error"


@pytest.mark.soak
def test_a_reader_of_nothing_fails_the_run_though_it_ends_with_0(laptop, service, turns):
    """A shell is told nothing: it finds the file empty."""
    (laptop / "train.py").write_text(AFTER_A_TURN)
    run = sent(laptop, turns)
    wait_until((turns / "begun").exists)
    (laptop / "data" / "c.bin").write_bytes(b"others")
    (turns / "c.bin").touch()
    code, _, said = done(cloud("logs", run, cwd=laptop))
    assert (code, service.state(run)) == (1, "Failed"), said
    assert "DataSourceChanged: " in said
    assert f"{laptop}/data/c.bin: it has changed" in said
    assert not (laptop / "model.pt").exists()


@pytest.mark.soak
def test_what_was_read_while_nobody_held_readers_back_fails_the_run(
    laptop, service, turns, airflow_home
):
    (laptop / "train.py").write_text(AFTER_A_TURN)
    run = sent(laptop, turns)
    wait_until((turns / "begun").exists)
    os.kill(sharer_pid(airflow_home, run), signal.SIGKILL)
    state = service.data_state(run)
    fetchers = _pids(f"{state}/fetcher/config.json")
    for each in (int((state / "host.lock").read_text()), *fetchers):
        os.kill(each, signal.SIGKILL)
    wait_until(lambda: not any(_runs(each) for each in fetchers))
    (turns / "c.bin").touch()
    wait_until((turns / "read").exists)
    code, _, said = done(cloud("logs", run, cwd=laptop))
    assert code == 1, said
    assert "UnfetchedDataRead: " in said
    assert not (laptop / "model.pt").exists()


@pytest.mark.soak
def test_a_fetcher_that_is_killed_while_the_laptop_is_away_is_started_again(
    laptop, service, turns, airflow_home
):
    (turns / "a.bin").touch()
    run = sent(laptop, turns)
    following = cloud("logs", run, cwd=laptop)
    assert following.stdout is not None
    assert following.stdout.readline() == "a.bin aaa\n"
    os.kill(sharer_pid(airflow_home, run), signal.SIGKILL)
    state = service.data_state(run)
    [fetcher] = _pids(f"{state}/fetcher/config.json")
    os.kill(fetcher, signal.SIGKILL)
    again = wait_until(lambda: [e for e in _pids(f"{state}/fetcher/config.json") if e != fetcher])
    assert len(again) == 1
    for name in ("c.bin", "e.bin"):
        (turns / name).touch()
    sharing = cloud("share", run, cwd=laptop)
    code, out, said = done(following)
    assert (code, out) == (0, "c.bin ccc\ne.bin eee\n"), said
    assert done(sharing)[0] == 0


@pytest.mark.soak
def test_a_laptop_that_stays_away_pauses_the_run(laptop, service, turns, airflow_home):
    run = sent(laptop, turns, "--data-wait", "0.001")
    os.kill(sharer_pid(airflow_home, run), signal.SIGKILL)
    for name in ("a.bin", "c.bin", "e.bin"):
        (turns / name).touch()
    wait_until(lambda: service.state(run) == "Paused")
    told = service.story(run)["Paused"].message
    assert "DataSourceGone: nobody has shared" in told
    assert "airflow-training cloud share RUN, and then airflow-training resume RUN" in told
    following = cloud("logs", run, cwd=laptop)  # shares again
    wait_until(lambda: service.story(run).get("DataAvailable"))
    service.store.add_request(service.uid(run), "resume")
    code, out, said = done(following)
    assert (code, out) == (0, "a.bin aaa\nc.bin ccc\ne.bin eee\n"), said


@pytest.mark.soak
def test_a_damaged_chunk_of_the_service_is_fetched_again(laptop, service, turns, airflow_home):
    for name in ("a.bin", "c.bin", "e.bin"):
        (turns / name).touch()
    first = sent(laptop, turns)
    assert printed(first, laptop) == "a.bin aaa\nc.bin ccc\ne.bin eee\n"
    chunks = [
        each
        for each in (service.home / "training-cloud" / "served" / "data").glob("*/chunks/*/*")
        if each.read_bytes() == b"ccc"
    ]
    assert len(chunks) == 1
    chunks[0].write_bytes(b"cxc")
    second = sent(laptop, turns)
    assert printed(second, laptop) == "a.bin aaa\nc.bin ccc\ne.bin eee\n"
    log = sharer_file(airflow_home, second, "log")
    wait_until(lambda: "3 bytes sent" in log.read_text())


@pytest.mark.soak
def test_what_changes_of_the_data_is_output_and_what_only_came_is_not(laptop, service, turns):
    (laptop / "train.py").write_text(
        "import pathlib\n"
        "pathlib.Path('data/b.bin').write_bytes(b'new')\n"
        "pathlib.Path('data/a.bin').read_bytes()\n"
    )
    code, _, said = done(cloud("run", "--returns", "model=data", "train.py", cwd=laptop))
    assert code == 0, said
    assert [each for each in said.splitlines() if each.startswith("model:")] == [
        "model: data/b.bin (3 bytes)"
    ]
    assert (laptop / "data/b.bin").read_bytes() == b"new"
    assert (laptop / "data/a.bin").read_bytes() == b"aaa"


@pytest.mark.soak
def test_a_dry_run_shows_what_may_be_read_and_what_never_is(laptop, service, tmp_path):
    (laptop / "data" / ".env").write_text("NAME=1")
    (laptop / ".trainingignore").write_text(".env\n")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "one.bin").write_bytes(b"1234")
    (outside / "out").symlink_to("/etc/hostname")
    process = cloud("run", "--dry-run", "-o", "json", "train.py", str(outside), cwd=laptop)
    code, out, said = done(process)
    assert code == 0, said
    found = json.loads(out)["data"]
    rows = {row["name"]: (row["files"], row["bytes"]) for row in found["roots"]}
    assert rows["data/0"] == (1, 4)
    assert rows["project"][0] == 201
    reasons = {Path(each["path"]).name: each["reason"] for each in found["omissions"]}
    assert reasons == {".env": "a file of environment variables", "out": "a link that leads out"}
    process = cloud("run", "--data", str(outside), "train.py", cwd=laptop)
    code, _, said = done(process)
    assert code == 2
    assert "no argument of the script names it" in said
    assert service.store.runs() == []


@pytest.mark.soak
def test_a_node_that_sees_nothing_of_the_service_fetches_with_the_token_of_its_run(
    laptop, service, turns
):
    run = sent(laptop, turns)
    known = json.loads((service.data_state(run) / "config.json").read_text())["manifest"]
    [root] = DataManifest.from_json(known).roots
    file = next(each for each in root.files if each.path == "data/b.bin")
    url = f"http://127.0.0.1:{service.port}/training/cloud/v1/runs/{run}/data"
    with pytest.raises(DataNotShared, match="wrong token"):
        HttpSource(url, "secret").digests(root, file)
    [index] = (service.home / "training-cloud" / "served" / "runs").glob("*.json")
    data = RunData(
        run_id=run,
        uid="",
        folder=index.with_suffix(""),
        state=service.data_state(run),
        place=DataPlace(storage=str(service.home)),
    )
    source = HttpSource(url, data.node_token)

    def fetched() -> bytes:
        try:
            return source.chunk(root, file, 0)
        except SourceAway:
            return b""

    assert wait_until(fetched) == b"bbb"
    assert source.digests(root, file) == [hashlib.sha256(b"bbb").hexdigest()]
    with pytest.raises(DataNotShared, match="not shown"):
        source.digests(root, replace(file, path="train.py"))


@pytest.mark.soak
def test_processes_of_a_run_are_gone_when_it_is_over(laptop, service, turns, airflow_home):
    for name in ("a.bin", "c.bin", "e.bin"):
        (turns / name).touch()
    run = sent(laptop, turns)
    printed(run, laptop)
    state = service.data_state(run)
    pids = [int((state / "host.lock").read_text()), sharer_pid(airflow_home, run)]
    wait_until(lambda: not any(_runs(each) for each in pids))
    words = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(state) not in words


def _runs(pid: int) -> bool:
    try:
        return "zombie" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def _pids(word: str) -> list[int]:
    """Processes that were started with a word."""
    return [
        int(each.parent.name)
        for each in Path("/proc").glob("[0-9]*/cmdline")
        if word.encode() in _words(each) and _runs(int(each.parent.name))
    ]


def _words(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().split(b"\0")
    except OSError:
        return []
