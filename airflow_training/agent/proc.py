"""Processes as Linux shows them: who they are, who descends from whom, how to signal the right one.

A pid alone names nothing: it is reused. Here a process is (boot id, pid namespace, pid, start time).
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path

__all__ = [
    "arguments_of",
    "become_subreaper",
    "boot_id",
    "cannot_run",
    "command_of",
    "cpu_seconds",
    "descendants",
    "die_with_parent",
    "ends_with_its_parent",
    "exit_code",
    "has_children",
    "is_stopped",
    "kill_exactly",
    "living_processes",
    "marked_processes",
    "open_pidfd",
    "parent_of",
    "pid_namespace",
    "process_identity",
    "session_members",
    "signal_processes",
    "start_time",
]

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PROC = Path("/proc")
_COMMAND_LENGTH = 60
_INTERPRETERS = frozenset({"bash", "dash", "node", "perl", "pypy", "python", "ruby", "sh", "zsh"})
_HELPERS = (
    b"from multiprocessing.resource_tracker import main",
    b"from multiprocessing.forkserver import main",
)
_PF_EXITING = 0x4
"""Of the flags in `/proc/PID/stat`; the kernel's `include/linux/sched.h`."""


def cannot_run(command: str, error: OSError) -> str:
    """Return why a command cannot be run, in the words of a shell."""
    if not isinstance(error, FileNotFoundError):
        return f"{command}: {error.strerror}"
    if "/" in command:
        there = os.path.exists(command)  # noqa: PTH110  # what runs after a fork stays small
        if not there:
            return f"{command}: {error.strerror}"
        return " ".join(
            filter(None, (f"{command}: its interpreter", _interpreter_of(command), "was not found"))
        )
    return f"{command}: command not found"


def _interpreter_of(script: str) -> str:
    """Return what the first line of a script names, with a carriage return that may stand there; "" for none."""
    try:
        with open(script, "rb") as file:  # noqa: PTH123  # what runs after a fork stays small
            first = file.read(256).partition(b"\n")[0]
    except OSError:
        return ""
    if not first.startswith(b"#!"):
        return ""
    name = first[2:].strip(b" \t").partition(b" ")[0].decode(errors="replace")
    return name if name.isprintable() else repr(name)


def exit_code(wait_status: int) -> int:
    """Return the exit code a shell would give: 128 plus the signal for a killed process."""
    if os.WIFSIGNALED(wait_status):
        return 128 + os.WTERMSIG(wait_status)
    return os.WEXITSTATUS(wait_status)


def boot_id() -> str:
    """Return the id the kernel took at boot; empty where it does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def pid_namespace() -> int:
    """Return the inode of this process's pid namespace: numbers mean the same only within one."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


def _stat(pid: int) -> tuple[str, int, int, int] | None:
    """Return (state, parent, session, start time in ticks) of a process, or None."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # the command's name stands in brackets and may hold anything, brackets too
    rest = text[text.rindex(b")") + 2 :].split()
    return rest[0].decode(), int(rest[1]), int(rest[3]), int(rest[19])


def start_time(pid: int) -> int | None:
    """Return when a living process started, in clock ticks since boot; None: none or a zombie."""
    found = _stat(pid)
    return None if found is None or found[0] in "ZX" else found[3]


def is_stopped(pid: int) -> bool:
    """Return whether a signal has stopped a process (state T): it does nothing until SIGCONT."""
    found = _stat(pid)
    return found is not None and found[0] == "T"


def cpu_seconds(pid: int) -> float:
    """Return for how long a process has computed, with the children that it waited for; 0 where there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0.0
    used = text[text.rindex(b")") + 2 :].split()[11:15]
    return sum(map(int, used)) / os.sysconf("SC_CLK_TCK")


def parent_of(pid: int) -> int | None:
    """Return the pid of a process's parent; None where there is no such process."""
    found = _stat(pid)
    return None if found is None else found[1]


def process_identity(pid: int) -> dict[str, object]:
    """Return everything that tells this process from any other, on any machine."""
    return {
        "pid": pid,
        "start_time": start_time(pid),
        "boot_id": boot_id(),
        "pid_ns": pid_namespace(),
        "host": socket.gethostname(),
    }


def _all() -> dict[int, tuple[str, int, int, int]]:
    found = {}
    for name in os.listdir(_PROC):  # noqa: PTH208  # thousands of entries: no Path objects
        if name.isdigit():
            stat = _stat(int(name))
            if stat is not None:
                found[int(name)] = stat
    return found


