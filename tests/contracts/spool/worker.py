"""Takes one order from the spool and carries it out: `python worker.py FOLDER`. Standard library only.

It leaves whoever started it, and tells how its command does in `state.json`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def write(path: Path, document: Any) -> None:
    draft = path.with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps(document))
    draft.replace(path)


class Worker:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.order: dict[str, Any] = json.loads((folder / "order.json").read_text())
        seconds = self.order["deadline_seconds"]
        self.deadline = float("inf") if seconds is None else time.time() + seconds
        self.child: subprocess.Popen[bytes] | None = None
        self.kill_at = float("inf")
        self.why = ""
        self.told: dict[str, Any] = {}

    def tell(self, state: str, reason: str, **more: Any) -> None:
        changed = state != self.told.get("state")
        since = time.time() if changed else self.told["since"]
        self.told = {**self.told, "state": state, "reason": reason, "since": since, **more}
        write(self.folder / "state.json", self.told)

    def end(self, reason: str, **more: Any) -> None:
        state = "succeeded" if reason == "Completed" else "failed"
        self.tell(state, reason, finished_at=time.time(), **more)

    def files(self, kind: str) -> None:
        for path, content in self.order[kind].items():
            target = self.folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(content)

    def start(self) -> None:
        self.files("live_files")
        with (self.folder / "log").open("ab") as log:
            try:
                self.child = subprocess.Popen(
                    self.order["command"],
                    env={**os.environ, **self.order["env"]},
                    cwd=self.order["working_dir"] or self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            except OSError as error:
                self.end("CommandNotFound", exit_code=127, message=str(error))
                return
        self.tell("running", "Started", started_at=time.time())

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self.child is not None:
                os.killpg(self.child.pid, number)

    def run(self) -> None:
        self.files("files")
        held = self.order["held"]
        self.tell("pending", "WaitingForDependency" if held else "Starting")
        while "finished_at" not in self.told:
            self.look()
            time.sleep(0.02)

    def look(self) -> None:
        deleted = self.folder / "deleted"
        if not self.why:
            self.why = "Deleted" if deleted.exists() else ""
            self.why = self.why or ("DeadlineExceeded" if time.time() > self.deadline else "")
            if self.why and self.child is not None:
                grace = float(deleted.read_text()) if deleted.exists() else 1.0
                self.kill_at = time.time() + grace
                self.signal(signal.SIGTERM)
        if self.child is None:
            if self.why:
                self.end(self.why)
            elif not self.order["held"] or (self.folder / "released").exists():
                self.start()
            return
        if time.time() > self.kill_at:
            self.signal(signal.SIGKILL)
        code = self.child.poll()
        if code is None:
            return
        self.signal(signal.SIGKILL)  # what it left behind
        reason = self.why or ("Completed" if code == 0 else "Error")
        self.end(
            reason, exit_code=code if code >= 0 else 128 - code, signal=-code if code < 0 else None
        )


if __name__ == "__main__" and not os.fork():
    os.setsid()
    Worker(Path(sys.argv[1])).run()
