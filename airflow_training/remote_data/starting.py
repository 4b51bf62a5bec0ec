"""Data on demand on a node, for who starts a training there."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import socket as sockets
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from airflow_training.interception.protocol import hook_environment
from airflow_training.remote_data.errors import DataError, error_of
from airflow_training.remote_data.guard import Guard, probe_guard
from airflow_training.remote_data.manifest import DataManifest

__all__ = ["RunningFetcher", "instance_environment", "start_fetcher"]

_ENDS_SECONDS = 30.0
_PAUSE_SECONDS = 0.05


class RunningFetcher:
    """A fetcher of this node. Several starts for one state folder share one process."""

    def __init__(
        self,
        *,
        state: Path,
        address: str,
        paths: Sequence[str],
        guard: Guard,
        ranged_from: int = 0,
        process: subprocess.Popen[str] | None,
    ) -> None:
        """`process`: where this start is the one that runs it."""
        self.state = state
        self.socket = address
        self.paths = paths
        """Folders, and files of folders that are shared in part, whose content comes on demand."""
        self.guard = guard
        self.ranged_from = ranged_from
        """Bytes from which on a file is read in ranges; 0: none is."""
        self._process = process

    @property
    def pid(self) -> int | None:
        """Of the process, where it was started here."""
        return self._process.pid if self._process is not None else None

    def failure(self) -> DataError | None:
        """Return why the training cannot be trusted or cannot go on; None while all is well. Cheap to ask."""
        try:
            told = json.loads((self.state / "failure.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return error_of(told["reason"], told["message"])

    def ask(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the last answer to a question of the protocol."""
        with sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM) as connection:
            connection.connect(self.socket)
            connection.sendall(json.dumps(question).encode() + b"\n")
            with connection.makefile("rb") as lines:
                *_, last = lines
        found: Mapping[str, Any] = json.loads(last)
        return found

    def counts(self) -> Mapping[str, Any]:
        """Counts of fetched files and bytes so far, see `FetchCounts`."""
        found: Mapping[str, Any] = self.ask({"counts": True})["counts"]
        return found

    def expect(self, paths: Sequence[str]) -> None:
        """Fetch beforehand, in this order: that of a sampler."""
        self.ask({"next": [os.path.realpath(each) for each in paths]})

    def finish(self) -> Mapping[str, Any]:
        """End it after the training has ended; return what it has fetched.

        Raises:
            DataError: the training has read what was not there, or data did not come. It has failed, by this.
        """
        is_own = self._process is not None
        if self._process is not None:
            with contextlib.suppress(OSError):
                if self._process.stdin is not None:
                    self._process.stdin.close()
            try:
                self._process.wait(_ENDS_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()
            self._process = None
        failure = self.failure()
        if failure is not None:
            raise failure
        try:
            found: Mapping[str, Any] = json.loads((self.state / "counts.json").read_text())
        except FileNotFoundError:
            if is_own:
                raise DataError(
                    "data on demand ended before the training did, and nobody was held back from then on:"
                    f" {_last_line(self.state / 'fetcher.log')}"
                ) from None
            return {}
        return found


def start_fetcher(
    manifest: DataManifest,
    *,
    places: Mapping[str, str | os.PathLike[str]],
    state: Path,
    source: Mapping[str, Any],
    cache: str,
    whole: bool = False,
    patience_seconds: float = 3600.0,
    guard: Guard | None = None,
    break_seconds: float | None = None,
    socket: str = "",
) -> RunningFetcher:
    """Lay out what is shared and start the process that fills it; nothing is fetched before somebody reads.

    Args:
        manifest: of `share`.
        places: name of each root -> folder on this node.
        state: folder of this run on this node; a second start goes on with what the first has fetched.
        source: of `http_address` or `mailbox_address`.
        cache: address of the storage where chunks are kept for other nodes and later runs.
        whole: fetch everything before this returns; done in any case where nothing would tell of an early read.
        patience_seconds: how long the sharing machine may be away.
        guard: what keeps early readers away, tried out where it is not given.
        break_seconds: how long the kernel lets somebody wait who cannot ask; as the kernel says where not given.
        socket: path at which it answers, 107 bytes at most; in the folder of temporary files where not given.

    Raises:
        DataError: the process could not be started, or its data not be had.
        InputError: something lies where the data belongs.
    """
    state = state.absolute()
    state.mkdir(parents=True, exist_ok=True)
    address = socket or _socket_of(state)
    laid_out = {name: os.path.realpath(each) for name, each in places.items()}
    found = guard or _weakest(manifest, laid_out)
    lock = _lock(state / "lock", address, patience_seconds=patience_seconds)
    if lock is None:
        return RunningFetcher(
            state=state,
            address=address,
            paths=_data_paths(manifest, laid_out),
            guard=found,
            ranged_from=manifest.ranged_from,
            process=None,
        )
    config = {
        "manifest": manifest.to_json(),
        "places": laid_out,
        "state": str(state),
        "source": dict(source),
        "cache": cache,
        "socket": address,
        "whole": whole or not found.is_any,
        "patience_seconds": patience_seconds,
        "guard": asdict(found),
        "break_seconds": break_seconds,
    }
    path = state / "config.json"
    path.touch(mode=0o600)  # it holds the token
    path.write_text(json.dumps(config), encoding="utf-8")
    with (state / "fetcher.log").open("ab") as log, lock:
        process = subprocess.Popen(
            [sys.executable, "-m", "airflow_training.remote_data.fetching", str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=_own_environment(),
            start_new_session=True,
            pass_fds=(lock.fileno(),),  # it has the lock as long as it lives, and no longer
        )
    running = RunningFetcher(
        state=state,
        address=address,
        paths=_data_paths(manifest, laid_out),
        guard=found,
        ranged_from=manifest.ranged_from,
        process=process,
    )
    if process.stdout is None or process.stdout.readline() != "ready\n":
        with contextlib.suppress(DataError):
            running.finish()
        raise running.failure() or DataError(
            f"data on demand did not start: {_last_line(state / 'fetcher.log')}"
        )
    return running


def _data_paths(manifest: DataManifest, places: Mapping[str, str]) -> Sequence[str]:
    found: set[str] = set()
    for root in manifest.roots:
        if root.is_whole:
            found.add(places[root.name])
        else:
            found.update(f"{places[root.name]}/{file.path}" for file in root.files)
    return sorted(found)


def _lock(path: Path, address: str, *, patience_seconds: float) -> TextIO | None:
    """Return the locked file; None where another start has it and its process answers.

    One that was just killed has it a moment longer, and one that starts does not answer yet.
    """
    end = time.monotonic() + patience_seconds
    lock = path.open("a", encoding="utf-8")
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        else:
            return lock
        if _answers(address):
            lock.close()
            return None
        if time.monotonic() > end:
            lock.close()
            raise DataError(f"{path}: another process has it and does not answer")
        time.sleep(_PAUSE_SECONDS)


def _answers(address: str) -> bool:
    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM) as connection:
        try:
            connection.connect(address)
            connection.sendall(b'{"counts": true}\n')
            return bool(connection.recv(1))
        except OSError:
            return False


def _own_environment() -> dict[str, str]:
    """Return the environment of a process that is no part of the training: without its hook, with our package."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TRAINING_DATA_", "TRAINING_LOADS_"))
    }
    home = str(Path(__file__).resolve().parents[2])
    kept["PYTHONPATH"] = os.pathsep.join(filter(None, (home, kept.get("PYTHONPATH", ""))))
    return kept


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


def _weakest(manifest: DataManifest, places: Mapping[str, str]) -> Guard:
    """Return what works in all places."""
    files = sum(len(root.files) for root in manifest.roots)
    found = [probe_guard(Path(each), files=files) for each in set(places.values())]
    return Guard(
        leases=all(each.leases for each in found),
        modes=all(each.modes for each in found),
        times=all(each.times for each in found),
    )


def _socket_of(state: Path) -> str:
    """Return an address that is short enough for a socket, the same at every start."""
    name = hashlib.sha256(str(state).encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir(), f"training-data-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise DataError(f"{folder} belongs to somebody else")
    return str(folder / name)


def instance_environment(
    fetcher: RunningFetcher,
    *,
    python_path: str = "",
    code_roots: Sequence[str] = (),
    loads_file: str = "",
) -> Mapping[str, str]:
    """Variables of a training process that make it wait for its data.

    Args:
        fetcher: of the same node.
        python_path: the PYTHONPATH that the process would have otherwise.
        code_roots: folders of its program.
        loads_file: where it says what it opens; not at all where not given.
    """
    return hook_environment(
        loads_file=loads_file,
        socket=fetcher.socket,
        data_roots=fetcher.paths,
        guard="leases" if fetcher.guard.leases else "",
        code_roots=code_roots,
        python_path=python_path,
        ranges_from=fetcher.ranged_from,
    )
