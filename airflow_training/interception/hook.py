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
    tell_next,
    tell_read,
)
from airflow_training.interception.classification import (
    Places,
    classify,
    is_dependency,
    name_api,
    writes,
)
from airflow_training.interception.module_changes import watch_modules
from airflow_training.interception.protocol import HookSettings
from airflow_training.interception.wraps import watch_imports

TYPE_CHECKING = False  # `typing` costs the training's start
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import FrameType
    from typing import Any

__all__ = ["LoadWatch", "install", "watch_loads"]

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_SYSTEM = ("/proc", "/sys", "/dev", "/etc", "/usr/lib", "/usr/lib64", "/usr/share", "/lib", "/lib64", "/run")  # fmt: skip
_WALKED_IN_A_FOLDER = 64
"""So many files of a folder have their stack looked at (80 us each); what opens the others is taken to be the same."""
_TOLD_OF_A_FOLDER = 1000
_DEEPEST = 60
_ABOVE = 4
"""Frames between `_tell` and who opens: `opened`, `run`, the hook itself."""
_REMEMBERED = 1 << 17
"""So many paths (about 200 bytes each) a process remembers; then it begins anew."""
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
        self.loads_file = settings.loads_file
        self._roots = tuple(each.rstrip(os.sep) for each in settings.data_roots)
        self._below = tuple(each + os.sep for each in self._roots)
        self._places = Places(code_roots=settings.code_roots, dependencies=_dependencies())
        self._ready: set[str] = set()
        self._folders: dict[str, tuple[int, str, tuple[str, ...]]] = {}
        self._told: set[tuple[str, bool]] = set()
        self._inside = _local()

    def run(self, work: Callable[..., None], *args: Any) -> bool:
        """Run one of the others; False, and nothing done, where this is called by its own work.

        Raises:
            OSError: data will not come. A plain one: no other process could unpickle a class of this hook.
        """
        if getattr(self._inside, "busy", False):
            return False
        self._inside.busy = True
        try:
            work(*args)
        except DataUnavailable as error:
            raise OSError(error.errno, error.strerror, error.filename) from None
        except Exception:  # noqa: BLE001,S110  # a training is never disturbed by who watches it
            pass
        finally:
            self._inside.busy = False
        return True

    def end_telling(self) -> None:
        """Say nothing more of what is opened."""
        self._settings.loads_file = ""

    def opened(self, path: Any, flags: int) -> None:
        """Do what the first open of a path asks for."""
        if isinstance(path, int):
            return
        full = os.path.realpath(os.fsdecode(path))
        self._fetch(full)
        self._tell(full, flags, api="")

    def reads(self, path: Any, api: str) -> None:
        """Do the same for a file or folder that a library opens where no audit event tells of it."""
        if isinstance(path, int):
            return
        full = os.path.realpath(os.fsdecode(path))
        if os.path.exists(full):  # noqa: PTH110
            self._fetch(full)
            self._tell(full, 0, api=api)

    def reads_ranges(self, full: str) -> None:
        """Tell of a file of which a part will be read, and let nothing come yet."""
        self._tell(full, 0, api="open")

    def starts(self, arguments: Any, folder: Any = None) -> None:
        """Let what another program is told to read be there before it starts."""
        if self._settings.guard or not self._roots:
            return
        words = [arguments] if isinstance(arguments, (str, bytes)) else arguments
        for word in words or ():
            text = os.fsdecode(word)
            for part in {text, *_words(text)}:
                for each in {part, part.rpartition("=")[2]}:
                    self._fetch(os.path.realpath(os.path.join(os.fsdecode(folder or ""), each)))  # noqa: PTH118

    def fetch(self, path: Any) -> None:
        """Let a file be there that gets another name, under which nobody would know it."""
        if not self._settings.guard:
            self._fetch(os.path.realpath(os.fsdecode(path)))

    def _fetch(self, full: str) -> None:
        if not self._settings.socket or full in self._ready:
            return
        if not (full.startswith(self._below) or full in self._roots):
            return
        if is_filled(full):
            tell_read(self._settings.socket, full)
        elif self._settings.guard and os.path.isdir(full):  # noqa: PTH112
            return  # the kernel holds back who opens one of its files
        else:
            try:
                make_ready(self._settings.socket, full)
            except DataUnavailable:
                raise
            except Exception as error:  # nobody reads what has not come
                raise DataUnavailable(full, "HookFailed", repr(error)) from error
        _remember(self._ready, full)

    def _tell(self, full: str, flags: int, *, api: str) -> None:
        target = self._settings.loads_file
        key = (full, writes(flags))
        if not target or key in self._told or full == target or is_dependency(full, self._places):
            return
        import json  # when it is needed: most processes of a training open nothing of it

        folder = os.path.dirname(full)  # noqa: PTH120
        count, known, callers = self._folders.get(folder, (0, "", ()))
        if count > _TOLD_OF_A_FOLDER:
            return
        self._told.add(key)
        if api:
            known, callers = api, ()
        elif count < _WALKED_IN_A_FOLDER:
            known, callers = self._walk(sys._getframe(_ABOVE))
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
    return watch_loads(settings) if settings.is_wanted else None


