"""The folder of one attempt: names in it, and how files are written so that no half ever shows."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from typing import Any

__all__ = ["AttemptFolder", "read_json", "write_files", "write_json", "write_text"]


def read_json(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None where there is no file or no object in it."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def write_text(path: Path, content: str, *, mode: int = 0o600, durable: bool = False) -> None:
    """Replace a file in one step; `durable`: it also survives a power loss."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.urandom(6).hex()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:  # a full disk: whoever tries again shall not fill it further
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Mapping[str, Any], *, durable: bool = False) -> None:
    """Replace a JSON file in one step."""
    write_text(path, json.dumps(value), durable=durable)


def write_files(files: Mapping[str, Mapping[str, Any]], *, below: Path, mode: int = 0o600) -> None:
    """Write the files of an order: path -> `content`, or the `source` to copy, and `executable`."""
    for name, file in files.items():
        source = file.get("source")
        text = Path(source).read_text(encoding="utf-8") if source else file["content"]
        # who may read it may execute it
        executable = (mode & 0o444) >> 2 if file.get("executable") else 0
        write_text(below / name, text, mode=mode | executable)


class AttemptFolder:
    """`<run>/<role>-<index>/attempt-<epoch>.<job attempt>.<attempt>/`, user files at its top."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.control = path / ".agent"
        self.log = path / "log"
        self.progress = path / "progress.jsonl"
        self.environment = path / "environment.jsonl"
        """Written by the agent: the last records of what it has around it; a checkpoint names them."""
        self.code = path / "code"
        """Of a job that names its code: laid out by the agent."""
        self.output = path / "output"
        self.predictions = path / "predictions"
        self.spec = self.control / "spec.json"
        """Written by the creator: what to run."""
        self.state = self.control / "state.json"
        """Written by the agent: who it is and how far it got."""
        self.exit = self.control / "exit.json"
        """Written by the agent, last: how it ended."""
        self.release = self.control / "release.json"
        """Written by the runtime: the answer a held instance waits for."""
        self.delete = self.control / "delete.json"
        """Written by the runtime: end it, and the object is gone after that."""
        self.order = self.control / "order.json"
        """Written by the runtime for an instance that stays: `stop`, `restart` (as which attempt), or `leave`."""
        self.socket = self.control / "control.sock"

    @property
    def deleted(self) -> bool:
        """Whether somebody deleted it; a disk that does not answer proves nothing."""
        try:
            self.spec.stat()
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False
        return False

    @property
    def instance(self) -> Path:
        return self.path.parent

    @property
    def lock(self) -> Path:
        """Held by the one living agent of (run, role, index) for its whole life."""
        return self.instance / "lock"

    @property
    def create_lock(self) -> Path:
        """Taken in turn by those who create an attempt of this instance."""
        return self.instance / "create.lock"

    @property
    def run(self) -> Path:
        return self.instance.parent

    @property
    def tombstone(self) -> Path:
        return self.run / "tombstone.json"

    @property
    def fence(self) -> Path:
        return self.run / "fence.json"

    @property
    def watchers(self) -> Path:
        """Every socket in here is told when something changed."""
        return self.run / "notify.d"

    def refusal(self, generation: int, uid: str) -> str:
        """Return why the run does not accept an order of this generation, or an empty text."""
        tombstone = read_json(self.tombstone)
        if tombstone is not None and generation <= int(tombstone.get("generation", 0)):
            return "the run was removed"
        fence = read_json(self.fence) or {}
        newest = int(fence.get("generation", 0))
        if newest <= generation or uid in fence.get("adopted", ()):
            return ""
        return f"generation {newest} owns the run"
