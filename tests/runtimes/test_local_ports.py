"""Ports are reserved for the whole machine: two runs never get the same, voided ones come back."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from airflow_training.agent.files import write_json
from airflow_training.control.attempts import AttemptId
from airflow_training.documents.resolved import RunRef
from airflow_training.errors import RuntimeUnavailable
from airflow_training.runtimes.folders.paths import RunFolder, locked
from airflow_training.runtimes.local.ports import PortBook, listening_ports
from airflow_training.runtimes.local.runtime import LocalRuntime
from tests.builders import job, role
from tests.waiting import PATIENCE


@pytest.fixture
def book(tmp_path: Path) -> PortBook:
    return PortBook(tmp_path / "book")


def run_folder(tmp_path: Path, name: str) -> Path:
    folder = RunFolder(tmp_path, name)
    folder.make()
    return folder.path


def write_down(owner: Path, ports: list[int]) -> None:
    write_json(owner / "ports.json", {"0.0": {"w": [{str(p): p} for p in ports]}})


def test_ports_lie_below_those_the_kernel_hands_out(book: PortBook, tmp_path: Path) -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = book.reserve(run_folder(tmp_path, "a"), count=50, start=12345)
    assert len(set(ports)) == 50
    assert all(20000 <= port < first for port in ports)


def test_two_runs_get_different_ports(book: PortBook, tmp_path: Path) -> None:
    one, two = run_folder(tmp_path, "a"), run_folder(tmp_path, "b")
    first = book.reserve(one, count=5, start=7)
    write_down(one, first)
    assert not set(first) & set(book.reserve(two, count=5, start=7))


def test_a_port_somebody_listens_on_is_passed_over(book: PortBook, tmp_path: Path) -> None:
    owner = run_folder(tmp_path, "a")
    free = book.reserve(owner, count=1, start=99)[0]
    book.release(owner, [free])
    with socket.create_server(("127.0.0.1", free)):
        assert free in listening_ports()
        assert not book.take(owner, free)
    assert book.take(owner, free)


def test_what_is_ours_stays_ours(book: PortBook, tmp_path: Path) -> None:
    owner, other = run_folder(tmp_path, "a"), run_folder(tmp_path, "b")
    port = book.reserve(owner, count=1, start=5)[0]
    write_down(owner, [port])
    assert book.take(owner, port)
    assert not book.take(other, port)
    book.release(other, [port])
    assert not book.take(other, port)


@pytest.mark.parametrize("why", ["removed", "deleted", "never-written-down", "replaced"])
def test_a_void_reservation_can_be_taken_over(book: PortBook, tmp_path: Path, why: str) -> None:
    owner, other = run_folder(tmp_path, "a"), run_folder(tmp_path, "b")
    port = book.reserve(owner, count=1, start=5)[0]
    if why == "removed":
        write_down(owner, [port])
        write_json(owner / "tombstone.json", {"generation": 0})
    elif why == "deleted":
        owner = owner.rename(tmp_path / "elsewhere")
    elif why == "replaced":
        write_down(owner, [port + 1])
    assert book.take(other, port)


def test_a_run_that_is_just_being_prepared_keeps_its_ports(book: PortBook, tmp_path: Path) -> None:
    owner, other = run_folder(tmp_path, "a"), run_folder(tmp_path, "b")
    with locked(RunFolder(tmp_path, "a").prepare_lock):
        port = book.reserve(owner, count=1, start=5)[0]
        assert not book.take(other, port)
    assert book.take(other, port)


def test_a_port_in_use_is_kept_though_the_note_of_it_was_lost(
    book: PortBook, tmp_path: Path
) -> None:
    owner, other = run_folder(tmp_path, "a"), run_folder(tmp_path, "b")
    port = book.reserve(owner, count=1, start=5)[0]
    write_down(owner, [port])
    (tmp_path / "book" / str(port)).unlink()
    with socket.create_server(("127.0.0.1", port)):
        book.keep(owner, port)
    assert not book.take(other, port)
    book.keep(other, port)
    assert book.take(owner, port)


async def test_a_run_holds_the_ports_of_its_last_two_job_attempts(tmp_path: Path) -> None:
    book = tmp_path / "book"
    runtime = LocalRuntime(local_dir=tmp_path / "runs", ports=PortBook(book))
    run = RunRef(uid="u", job="digits", namespace="default", controller="here", generation=1)
    worker = job(role("worker", 2, ports={"main": 1, "other": 2}))

    async def prepared(job_attempt: int) -> set[int]:
        (team,) = (await runtime.prepare(run, worker, attempt=AttemptId(0, job_attempt))).values()
        return {port for each in team for port in each.ports.values()}

    def held() -> set[int]:
        return {int(each.name) for each in book.iterdir() if each.name.isdigit()}

    ports = [await prepared(number) for number in range(4)]
    assert held() == ports[2] | ports[3]
    for port in ports[3]:
        (book / str(port)).unlink()
    assert await prepared(3) == ports[3]
    assert held() == ports[2] | ports[3], "they may be in use"


def test_too_many_ports_are_refused_and_none_is_kept(
    book: PortBook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_training.runtimes.local.ports._first_ephemeral", lambda: 20010)
    with pytest.raises(RuntimeUnavailable, match="11 free ports"):
        book.reserve(run_folder(tmp_path, "a"), count=11, start=0)
    assert book.reserve(run_folder(tmp_path, "b"), count=3, start=0)


@pytest.mark.e2e
def test_many_processes_at_once_never_share_a_port(tmp_path: Path) -> None:
    script = """
        import sys
        from pathlib import Path
        from airflow_training.agent.files import write_json
        from airflow_training.runtimes.folders.paths import RunFolder, locked
        from airflow_training.runtimes.local.ports import PortBook
        folder = RunFolder(Path(sys.argv[1]), sys.argv[2])
        folder.make()
        with locked(folder.prepare_lock):
            ports = PortBook(Path(sys.argv[1]) / "book").reserve(folder.path, count=40, start=0)
            write_json(folder.ports, {"0.0": {"w": [{str(p): p} for p in ports]}})
        print(*ports)
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)]
    running = [
        subprocess.Popen([*command, f"run{i}"], stdout=subprocess.PIPE, text=True) for i in range(4)
    ]
    answers = [process.communicate(timeout=PATIENCE)[0].split() for process in running]
    taken = [port for answer in answers for port in answer]
    assert len(taken) == len(set(taken)) == 160


@pytest.mark.parametrize("squat", ["folder", "link", "file"])
def test_nobody_else_can_take_the_place_of_the_book(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, squat: str
) -> None:
    shared, own = tmp_path / "shared", tmp_path / "own"
    if squat == "folder":
        shared.mkdir()
        somebody = os.getuid() + 1
        monkeypatch.setattr(os, "getuid", lambda: somebody)
    elif squat == "link":
        shared.symlink_to(run_folder(tmp_path, "theirs"))
    else:
        shared.touch()
    owner, other = run_folder(tmp_path, "a"), run_folder(tmp_path, "b")
    port = PortBook(own, shared=shared).reserve(owner, count=1, start=5)[0]
    write_down(owner, [port])
    assert not shared.is_dir() or not (shared / str(port)).exists()
    shared.rename(tmp_path / "gone")
    assert not PortBook(own, shared=shared).take(other, port), "another book than before"


def test_only_we_may_look_into_the_book(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    book = PortBook(tmp_path / "own", shared=shared)
    port = book.reserve(run_folder(tmp_path, "a"), count=1, start=5)[0]
    assert (shared / str(port)).exists()
    assert stat.S_IMODE(shared.stat().st_mode) == 0o700
