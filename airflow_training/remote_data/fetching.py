"""The process beside the ranks of a node: answers who asks at its socket, and whom the kernel holds back.

    python -m airflow_training.remote_data.fetching CONFIG

Started by `starting`, ends when its standard input does: with the process that has started it.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import socket as sockets
import socketserver
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from pathlib import Path
from typing import Any

from airflow_training.interception.asking import HEARTBEAT_SECONDS, READS, tell_wait
from airflow_training.remote_data.chunks import ChunkCache, open_chunk_store
from airflow_training.remote_data.errors import DataError, UnfetchedRead
from airflow_training.remote_data.fetcher import Fetcher, RangesUnknown
from airflow_training.remote_data.guard import Guard
from airflow_training.remote_data.leases import FileLeases, block_lease_signals
from airflow_training.remote_data.mailbox import MailboxSource
from airflow_training.remote_data.manifest import DataManifest
from airflow_training.remote_data.range_files import RangeFiles
from airflow_training.remote_data.server import HttpSource
from airflow_training.remote_data.skeleton import Skeleton
from airflow_training.remote_data.source_address import ChunkSource

__all__ = ["main"]

_TELL_SECONDS = 1.0
_LOOK_SECONDS = 2.0
_BETWEEN_OUTAGES_SECONDS = 60.0
_AWAY = ".away"
"""After the socket's path: a file that is changed when an outage begins."""


