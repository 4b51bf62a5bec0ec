"""Where a service of this machine serves that outlives the client it was started by, for the next client.

A record is a file that only this user may read, and counts while its service holds the lock beside it: a port
that a dead service has left may be a stranger's.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from airflow_training import __version__
from airflow_training.cloud.locks import try_lock
from airflow_training.cloud.targets import cloud_folder
from airflow_training.settings import airflow_home

__all__ = [
    "ServiceRecord",
    "find_service",
    "is_published",
    "publish_service",
    "service_log",
    "starting_conditions",
]

_OF_A_TERMINAL = (
    "_", "COLUMNS", "LINES", "OLDPWD", "PWD", "SHLVL", "TERM", "TERM_PROGRAM", "TERM_PROGRAM_VERSION",
    "TERM_SESSION_ID", "WINDOWID",
)  # fmt: skip
"""Variables that differ between two terminals, and that no training looks at."""
_PACKAGE = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRecord:
    pid: int
    port: int
    key: str


def starting_conditions() -> str:
    """A digest of all that a service has from whoever starts it, and hands on to the runs that it starts.

    The code and the interpreter with what is installed there, the settings, the variables, the folder, the limits that a process inherits. Two
    clients of the same digest may use one service.
    """
    variables = {name: text for name, text in os.environ.items() if name not in _OF_A_TERMINAL}
    found = {
        "version": __version__,
        "interpreter": sys.executable,
        "code": _newest_change(_PACKAGE),
        "installed": [(each, _changed_at(Path(each))) for each in sys.path],
        "settings": _changed_at(airflow_home() / "airflow.cfg"),
        "variables": sorted(variables.items()),
        "folder": str(Path.cwd()),
        "inherited": [_inherited(name) for name in ("limits", "cgroup", "status")],
    }
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()[:32]


def find_service(conditions: str) -> ServiceRecord | None:
    """The service that was started under these conditions, and still serves; None: there is none."""
    try:
        with _lock_path(conditions).open() as lock:
            if try_lock(lock):
                return None  # nobody holds it
            return ServiceRecord(**json.loads(_record_path(conditions).read_text()))
    except (OSError, ValueError, TypeError):  # none, or it begins or ends just now
        return None


@contextlib.contextmanager
def publish_service(conditions: str, record: ServiceRecord) -> Iterator[bool]:
    """Let other clients find a service; gives False where another one is found already."""
    lock_path, path = _lock_path(conditions), _record_path(conditions)
    lock_path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with os.fdopen(os.open(lock_path, os.O_CREAT | os.O_RDWR, 0o600), "w") as lock:
        if not try_lock(lock):
            yield False
            return
        draft = path.with_suffix(f".{os.getpid()}.draft")
        with os.fdopen(os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as file:
            json.dump(asdict(record), file)
        draft.replace(path)
        try:
            yield True
        finally:
            if is_published(conditions, record):
                for each in (path, path.with_suffix(".log"), lock_path):
                    each.unlink(missing_ok=True)


def service_log(conditions: str) -> BinaryIO:
    """Where a service that may outlive its terminal writes what it would have printed."""
    path = _record_path(conditions).with_suffix(".log")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return os.fdopen(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb")


def is_published(conditions: str, record: ServiceRecord) -> bool:
    """Whether the record is still there: who removes it, or all of `$AIRFLOW_HOME`, ends the service.

    Another service may have been started there since, and that one's stays.
    """
    try:
        return bool(json.loads(_record_path(conditions).read_text()) == asdict(record))
    except (OSError, ValueError):
        return False


def _record_path(conditions: str) -> Path:
    return cloud_folder() / "client" / "services" / f"{conditions}.json"


def _lock_path(conditions: str) -> Path:
    return _record_path(conditions).with_suffix(".lock")


def _newest_change(folder: Path) -> int:
    """When a file of the package was changed last: a service of other code is another one."""
    newest = 0
    waiting = [str(folder)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for each in entries:
                if each.is_dir(follow_symlinks=False):
                    if each.name not in ("__pycache__", "node_modules", "static", "pages"):
                        waiting.append(each.path)
                elif each.name.endswith((".py", ".yaml")):
                    newest = max(newest, each.stat().st_mtime_ns)
    return newest


def _changed_at(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _inherited(name: str) -> str:
    """What Linux tells of this process that its children have too; nothing elsewhere."""
    try:
        text = Path(f"/proc/self/{name}").read_text()
    except OSError:
        return ""
    if name == "status":
        kept = ("Umask", "Uid", "Gid", "Groups", "CapEff", "Cpus_allowed", "Mems_allowed")
        text = "".join(line for line in text.splitlines() if line.partition(":")[0] in kept)
    return text
