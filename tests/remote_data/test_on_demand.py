"""Data on demand in real processes: readers, the fetcher beside them, and the machine that shares."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from airflow_training.agent.fetched_data import data_failure
from airflow_training.checkpoints.reading import history
from airflow_training.remote_data import (
    http_address,
    instance_environment,
    mailbox_address,
    share,
    start_fetcher,
    start_mailbox,
    start_server,
)
from airflow_training.remote_data.errors import DataError, SourceChanged, SourceGone, UnfetchedRead
from airflow_training.remote_data.guard import Guard, probe_guard
from airflow_training.remote_data.known_digests import KnownDigests
from tests.waiting import wait_until

TIMES = Guard(leases=False, modes=False, times=True)
MODES = Guard(leases=False, modes=True, times=False)


class Laptop:
    """A folder of files, and what serves it."""

    def __init__(self, folder: Path):
        dice = random.Random(16)
        self.data = folder / "laptop"
        self.data.mkdir()
        for number in range(50):
            (self.data / f"{number:03}.bin").write_bytes(dice.randbytes(1000 + number))
        (self.data / "big.bin").write_bytes(dice.randbytes(10 << 20))
        self.shared = share([self.data])
        self.server = start_server(self.shared)

    @property
    def address(self):
        return http_address(self.server.url, self.server.token)

    def sleep(self):
        self.server.close()

    def wake_up(self):
        port = int(self.server.url.rpartition(":")[2])
        self.server = start_server(self.shared, port=port, token=self.server.token)


@pytest.fixture
def laptop(tmp_path):
    made = Laptop(tmp_path)
    yield made
    made.server.close()


@pytest.fixture
def node(tmp_path, laptop):
    """Starts fetchers, and ends them."""
    started = []

    def start(name="node", **more):
        settings = {
            "places": {"data0": tmp_path / name / "data"},
            "state": tmp_path / name / "state",
            "source": laptop.address,
            "cache": str(tmp_path / "cache"),
            **more,
        }
        started.append(start_fetcher(laptop.shared.manifest, **settings))
        return started[-1]

    yield start
    for each in started:
        with contextlib.suppress(DataError):  # what a test is about was told before
            each.finish()


def environment(fetcher, **more):
    told = instance_environment(fetcher, python_path=str(Path(__file__).parents[2]))
    return {**os.environ, **told, **more}


def start_reading(fetcher, script: str, *, cwd=None, **more):
    folder = cwd or Path(fetcher.paths[0]).parent
    return subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=folder,
        env=environment(fetcher, **more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def read(fetcher, script: str, **more):
    process = start_reading(fetcher, script, **more)
    out, err = process.communicate(timeout=100)
    return process.returncode, out, err


def digests(folder: Path) -> dict[str, str]:
    listed = subprocess.run(
        "sha256sum *", shell=True, cwd=folder, capture_output=True, text=True, check=True
    ).stdout
    return {line.split()[1]: line.split()[0] for line in listed.splitlines()}


needs_leases = pytest.mark.skipif(
    not probe_guard(Path("/tmp"), files=1).leases, reason="no leases on this file system"
)


def test_nothing_is_fetched_before_something_is_read(node, laptop):
    fetcher = node()
    code, out, _ = read(
        fetcher,
        "import os, glob\nprint(len(glob.glob('data/*.bin')), sum(e.stat().st_size for e in os.scandir('data')))",
    )
    true = sum(each.stat().st_size for each in laptop.data.iterdir())
    assert (code, out) == (0, f"51 {true}\n")
    assert fetcher.counts()["source_bytes"] == 0


def test_what_is_touched_is_what_is_fetched(node):
    fetcher = node()
    names = ["031", "004", "017", "022"]
    _, out, err = read(
        fetcher, f"for n in {names}: print(len(open(f'data/{{n}}.bin', 'rb').read()))"
    )
    assert err == ""
    touched = sum(int(line) for line in out.splitlines())
    assert fetcher.counts()["source_bytes"] == fetcher.counts()["bytes"] == touched


EIGHTY = """
import hashlib, json, multiprocessing, os, threading
def work(results):
    found = []
    def one(name): found.append((name, hashlib.sha256(open("data/" + name, "rb").read()).hexdigest()))
    threads = [threading.Thread(target=one, args=(n,)) for n in ["big.bin"] * 5 + sorted(os.listdir("data"))[:5]]
    for t in threads: t.start()
    for t in threads: t.join()
    results.put(found)
if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    processes = [context.Process(target=work, args=(results,)) for _ in range(8)]
    for p in processes: p.start()
    print(json.dumps([each for p in processes for each in results.get()]))