class FetchingProcess:
    """All that one node needs, put together from a configuration."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Lay out the skeleton and guard it; nobody reads before `serve`."""
        self._state = Path(config["state"])
        manifest = DataManifest.from_json(config["manifest"])
        self._guard = Guard(**config["guard"])
        self._skeleton = Skeleton(
            manifest, places=config["places"], state=self._state, guard=self._guard
        )
        (self._state / "counts.json").unlink(missing_ok=True)
        self._failed: list[str] = []
        self._failure = self._kept_failure()
        self._skeleton.lay_out()
        self._leases = (
            FileLeases(
                opened=self._opened,
                too_late=self._too_late,
                break_seconds=config.get("break_seconds"),
            )
            if self._guard.leases
            else None
        )
        source = _source(config["source"], manifest)
        self._do_others_wait = (
            source.has_requests if isinstance(source, MailboxSource) else lambda: False
        )
        self.fetcher = Fetcher(
            self._skeleton,
            source=source,
            cache=ChunkCache(open_chunk_store(config["cache"])),
            leases=self._leases,
            ranges=RangeFiles(self._state / "ranges"),
            patience_seconds=config["patience_seconds"],
            failed=self.fail,
            away=self._note_outage,
        )
        self._socket = config["socket"]
        self._is_whole = bool(config["whole"])
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._progress: set[str] = set()
        """Progress files of the processes that have asked."""
        self._outage_at = -math.inf
        self._waited = "", -math.inf
        """For which path somebody has waited last, and when."""

    def _kept_failure(self) -> dict[str, str]:
        """Let what did not come be tried again; what was read before it was there may be in a checkpoint."""
        path = self._state / "failure.json"
        with contextlib.suppress(FileNotFoundError):
            told = json.loads(path.read_text(encoding="utf-8"))
            if told["reason"] == UnfetchedRead.reason:
                return {name: str(told[name]) for name in ("reason", "message")}
            path.unlink()
        return {}

    def prepare(self) -> None:
        """Take the leases, and fetch all where that is wanted."""
        self._look()
        if self._leases is not None:
            missed = self._leases.take(each.place for each in self._skeleton.unfetched())
            if missed:
                self.fail(
                    UnfetchedRead(f"{missed[0]}: it was open before its content was there"),
                    missed[0],
                )
        if self._is_whole:
            futures = [
                future for place in self._skeleton.places for future in self.fetcher.request(place)
            ]
            with contextlib.suppress(DataError):  # who reads it is told
                for future in futures:
                    future.result()

    def serve(self) -> socketserver.ThreadingUnixStreamServer:
        """Answer at the socket, in threads."""
        Path(self._socket).unlink(missing_ok=True)
        process = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(OSError, ValueError):  # who asked is gone, or asks nothing
                    question = json.loads(self.rfile.readline(1 << 24))
                    for answer in process.answers(question):
                        self.wfile.write(json.dumps(answer).encode() + b"\n")
                        self.wfile.flush()

        class Server(socketserver.ThreadingUnixStreamServer):
            daemon_threads = True
            request_queue_size = 1024

        server = Server(self._socket, Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with contextlib.suppress(OSError):  # its path is too long for another: connections tell too
            Path(self._socket + READS).unlink(missing_ok=True)
            reads = sockets.socket(sockets.AF_UNIX, sockets.SOCK_DGRAM)
            reads.bind(self._socket + READS)
            threading.Thread(target=self._hear_reads, args=(reads,), daemon=True).start()
        threading.Thread(target=self._keep_looking, daemon=True).start()
        threading.Thread(target=self._keep_telling, daemon=True).start()
        return server

    def answers(self, question: Mapping[str, Any]) -> Any:
        """Yield lines: `waiting` while it takes time, and then one that says how it is."""
        if "range" in question:
            yield from self._make_range_ready(question)
        elif "next" in question:
            self.fetcher.expect([str(each) for each in question["next"]])
            yield {"ready": True}
        elif "read" in question:
            self.fetcher.request(str(question["read"]))
        elif "counts" in question:
            yield {"counts": self.fetcher.to_json(), "waiting_for": self.fetcher.waiting}
        elif "failure" in question:
            self._look()
            told = self._failure
            yield {"error": told["reason"], "message": told["message"]} if told else {"ready": True}
        else:
            self._note_progress(question)
            yield from self._make_ready(str(question["ready"]))

    def _hear_reads(self, reads: sockets.socket) -> None:
        """Follow what is read that is there: what comes after it is fetched beforehand."""
        while not self._ended.is_set():
            # whoever it was says nothing, or the run has just ended
            with contextlib.suppress(ValueError, TypeError, KeyError, RuntimeError):
                self.fetcher.request(str(json.loads(reads.recv(1 << 16))["read"]))

    def _note_progress(self, question: Mapping[str, Any]) -> None:
        if question.get("progress"):
            self._progress.add(str(question["progress"]))

    def _make_ready(self, path: str) -> Any:
        try:
            yield from self._wait_for(path, self.fetcher.request(path))
        except DataError as error:
            yield {"error": error.reason, "message": str(error)}
        else:
            yield {"ready": True}

    def _make_range_ready(self, question: Mapping[str, Any]) -> Any:
        path = str(question["range"])
        try:
            file, futures = self.fetcher.request_ranges(
                path, int(question["first"]), int(question["last"])
            )
            if not question.get("next"):
                self._note_progress(question)
                yield from self._wait_for(path, futures)
        except RangesUnknown:
            self.fetcher.give_up_ranges()
            yield from self._make_ready(path)
        except DataError as error:
            yield {"error": error.reason, "message": str(error)}
        else:
            yield {"ready": True, "file": file}

    def _wait_for(self, path: str, futures: Sequence[Future[None]]) -> Any:
        for future in futures:
            while not _has_come(future):
                self._waited = path, time.monotonic()
                yield {"waiting": self.fetcher.waiting or "being fetched"}

    def _note_outage(self) -> None:
        """Let trainings that keep checkpoints save one at their next step: what follows may be a pause."""
        now = time.monotonic()
        if now - self._outage_at < _BETWEEN_OUTAGES_SECONDS:
            return  # a line that fails again and again costs no save each time
        self._outage_at = now
        with contextlib.suppress(OSError):  # a full disk: they save when it is time
            Path(self._socket + _AWAY).touch()

    def _opened(self, path: str) -> None:
        self.fetcher.request(path)

    def _too_late(self, path: str) -> None:
        self.fail(
            UnfetchedRead(
                f"{path}: it was opened by a program that cannot be told to wait, and its content did not come in time;"
                " the program found it empty"
            ),
            path,
        )

    def fail(self, error: DataError, place: str) -> None:
        """Write down why the run cannot go on: the first reason, and all files of which something was to be told."""
        with self._lock:
            if place in self._failed:
                return
            self._failed.append(place)
            self._failure = self._failure or {
                "reason": error.reason,
                "message": _naming(place, str(error)),
            }
            with contextlib.suppress(
                OSError
            ):  # a full disk: written down at the end, or the end is a failure
                self._write_failure()

    def _write_failure(self) -> None:
        partial = self._state / "failure.partial"
        partial.write_text(json.dumps({**self._failure, "paths": self._failed}), encoding="utf-8")
        partial.replace(self._state / "failure.json")

    def _look(self) -> None:
        for place in self._skeleton.read_before_ready():
            self.fail(UnfetchedRead(f"{place}: it was read before its content was there"), place)

    def _keep_telling(self) -> None:
        """Say for every rank of this node that it waits as long as one does: it may wait for that one."""
        while not self._ended.wait(HEARTBEAT_SECONDS):
            path, when = self._waited
            why = self.fetcher.waiting or "being fetched"
            if time.monotonic() - when > 2 * HEARTBEAT_SECONDS:
                path, why = "", "others wait for data"
                if not (self._progress and self._do_others_wait()):
                    continue
            for progress in list(self._progress):
                tell_wait(progress, path, why)

    def _keep_looking(self) -> None:
        pause = _LOOK_SECONDS
        while not self._ended.wait(pause):
            begin = time.monotonic()
            self._look()
            pause = max(_LOOK_SECONDS, 20 * (time.monotonic() - begin))

    def remove_socket(self) -> None:
        """Leave nothing in the folder of temporary files."""
        for each in (self._socket, self._socket + READS, self._socket + _AWAY):
            Path(each).unlink(missing_ok=True)

    def close(self) -> None:
        """Look once more, and write down what was done."""
        self._ended.set()
        self._look()
        with self._lock:
            if self._failure:
                self._write_failure()
        # before what is under way has ended, which may take long; without this file the run has failed
        (self._state / "counts.json").write_text(json.dumps(self.fetcher.to_json()))
        self.fetcher.close()
        if self._leases is not None:
            self._leases.close()


def _naming(place: str, message: str) -> str:
    return message if place in message else f"{place}: {message}"


def _has_come(future: Future[None]) -> bool:
    try:
        future.result(timeout=_TELL_SECONDS)
    except NotYet:
        return False
    return True


def _source(address: Mapping[str, Any], manifest: DataManifest) -> ChunkSource:
    if address["kind"] == "mailbox":
        return MailboxSource(manifest, open_chunk_store(address["storage"]))
    return HttpSource(address["url"], address["token"])


def main(config: str) -> int:
    """Serve until standard input ends."""
    block_lease_signals()
    if hasattr(
        os, "SCHED_BATCH"
    ):  # each read that is told wakes this process: it takes no core from who reads
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    process = FetchingProcess(json.loads(Path(config).read_text(encoding="utf-8")))
    process.prepare()
    server = process.serve()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while os.read(0, 4096):
        pass
    server.shutdown()
    process.close()
    process.remove_socket()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
