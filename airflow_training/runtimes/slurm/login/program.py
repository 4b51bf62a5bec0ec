"""The program that answers on a login node: what `SlurmRuntime` is made of, as one file for any Python from 3.10 on."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import lru_cache

from airflow_training.agent.package import own_files, pack_sources

__all__ = ["MARK", "bootstrap_command", "connected_command", "program"]

MARK = "airflow-training-login "
"""Before the first lines of the other end: what a login shell prints besides is passed over."""
_UNUSED_SECONDS = 7 * 24 * 3600.0
"""After which a program there that nobody has used is deleted: each version of us has another."""
_PACKAGES = (
    "agent",
    "checkpoints",
    "control",
    "environments",
    "interception",
    "interception/bootstrap",
    "networks/trainer",
    "runtimes/folders",
    "runtimes/slurm",
    "runtimes/slurm/login",
)
_SINGLE_FILES = (
    "builtin_runtimes.py",
    "cloud/__init__.py",
    "documents/__init__.py",
    "documents/instances.py",
    "documents/merge.py",
    "documents/quantities.py",
    "documents/resolved.py",
    "documents/resolved_blocks.py",
    "documents/shapes.py",
    "documents/stop_conditions.py",
    "documents/text.py",
    "errors.py",
    "frameworks/__init__.py",
    "frameworks/pods.py",
    "networks/__init__.py",
    "runtimes/__init__.py",
    "runtimes/agent_reasons.py",
    "runtimes/clock.py",
    "runtimes/environment_orders.py",
    "runtimes/port.py",
    "runtimes/progress.py",
    "runtimes/terminal.py",
    "settings.py",
)
_ENTRY = b"""import sys

from airflow_training.runtimes.slurm.login.server import main

sys.exit(main(sys.argv[1], sys.argv[2:]))
"""
_BOOTSTRAP = """\
import json, os, sys, time
mark, name, size, folder, more = {mark!r}, {name!r}, {size}, {folder!r}, {more!r}
def say(**what):
    os.write(1, (mark + json.dumps(what) + "\\n").encode())
if sys.version_info < (3, 10):
    say(old=sys.version.split()[0], path=sys.executable)
    sys.exit(3)
folder = os.path.expanduser(folder)
path = os.path.join(folder, ".agent", name)
try:
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    if os.stat(os.path.dirname(path)).st_uid != os.getuid():
        say(failed=os.path.dirname(path) + " belongs to another user")
        sys.exit(5)
    try:
        os.utime(path)  # used now: nobody deletes it
    except FileNotFoundError:
        say(need=name)
        part = path + "." + os.urandom(6).hex()
        with open(part, "wb") as file:
            while size:
                data = os.read(0, min(size, 1 << 16))
                if not data:
                    os.unlink(part)
                    sys.exit(4)
                size -= len(data)
                file.write(data)
        os.replace(part, path)
    for each in os.scandir(os.path.dirname(path)):
        try:
            if each.name.startswith("login-") and time.time() - each.stat().st_mtime > {unused!r}:
                os.unlink(each.path)
        except FileNotFoundError:
            pass  # by another login
except OSError as error:
    say(failed=str(error))
    sys.exit(5)
os.execv(sys.executable, [sys.executable, "-I", "-S", path, folder, *more])
"""
_LIVES_WITH_CONNECTION = """\
import json, select, signal, subprocess, sys
words = json.loads({words!r})
connection = select.poll()
connection.register(1, 0)  # that nobody reads any more is told all the same
signal.signal(signal.SIGINT, lambda *_: None)  # that of the terminal is for what runs there
try:
    child = subprocess.Popen(words)
except OSError as error:
    sys.exit(words[0] + ": " + str(error.strerror))
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda *_: child.terminate())
while True:
    try:
        code = child.wait(1)
        break
    except subprocess.TimeoutExpired:
        if connection.poll(0):
            child.terminate()
sys.exit(code if code >= 0 else 128 - code)
"""


@lru_cache(maxsize=1)
def program() -> bytes:
    """Return the packed program; the same bytes for the same version of us."""
    files = own_files(_PACKAGES, _SINGLE_FILES)
    files["airflow_training/__init__.py"] = b""
    return pack_sources([("__main__.py", _ENTRY), *sorted(files.items())])


def bootstrap_command(*, python: str, folder: str, inherit: Sequence[str] = ()) -> str:
    """Return the command line for the login node: it asks for the program where it is not there, and becomes it.

    `python` is a word of the shell there; `inherit`: names of variables, as `SlurmRuntime` takes them. Nothing in it means something to another shell than `sh`.
    """
    packed = program()
    name = f"login-{hashlib.sha256(packed).hexdigest()[:16]}.pyz"
    text = _BOOTSTRAP.format(
        mark=MARK,
        name=name,
        size=len(packed),
        folder=folder,
        more=list(inherit),
        unused=_UNUSED_SECONDS,
    )
    return _python_command(python, text)


def connected_command(words: Sequence[str], *, python: str) -> str:
    """Return the command line that runs a command on the login node, and ends it when the connection is gone.

    sshd ends by itself only what has a terminal.
    """
    return _python_command(python, _LIVES_WITH_CONNECTION.format(words=json.dumps(list(words))))


def _python_command(python: str, text: str) -> str:
    code = base64.b64encode(text.encode()).decode()
    return f"exec {python} -I -c \"import base64;exec(base64.b64decode('{code}'))\""