def watch_loads(settings: HookSettings) -> LoadWatch:
    """Install the hook on what is opened, whether or not anything is asked for."""
    watch = LoadWatch(settings)
    watch_imports(lambda path, api: watch.run(watch.reads, path, api))
    if settings.socket and settings.data_roots:
        from airflow_training.interception.sampler_order import SamplerOrder

        order = SamplerOrder(settings.data_roots, lambda paths: tell_next(settings.socket, paths))
        watch_modules(order.changes())
    if settings.ranges_from and settings.socket and settings.data_roots:
        from airflow_training.interception.ranges import RangedFiles, wrap_open

        wrap_open(RangedFiles(settings, lambda path: watch.run(watch.reads_ranges, path)))
    sys.addaudithook(_hook_of(watch))  # at last: what we open ourselves is nobody's load
    return watch


def _hook_of(watch: LoadWatch) -> Any:
    read: set[Any] = set()
    written: set[Any] = set()
    opened, run = watch.opened, watch.run

    def hook(event: str, args: Any) -> None:
        if event != "open":
            if event in others:
                run(others[event], *args)
            return
        try:
            path, _, flags = args
            known = written if flags & _WRITING else read
            if path in known:
                return
        except (TypeError, ValueError):  # a program may raise the event itself, with what it likes
            return
        if run(opened, path, flags):
            _remember(known, path)

    def moved(*_args: Any) -> None:
        read.clear()
        written.clear()

    others: dict[str, Callable[..., None]] = {
        "os.chdir": moved,
        "sqlite3.connect": lambda name: watch.reads(_database(name), "sqlite3.connect"),
        "os.rename": lambda path, *_: watch.fetch(path),
        "os.link": lambda path, *_: watch.fetch(path),
        "subprocess.Popen": lambda _, arguments, folder, *_more: watch.starts(arguments, folder),
        "os.posix_spawn": lambda _, arguments, *_more: watch.starts(arguments),
        "os.exec": lambda _, arguments, *_more: watch.starts(arguments),
        "os.system": watch.starts,
    }
    return hook


def _remember(known: set[Any], path: Any) -> None:
    if len(known) >= _REMEMBERED:
        known.clear()
    known.add(path)


def _words(command: str) -> list[str]:
    """Return what a shell would make of a command, as far as paths go; of a pattern the folder."""
    if not any(each in command for each in " \t\n;|<>&*?["):
        return []
    import shlex

    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        words = list(lexer)
    except ValueError:  # an open quotation mark
        words = command.split()
    found = []
    for word in words:
        plain = next((n for n, letter in enumerate(word) if letter in "*?[{"), None)
        found.append(word if plain is None else word[:plain].rpartition("/")[0] or ".")
    return found


def _database(name: Any) -> Any:
    """Return the path of a database that may be named by a URI."""
    if isinstance(name, str) and name.startswith("file:"):
        from urllib.parse import unquote, urlsplit

        return unquote(urlsplit(name).path)
    return name