def has_children() -> bool:
    """Return whether this process has any child, zombies included: without one nobody descends."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def descendants(root: int) -> dict[int, int]:
    """Return pid -> start time of the living processes below `root`; zombies do not count."""
    processes = _all()
    children: dict[int, list[int]] = {}
    for pid, stat in processes.items():
        children.setdefault(stat[1], []).append(pid)
    found: dict[int, int] = {}
    todo = list(children.get(root, ()))
    while todo:
        pid = todo.pop(0)
        todo.extend(children.get(pid, ()))
        if processes[pid][0] not in "ZX":
            found[pid] = processes[pid][3]
    return found


def session_members(session: int) -> dict[int, int]:
    """Return pid -> start time of the living processes of a session."""
    return {p: s[3] for p, s in _all().items() if s[2] == session and s[0] not in "ZX"}


def marked_processes(markers: Iterable[str]) -> dict[int, int]:
    """Return pid -> start time of the living processes that were started with one of `markers`.

    A marker is `NAME=value` in the environment; other users' processes cannot be seen.
    """
    wanted = {marker.encode() for marker in markers}
    return {
        pid: start
        for pid, start in living_processes().items()
        if not wanted.isdisjoint(arguments_of(pid, "environ"))
    }


def living_processes() -> dict[int, int]:
    """Return pid -> start time of all living processes."""
    return {pid: stat[3] for pid, stat in _all().items() if stat[0] not in "ZX"}


def arguments_of(pid: int, name: str) -> list[bytes]:
    """Return the `environ` or the `cmdline` of a process; empty where it cannot be seen."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes().split(b"\0")
    except OSError:
        return []


def command_of(pid: int) -> str:
    """Program of a process, and the script that an interpreter runs, for people; all else may hold a secret."""
    words = [each.decode(errors="replace") for each in arguments_of(pid, "cmdline")[:2]]
    # a program may write a title of its own over its arguments: one text with blanks
    name = words[0].partition(" ")[0].rpartition("/")[2].rstrip(":") if words else ""
    if not name:  # its arguments cannot be seen
        try:
            name = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
        except OSError:
            return ""
    script = words[1].rpartition("/")[2] if len(words) > 1 else ""
    if script and not words[1].startswith("-") and name.rstrip("0123456789.") in _INTERPRETERS:
        name = f"{name} {script}"
    return "".join(each if each.isprintable() else "?" for each in name)[:_COMMAND_LENGTH]


def ends_with_its_parent(pid: int) -> bool:
    """Whether a process is on its way out, or a helper of Python's `multiprocessing`, which ends by itself.

    On its way out: the kernel takes its memory back (PF_EXITING), seconds long where that is on a GPU.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return True
    if int(text[text.rindex(b")") + 2 :].split()[6]) & _PF_EXITING:
        return True
    return any(each.startswith(_HELPERS) for each in arguments_of(pid, "cmdline"))


def open_pidfd(pid: int, start: int | None) -> int | None:
    """Return a descriptor of exactly the process that started at `start`, or None."""
    try:
        descriptor = os.pidfd_open(pid)
    except (OSError, AttributeError):
        return None
    # looked at after opening: from here on the descriptor cannot mean another process
    if start is None or start_time(pid) != start:
        os.close(descriptor)
        return None
    return descriptor


def kill_exactly(pid: int, start: int | None, number: int) -> bool:
    """Signal the process that started at `start`; False where it is not there any more."""
    if not hasattr(os, "pidfd_open"):  # Python 3.8: the number may change hands in between
        if start is None or start_time(pid) != start:
            return False
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return False
        return True
    descriptor = open_pidfd(pid, start)
    if descriptor is None:
        return False
    try:
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def signal_processes(processes: Mapping[int, int], *numbers: int) -> dict[int, int]:
    """Send signals to each of pid -> start time; returns those of another user, as below `sudo`, that may not get them."""

    def is_denied(pid: int, start: int) -> bool:
        try:
            for number in numbers:
                kill_exactly(pid, start, number)
        except PermissionError:
            return True
        return False

    return {pid: start for pid, start in processes.items() if is_denied(pid, start)}


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def become_subreaper() -> None:
    """Make orphans of all generations below become children of this process, not of init."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Let the kernel signal this process when its parent dies."""
    _prctl(_PR_SET_PDEATHSIG, int(number))
