"""Starts one container: own mounts, host name and processes, then the command as process 1.

Run as `python -I -S container_init.py SPEC.json PIPE`, it stays as the container's parent: TERM is
passed on, USR1 kills. It knows only the standard library and dies with the emulator.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
from typing import Any

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWUSER, CLONE_NEWPID = (
    0x00020000, 0x04000000, 0x10000000, 0x20000000,
)  # fmt: skip
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
LOCKED = {2: 2, 4: 4, 8: 8, 1024: 1024, 2048: 2048}
"""nosuid, nodev, noexec, noatime, nodiratime: a remount in a user namespace must keep them."""
PR_SET_PDEATHSIG = 1
START_ERROR = 128
PASSED_ON = (signal.SIGTERM, signal.SIGUSR1)

libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source: str, target: str, kind: str = "", flags: int = 0) -> None:
    result = libc.mount(
        source.encode(), target.encode(), kind.encode() or None, ctypes.c_ulong(flags), None
    )
    check(result, f"mount {source} on {target}")


def bind(source: str, target: str, *, read_only: bool = False) -> None:
    mount(source, target, flags=MS_BIND | MS_REC)
    if read_only:
        kept = os.statvfs(target).f_flag
        flags = sum(flag for flag in LOCKED if kept & flag)
        mount("none", target, flags=MS_REMOUNT | MS_BIND | MS_RDONLY | flags)


def own_namespaces(spec: dict[str, Any]) -> None:
    uid, gid = os.getuid(), os.getgid()
    flags = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWPID
    if uid != 0:
        flags |= CLONE_NEWUSER
    check(libc.unshare(flags), "unshare")
    if uid != 0:
        for name, text in (
            ("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1"),
        ):  # fmt: skip
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    mount("none", "/", flags=MS_REC | MS_PRIVATE)
    name = spec["hostname"].encode()
    check(libc.sethostname(name, len(name)), "sethostname")


def point(path: str, *, folder: bool) -> None:
    """Make something to mount on."""
    if os.path.lexists(path):
        return
    os.makedirs(path if folder else os.path.dirname(path), exist_ok=True)
    if not folder:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))


def mirror(path: str, root: str, opened: set[str]) -> None:
    """Show the host's `path` under `root`: what is `opened` entry by entry, all else bound."""
    for entry in sorted(os.listdir(path)):
        source = os.path.join(path, entry)
        target = root + source
        if source in ("/proc", root):
            os.makedirs(target, exist_ok=True)
        elif os.path.islink(source):
            os.symlink(os.readlink(source), target)
        elif source in opened:
            os.makedirs(target, exist_ok=True)
            mirror(source, root, opened)
        else:
            point(target, folder=os.path.isdir(source))
            bind(source, target)


def resolved(path: str) -> str:
    """Return a path with the links of its folders followed, but not of itself."""
    parent, name = os.path.split(os.path.normpath(path))
    return os.path.join(os.path.realpath(parent), name)


def build_root(spec: dict[str, Any]) -> None:
    root = spec["root"]
    mounts = [{**one, "target": resolved(one["target"])} for one in spec["mounts"]]
    mounts.sort(key=lambda one: one["target"].count("/"))
    inside = [one["target"] + "/" for one in mounts]
    wanted = [one["target"] for one in mounts] + [resolved(spec["cwd"])]
    opened = {"/"}
    for target in wanted:
        if os.path.exists(target) or any(target.startswith(one) for one in inside):
            continue
        while not os.path.isdir(target):
            target = os.path.dirname(target)
        while target != "/":
            opened.add(target)
            target = os.path.dirname(target)
    mount("tmpfs", root, "tmpfs")
    mirror("/", root, opened)
    for one in mounts:
        target = root + one["target"]
        point(target, folder=os.path.isdir(one["source"]))
        bind(one["source"], target, read_only=one["read_only"])
    os.makedirs(root + resolved(spec["cwd"]), exist_ok=True)


def become(spec: dict[str, Any], parent: int) -> None:
    """Be process 1 of the container: returns only by raising. `parent` reads what is written there."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    poll = select.poll()
    poll.register(parent, 0)
    if poll.poll(0):  # nobody reads: the parent died before its death could have told us
        os._exit(START_ERROR)
    os.chroot(spec["root"])
    mount("proc", "/proc", "proc")
    os.chdir(spec["cwd"])
    for number in (*PASSED_ON, signal.SIGPIPE, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    os.execvpe(spec["argv"][0], spec["argv"], spec["env"])


def failed(spec: dict[str, Any], error: Exception) -> None:
    with open(spec["error_file"], "w") as file:
        file.write(str(error))


def main() -> int:
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    with open(sys.argv[1]) as file:
        spec = json.load(file)
    child = 0

    def pass_on(number: int, _frame: object) -> None:
        forwarded = signal.SIGKILL if number == signal.SIGUSR1 else number
        if not child:
            os._exit(128 + forwarded)
        os.kill(child, forwarded)

    for number in PASSED_ON:
        signal.signal(number, pass_on)
    os.set_inheritable(int(sys.argv[2]), False)
    error_pipe, error_end = os.pipe()
    try:
        own_namespaces(spec)
        build_root(spec)
    except OSError as error:
        failed(spec, error)
        return START_ERROR
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)  # whom they go to is not known until then
    child = os.fork()
    if child == 0:
        os.close(error_pipe)
        try:
            become(spec, error_end)
        except Exception as error:  # noqa: BLE001 - whatever it is, the pod's status says it
            os.write(error_end, str(error).encode())
        os._exit(START_ERROR)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    os.close(error_end)
    message = os.read(error_pipe, 4096)  # ends without a byte when the command runs
    os.write(int(sys.argv[2]), b"1")
    os.close(int(sys.argv[2]))
    if message:
        failed(spec, RuntimeError(message.decode()))
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(main())