"""


@pytest.mark.parametrize("guard", [None, TIMES], ids=["best", "times"])
def test_eighty_first_reads_at_once_are_all_right_and_each_chunk_comes_once(node, laptop, guard):
    fetcher = node(guard=guard)
    _, out, err = read(fetcher, EIGHTY)
    assert err == ""
    true = digests(laptop.data)
    found = json.loads(out)
    assert len(found) == 80
    assert [name for name, digest in found if true[name] != digest] == []
    counts = fetcher.counts()
    assert counts["source_bytes"] == counts["bytes"]
    assert counts["source_chunks"] == 3 + counts["files"] - 1


@needs_leases
def test_programs_that_know_nothing_of_it_get_the_same_bytes(node, laptop):
    fetcher = node()
    processes = [
        subprocess.Popen(["sha256sum", "big.bin"], cwd=fetcher.paths[0], stdout=subprocess.PIPE)
        for _ in range(8)
    ]
    true = digests(laptop.data)
    for each in processes:
        assert each.communicate()[0].split()[0].decode() == true["big.bin"]
    assert digests(Path(fetcher.paths[0])) == true
    assert fetcher.counts()["source_bytes"] == fetcher.counts()["bytes"]
    fetcher.finish()


LOADER = """
import sys, hashlib
from pathlib import Path
from torch.utils.data import DataLoader, Dataset
class Files(Dataset):
    def __init__(self): self.paths = sorted(Path("data").glob("0*.bin"))
    def __len__(self): return len(self.paths)
    def __getitem__(self, i): return self.paths[i].read_bytes()
def first(batch): return batch[0]
if __name__ == "__main__":
    data = DataLoader(Files(), num_workers=2, multiprocessing_context=sys.argv[1], collate_fn=first)
    for epoch in range(2):
        whole = hashlib.sha256(b"".join(data)).hexdigest()
        print(whole)
"""


@pytest.mark.parametrize(
    ("kind", "guard"), [("fork", None), ("fork", TIMES), ("spawn", TIMES), ("forkserver", None)]
)
def test_workers_of_a_data_loader_wait_for_their_data(node, laptop, kind, guard):
    import hashlib

    fetcher = node(guard=guard)
    folder = Path(fetcher.paths[0]).parent
    (folder / "train.py").write_text(LOADER)
    done = subprocess.run(
        [sys.executable, "train.py", kind],
        cwd=folder,
        env=environment(fetcher),
        capture_output=True,
        text=True,
        check=False,
    )
    content = b"".join(each.read_bytes() for each in sorted(laptop.data.glob("0*.bin")))
    true = hashlib.sha256(content).hexdigest()
    assert done.stdout.split() == [true, true], done.stderr
    fetcher.finish()


ONE = "print(len(open('data/007.bin', 'rb').read()))"


def test_a_laptop_asleep_is_waited_for_and_says_so_in_the_progress(node, laptop, tmp_path):
    fetcher = node()
    laptop.sleep()
    progress = tmp_path / "progress.jsonl"
    reader = start_reading(fetcher, ONE, TRAINING_PROGRESS_FILE=str(progress))
    wait_until(lambda: progress.exists() and progress.read_text().count("\n") >= 2)
    assert "waiting for data" in fetcher.ask({"counts": True})["waiting_for"]
    assert reader.poll() is None
    laptop.wake_up()
    assert reader.communicate(timeout=100) == ("1007\n", "")
    line = json.loads(progress.read_text().splitlines()[-1])
    assert line["waiting_for_data"].endswith("/data/007.bin")


TRAINING = """
import os, sys, time
from airflow_training.checkpoints.saver import Saver
saver = Saver(root="kept", every={"seconds": 3600})
saver.restore()
away = os.environ["TRAINING_DATA_SOCKET"] + ".away"
for step in range(50):
    with open(f"data/{step:03}.bin", "rb") as file: file.read()
    if step == 2:
        print("trains", flush=True)
        sys.stdin.readline()
    while step == 3 and not os.path.exists(away): time.sleep(0.01)
    saver.boundary(step + 1, lambda: {"step": step})
