"""An audit hook on what a process opens. What it finds goes to a file; what is not there yet is waited for.

It raises for one reason only: the content of a file will not come. After the first open of a path, one costs a look
into a set. Python 3.8 and newer, standard library only.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import time
from _thread import _local

from airflow_training.interception.asking import (
    DataUnavailable,
    is_filled,
    make_ready,
    tell_read,
)
from airflow_training.interception.classification import (
    Places,
    classify,
    is_dependency,
    name_api,
    writes,
)
from airflow_training.interception.protocol import HookSettings
from airflow_training.interception.wraps import watch_imports

TYPE_CHECKING = False  # `typing` costs the training's start
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import FrameType
    from typing import Any

__all__ = ["LoadWatch", "install"]

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_SYSTEM = ("/proc", "/sys", "/dev", "/etc", "/usr/lib", "/usr/lib64", "/usr/share", "/lib", "/lib64", "/run")  # fmt: skip
_WALKED_IN_A_FOLDER = 64
"""So many files of a folder have their stack looked at (80 us each); what opens the others is taken to be the same."""
_TOLD_OF_A_FOLDER = 1000
_DEEPEST = 60
_STANDARD = getattr(
    sys,
    "stdlib_module_names",
    frozenset(
        [
            "io",
            "os",
            "pathlib",
            "gzip",
            "bz2",
            "lzma",
            "zipfile",
            "tarfile",
            "json",
            "csv",
            "pickle",
            "codecs",
            "shelve",
            "dbm",
            "sqlite3",
            "mmap",
            "tempfile",
            "shutil",
            "_pyio",
            "fileinput",
            "linecache",
            "tokenize",
            "runpy",
            "importlib",
            "zipimport",
            "multiprocessing",
            "threading",
            "concurrent",
            "contextlib",
            "functools",
            "configparser",
            "wave",
            "array",
            "threading",
            "_bootsubprocess",
            "subprocess",
        ]
    ),
)


class LoadWatch:
    """What one process has opened so far, and what it does about a path that is opened for the first time."""

    def __init__(self, settings: HookSettings) -> None:
        """Ask and tell as the settings say."""
        self._settings = settings
        self._roots = tuple(each.rstrip(os.sep) for each in settings.data_roots)
        self._below = tuple(each + os.sep for each in self._roots)
        self._places = Places(code_roots=settings.code_roots, dependencies=_dependencies())
        self._ready: set[str] = set()
        self._folders: dict[str, tuple[int, str, tuple[str, ...]]] = {}
        self._told: set[tuple[str, bool]] = set()
        self._inside = _local()

    def opened(self, path: Any, flags: int) -> None:
        """Do what the first open of a path asks for, and nothing where this is called by its own work."""
        if isinstance(path, int) or getattr(self._inside, "busy", False):
            return
        self._inside.busy = True
        try:
            full = os.path.realpath(os.fsdecode(path))
            self._fetch(full)
            self._tell(full, flags, api="")
        except DataUnavailable:
            raise
        except Exception:  # noqa: BLE001,S110  # a training is never disturbed by who watches it
            pass
        finally:
            self._inside.busy = False

    def reads(self, path: Any, api: str) -> None:
        """Do the same for a file or folder that a library opens where no audit event tells of it."""
        if isinstance(path, int) or getattr(self._inside, "busy", False):
            return
        try:
            name = os.fsdecode(os.fspath(path))
        except (TypeError, ValueError):  # an object that is read from
            return
        self._inside.busy = True
        try:
            full = os.path.realpath(name)
            if not os.path.exists(full):  # noqa: PTH110
                return
            if not (self._settings.guard and os.path.isdir(full)):  # noqa: PTH112
                self._fetch(full)
            self._tell(full, 0, api=api)
        except DataUnavailable:
            raise
        except Exception:  # noqa: BLE001,S110
            pass
        finally:
            self._inside.busy = False

    def starts(self, arguments: Any, folder: Any = None) -> None:
        """Let what another program is told to read be there before it starts."""
        if self._settings.guard or getattr(self._inside, "busy", False) or not self._roots:
            return
        words = arguments.split() if isinstance(arguments, (str, bytes)) else arguments
        self._inside.busy = True
        try:
            for word in words or ():
                text = os.fsdecode(word)
                for part in {text, text.rpartition("=")[2]}:
                    full = os.path.realpath(os.path.join(os.fsdecode(folder or ""), part))  # noqa: PTH118
                    if full.startswith(self._below) or full in self._roots:
                        self._fetch(full)
        except DataUnavailable:
            raise
        except Exception:  # noqa: BLE001,S110
            pass
        finally:
            self._inside.busy = False

    def fetch(self, path: Any) -> None:
        """Let a file be there that gets another name, under which nobody would know it."""
        self.starts([path])

    def _fetch(self, full: str) -> None:
        if not self._settings.socket or full in self._ready:
            return
        if full.startswith(self._below) or full in self._roots:
            if is_filled(full):
                tell_read(self._settings.socket, full)
            else:
                make_ready(self._settings.socket, full)
            self._ready.add(full)

    def _tell(self, full: str, flags: int, *, api: str) -> None:
        target = self._settings.loads_file
        key = (full, writes(flags))
        if not target or key in self._told or full == target or is_dependency(full, self._places):
            return
        import json  # when it is needed: most processes of a training open nothing of it

        self._told.add(key)
        folder = os.path.dirname(full)  # noqa: PTH120
        count, known, callers = self._folders.get(folder, (0, "", ()))
        if count > _TOLD_OF_A_FOLDER:
            return
        if api:
            known, callers = api, ()
        elif count < _WALKED_IN_A_FOLDER:
            known, callers = self._walk(sys._getframe(3))
        self._folders[folder] = (count + 1, known, callers)
        line: dict[str, Any] = {
            "time": time.time(),
            "pid": os.getpid(),
            "path": full,
            "class": classify(full, places=self._places, flags=flags, api=known, callers=callers),
            "api": known,
        }
        if count == _TOLD_OF_A_FOLDER:
            line["more"] = folder
        descriptor = os.open(target, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o600)
        try:
            os.write(descriptor, (json.dumps(line) + "\n").encode())
        finally:
            os.close(descriptor)

    def _walk(self, frame: FrameType | None) -> tuple[str, tuple[str, ...]]:
        """Return which function opened it, and all modules and functions up to the start of the process."""
        found: list[tuple[str, str]] = []
        until_program = 0
        while frame is not None and len(found) < _DEEPEST:
            module = str(frame.f_globals.get("__name__", ""))
            if not until_program and (
                module in ("__main__", "__mp_main__")
                or (
                    not is_dependency(os.path.realpath(frame.f_code.co_filename), self._places)
                    and not frame.f_code.co_filename.startswith("<frozen")
                )
            ):
                until_program = len(found) + 1
            found.append((module, frame.f_code.co_name))
            frame = frame.f_back
        inner = found[: until_program - 1] if until_program else found
        return name_api(inner, standard=_STANDARD), tuple(".".join(each) for each in found)


def _dependencies() -> list[str]:
    paths = sysconfig.get_paths()
    found = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    found |= {os.path.realpath(each) for each in found}
    return [*found, *_SYSTEM]


def install(environment: Mapping[str, str]) -> LoadWatch | None:
    """Install the hook for the rest of this process where the environment wants it; None where it does not."""
    settings = HookSettings(environment)
    if not settings.is_wanted:
        return None
    watch = LoadWatch(settings)
    watch_imports(watch.reads)
    sys.addaudithook(_hook_of(watch))
    return watch


def _hook_of(watch: LoadWatch) -> Any:
    read: set[Any] = set()
    written: set[Any] = set()
    opened, reads, starts, fetch = watch.opened, watch.reads, watch.starts, watch.fetch

    def hook(event: str, args: Any) -> None:
        if event != "open":
            if event in others:
                others[event](args)
            return
        try:
            path, _, flags = args
            known = written if flags & _WRITING else read
            if path in known:
                return
        except (TypeError, ValueError):  # a program may raise the event itself, with what it likes
            return
        opened(path, flags)
        known.add(path)

    def moved(_args: Any) -> None:
        read.clear()
        written.clear()

    others: dict[str, Callable[[Any], None]] = {
        "os.chdir": moved,
        "sqlite3.connect": lambda args: reads(_database(args[0]), "sqlite3.connect"),
        "os.rename": lambda args: fetch(args[0]),
        "os.link": lambda args: fetch(args[0]),
        "subprocess.Popen": lambda args: starts(args[1], args[2]),
        "os.posix_spawn": lambda args: starts(args[1]),
        "os.exec": lambda args: starts(args[1]),
        "os.system": lambda args: starts(args[0]),
    }
    return hook


def _database(name: Any) -> Any:
    """Return the path of a database that may be named by a URI."""
    if isinstance(name, str) and name.startswith("file:"):
        from urllib.parse import unquote, urlsplit

        return unquote(urlsplit(name).path)
    return name
