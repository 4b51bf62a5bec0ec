"""Where the files of a run lie, and the locks around them. The attempt's own folder: `agent.files`.

`<local_dir>/<run uid>/<role>-<index>/attempt-<epoch>.<job attempt>.<attempt>/`
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from airflow_training.agent.files import AttemptFolder, read_json, write_json
from airflow_training.documents.instances import InstanceKey
from airflow_training.runtimes.port import InstanceRef

__all__ = [
    "Attempt",
    "RolePorts",
    "RunFolder",
    "attempt_of",
    "instance_of",
    "is_locked",
    "locked",
    "ports_of",
]

Attempt = tuple[int, int, int]
"""(epoch, job attempt, attempt): a later one is greater."""
RolePorts = dict[str, list[dict[str, int]]]
"""Role -> port names and numbers, by index."""
_ATTEMPT = re.compile(r"attempt-(\d+)\.(\d+)\.(\d+)")
_INSTANCE = re.compile(r"(.+)-(\d+)")


def attempt_of(ref: InstanceRef, attempt: int | None = None) -> Attempt:
    """Return the attempt that `ref` means, or another one of the same job attempt."""
    return (ref.epoch, ref.job_attempt, ref.attempt if attempt is None else attempt)


def instance_of(name: str) -> InstanceKey | None:
    """Return whose a folder is, called `<role>-<index>`; None for other folders."""
    match = _INSTANCE.fullmatch(name)
    return InstanceKey(match[1], int(match[2])) if match else None


def ports_of(book: Mapping[str, RolePorts]) -> set[int]:
    """Return all ports of a run's book."""
    return {
        port
        for roles in book.values()
        for known in roles.values()
        for ports in known
        for port in ports.values()
    }


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file; the kernel gives it back if we die."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def is_locked(path: Path) -> bool:
    """Return whether anybody, this process included, holds the lock on a file."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


class RunFolder:
    """Everything the local runtime keeps of one run."""

    def __init__(self, local_dir: Path, uid: str) -> None:
        self.path = local_dir / uid
        self.about = self.path / "run.json"
        self.ports = self.path / "ports.json"
        self.prepare_lock = self.path / "prepare.lock"
        self.tombstone = self.path / "tombstone.json"
        self.fence = self.path / "fence.json"
        self.watchers = self.path / "notify.d"
        self.names = self.path / "names"
        self.predictions = self.path / "predictions"
        self.files = self.path / "files"
        """What relative addresses lead to in a document that lies in no folder."""

    def make(self) -> None:
        """Create the folders; only this user may enter."""
        for folder in (self.path.parent, self.path):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.watchers.mkdir(exist_ok=True)
        self.names.mkdir(exist_ok=True)

    def port_book(self) -> dict[str, RolePorts]:
        """Return the ports of the run by job attempt (`<epoch>.<job attempt>`), the newest last."""
        return read_json(self.ports) or {}

    def has_begun(self, instance: str) -> bool:
        """Return whether an instance had a folder once: its host name stays."""
        try:
            return any(each.read_text() == instance for each in self.names.iterdir())
        except OSError:  # it goes with its run at this moment
            return False

    @property
    def removed_generation(self) -> int:
        """Return the generation under which the run was removed; -1: it was not."""
        return int((read_json(self.tombstone) or {}).get("generation", -1))

    @property
    def generation(self) -> int:
        """Return the newest generation that was seen."""
        return int((read_json(self.fence) or {}).get("generation", 0))

    def refuse_or_own(self, generation: int) -> str:
        """Return why this generation may not create here, or take note that it owns the run."""
        with locked(self.prepare_lock):
            if generation <= self.removed_generation:
                return "the run was removed"
            newest = self.generation
            if generation < newest:
                return f"generation {newest} owns the run"
            if generation > newest or not self.fence.exists():
                # what was ordered before may begin later, as from a queue: it is ours now
                adopted = list(self._orders_to_begin())
                write_json(self.fence, {"generation": generation, "adopted": adopted})
            # a later generation opens a removed run again; older ones are kept out by the fence
            self.tombstone.unlink(missing_ok=True)
        return ""

    def _orders_to_begin(self) -> Iterator[str]:
        """Yield the uids of newest attempts that were ordered, have not begun, and still may."""
        for key in self.instances():
            for _, attempt in self.attempts(*key)[:1]:
                order = None if attempt.state.exists() else read_json(attempt.spec)
                if order and not attempt.refusal(order["generation"], order["uid"]):
                    yield order["uid"]

    @property
    def may_hold(self) -> bool:
        """Return whether anything of the run may live: it was not removed, or something stayed then."""
        found = read_json(self.tombstone)
        return found is None or bool(found.get("stays"))

    def bury(self, generation: int) -> None:
        """Refuse all creates of this generation, and of every one that was seen so far."""
        with locked(self.prepare_lock):
            write_json(self.tombstone, {"generation": max(generation, self.generation)})

    def note_what_stays(self, generation: int) -> None:
        """Note that an instance stays for a look inside, though this generation has removed the run."""
        with locked(self.prepare_lock):
            buried = self.removed_generation
            if buried >= generation:  # nobody has opened it again meanwhile
                write_json(self.tombstone, {"generation": buried, "stays": True})

    def instance(self, role: str, index: int) -> Path:
        return self.path / f"{role}-{index}"

    def attempt(self, role: str, index: int, attempt: Attempt) -> AttemptFolder:
        name = "attempt-" + ".".join(str(part) for part in attempt)
        return AttemptFolder(self.instance(role, index) / name)

    def instances(self) -> list[InstanceKey]:
        """Return (role, index) of every instance that was ever created."""
        found = []
        with contextlib.suppress(FileNotFoundError):
            for each in self.path.iterdir():
                key = instance_of(each.name)
                if key is not None and each.is_dir():
                    found.append(key)
        return sorted(found)

    def attempts(self, role: str, index: int) -> list[tuple[Attempt, AttemptFolder]]:
        """Return the attempts of an instance, newest first."""
        found = []
        with contextlib.suppress(FileNotFoundError):
            for each in self.instance(role, index).iterdir():
                match = _ATTEMPT.fullmatch(each.name)
                if match:
                    numbers = (int(match[1]), int(match[2]), int(match[3]))
                    found.append((numbers, AttemptFolder(each)))
        return sorted(found, key=lambda pair: pair[0], reverse=True)