saver.close(None)
"""


def test_before_a_training_waits_for_a_laptop_that_has_gone_it_saves_a_checkpoint(
    node, laptop, tmp_path
):
    fetcher = node()
    process = subprocess.Popen(
        [sys.executable, "-c", TRAINING],
        cwd=tmp_path / "node",
        env=environment(fetcher),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "trains\n"
    for number in range(3, 6):
        wait_until(partial(_has_come, tmp_path / f"node/data/{number:03}.bin"))
    laptop.sleep()
    process.stdin.write("\n")
    process.stdin.flush()
    kept = tmp_path / "node/kept"
    wait_until(lambda: kept.exists() and history(str(kept)), "a checkpoint")
    assert [each.step for each in history(str(kept))] == [4]
    assert process.poll() is None, "it waits for what the laptop has"
    laptop.wake_up()
    assert process.communicate(timeout=100)[0] == ""
    assert process.returncode == 0
    mark = Path(f"{fetcher.socket}.away")
    assert mark.exists()
    fetcher.finish()
    assert not mark.exists()


def _has_come(path: Path) -> bool:
    return path.stat().st_atime_ns != 0


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_laptop_that_goes_and_comes_fifty_times_fails_nothing(node, laptop):
    fetcher = node()
    for number in (7 * step % 50 for step in range(50)):  # so that none is fetched beforehand
        laptop.sleep()
        reader = start_reading(fetcher, f"print(len(open('data/{number:03}.bin', 'rb').read()))")
        wait_until(lambda: fetcher.ask({"counts": True})["waiting_for"])
        laptop.wake_up()
        assert reader.communicate(timeout=100) == (f"{1000 + number}\n", "")
    fetcher.finish()


def test_ranks_that_wait_for_one_that_waits_say_so_too(node, laptop, tmp_path):
    fetcher = node()
    other, own = tmp_path / "other.jsonl", tmp_path / "own.jsonl"
    read(fetcher, "open('data/001.bin').close()", TRAINING_PROGRESS_FILE=str(other))
    laptop.sleep()
    reader = start_reading(fetcher, ONE, TRAINING_PROGRESS_FILE=str(own))
    wait_until(lambda: other.exists() and "waiting_for_data" in other.read_text())
    laptop.wake_up()
    assert reader.communicate(timeout=100) == ("1007\n", "")


def test_a_laptop_gone_for_long_fails_the_open_by_its_reason(node, laptop):
    fetcher = node(patience_seconds=0.5)
    laptop.sleep()
    code, _, err = read(fetcher, ONE)
    assert code == 1
    assert "DataSourceGone" in err
    assert "007.bin" in err
    with pytest.raises(SourceGone):
        fetcher.finish()
    laptop.wake_up()


def test_a_source_that_changed_fails_the_open_by_its_name(node, laptop):
    fetcher = node()
    (laptop.data / "007.bin").write_bytes(b"other")
    code, out, err = read(fetcher, ONE)
    assert (code, out) == (1, "")
    assert "DataSourceChanged" in err
    assert "007.bin" in err
    with pytest.raises(SourceChanged, match=r"007\.bin"):
        fetcher.finish()


@needs_leases
def test_a_program_that_cannot_be_told_to_wait_gets_no_byte_that_was_not_sent(node, laptop):
    fetcher = node(break_seconds=1.0)
    laptop.sleep()
    done = subprocess.run(
        ["cat", "007.bin"], cwd=fetcher.paths[0], capture_output=True, check=False
    )
    assert done.stdout == b""
    assert isinstance(fetcher.failure(), UnfetchedRead)
    laptop.wake_up()
    with pytest.raises(UnfetchedRead, match=r"007\.bin"):
        fetcher.finish()


def test_a_read_that_nothing_holds_back_fails_the_run_by_its_name(node):
    fetcher = node(guard=TIMES)
    subprocess.run(["cat", "007.bin"], cwd=fetcher.paths[0], capture_output=True, check=True)
    wait_until(fetcher.failure)
    with pytest.raises(UnfetchedRead, match=r"007\.bin"):
        fetcher.finish()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_nobody_can_read_a_file_whose_modes_keep_readers_away(node, tmp_path):
    fetcher = node(guard=MODES)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.owner() == "root" and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o555)
    place = Path(fetcher.paths[0])

    def cat():
        return subprocess.run(
            ["cat", "007.bin"], user=65534, group=65534, cwd=place, capture_output=True, check=False
        )

    assert (cat().returncode, cat().stdout) == (1, b"")
    assert read(fetcher, ONE)[1] == "1007\n"
    assert len(cat().stdout) == 1007


def test_a_fetcher_that_was_killed_is_waited_for(node):
    fetcher = node()
    read(fetcher, "open('data/001.bin').close()")
    os.kill(fetcher.pid, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{fetcher.pid}/cmdline").read_bytes())
    reader = start_reading(fetcher, ONE)
    again = node()
    assert reader.communicate(timeout=100) == ("1007\n", "")
    assert again.counts()["files"] == 1, "what it had fetched is still there"
    again.finish()


def test_a_run_whose_fetcher_was_killed_and_never_came_back_has_failed(node):
    fetcher = node()
    os.kill(fetcher.pid, signal.SIGKILL)
    with pytest.raises(DataError, match="ended before the training did"):
        fetcher.finish()


def test_what_the_training_puts_in_the_place_of_data_stays_when_the_fetcher_starts_again(node):
    fetcher = node()
    data = Path(fetcher.paths[0])
    data.joinpath("new").write_bytes(b"n" * 1007)
    data.joinpath("new").rename(data / "007.bin")
    data.joinpath("008.bin").unlink()
    os.kill(fetcher.pid, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{fetcher.pid}/cmdline").read_bytes())
    again = node()
    assert read(again, "print(open('data/007.bin').read(1), end='')") == (0, "n", "")
    again.expect([str(data / "007.bin"), str(data / "008.bin"), str(data / "009.bin")])
    wait_until(lambda: again.counts()["files"])
    assert data.joinpath("007.bin").read_bytes() == b"n" * 1007
    again.finish()


def test_who_watches_a_command_hears_what_it_read_too_early(node):
    fetcher = node(guard=TIMES)
    told = {"TRAINING_DATA_SOCKET": fetcher.socket}
    assert data_failure(told) is None
    assert data_failure({}) is None
    subprocess.run(["cat", "007.bin"], cwd=fetcher.paths[0], capture_output=True, check=True)
    reason, message = data_failure(told) or ("", "")
    assert (reason, "007.bin" in message) == ("UnfetchedDataRead", True)
    assert data_failure({"TRAINING_DATA_SOCKET": "/nowhere"}, patience_seconds=0.1) is None


def test_what_did_not_come_is_tried_again_at_the_next_start(node, laptop):
    fetcher = node(patience_seconds=0.5)
    laptop.sleep()
    assert read(fetcher, ONE)[0] == 1
    with pytest.raises(SourceGone):
        fetcher.finish()
    laptop.wake_up()
    again = node()
    assert (Path(again.paths[0]) / "007.bin").stat().st_size == 1007
    assert read(again, ONE)[1] == "1007\n"
    again.finish()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_names_that_are_no_text(laptop, tmp_path, node):
    (laptop.data / os.fsdecode(b"caf\xe9.bin")).write_bytes(b"1234")
    laptop.sleep()
    laptop.shared = share([laptop.data])
    laptop.wake_up()
    fetcher = node()
    script = "print(len(open(b'data/caf\\xe9.bin', 'rb').read()))"
    assert read(fetcher, script)[1] == "4\n"
    fetcher.finish()


def test_two_starts_on_a_node_share_one_process(node):
    first, second = node(), node()
    assert second.pid is None
    read(second, ONE)
    assert first.counts() == second.counts()
    assert first.counts()["files"] == 1


def test_everything_can_be_there_before_the_start(node, laptop):
    fetcher = node(whole=True)
    laptop.sleep()
    assert digests(Path(fetcher.paths[0])) == digests(laptop.data)
    laptop.wake_up()


def test_a_file_alone_lies_among_what_is_the_runs_own(laptop, tmp_path):
    shared = share([laptop.data / "007.bin"])
    server = start_server(shared)
    place = tmp_path / "project"
    place.mkdir()
    (place / "own.bin").write_bytes(b"own")
    fetcher = start_fetcher(
        shared.manifest,
        places={"data0": place},
        state=tmp_path / "state",
        source=http_address(server.url, server.token),
        cache=str(tmp_path / "cache"),
    )
    assert fetcher.paths == [str(place / "007.bin")]
    script = "print([len(open(n, 'rb').read()) for n in ('project/own.bin', 'project/007.bin')])"
    assert read(fetcher, script, cwd=tmp_path)[1] == "[3, 1007]\n"
    assert fetcher.finish()["files"] == 1
    server.close()


def test_where_nothing_would_tell_of_an_early_read_everything_is_there_before_the_start(
    node, laptop
):
    fetcher = node(guard=Guard(leases=False, modes=False, times=False))
    assert digests(Path(fetcher.paths[0])) == digests(laptop.data)


def test_nodes_that_nobody_can_reach_share_what_one_of_them_asked_for(node, laptop, tmp_path):
    storage = str(tmp_path / "storage")
    mailbox = start_mailbox(laptop.shared, storage)
    try:
        more = {"source": mailbox_address(storage), "cache": storage}
        for name in ("one", "two"):
            fetcher = node(name, **more)
            assert read(fetcher, ONE)[1] == "1007\n"
            assert fetcher.counts()["source_bytes"] == 0, "all comes by way of the storage"
        assert mailbox.sent_bytes == 1007
    finally:
        mailbox.close()


def test_a_later_run_takes_nothing_from_the_laptop(node, laptop, tmp_path, monkeypatch):
    known = tmp_path / "known"
    monkeypatch.setattr(
        "time.time_ns", lambda: (laptop.data / "007.bin").stat().st_ctime_ns + 10**10
    )
    laptop.sleep()
    laptop.shared = share([laptop.data], known=KnownDigests(known))
    laptop.wake_up()
    assert read(node("one"), ONE)[1] == "1007\n"
    laptop.sleep()
    laptop.shared = share([laptop.data], known=KnownDigests(known))
    later = node("two")
    assert read(later, ONE)[1] == "1007\n"
    assert later.counts()["source_bytes"] == 0
    laptop.wake_up()
