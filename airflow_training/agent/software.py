"""Which Python an instance runs, and which packages that one finds. Linux only, Python 3.8 and newer.

The interpreter itself is asked, once, in a child: only it knows where it looks for packages. Nothing
of the training is imported for that; names of files say what is installed.
"""

from __future__ import annotations

import json
import os
import shutil
from functools import partial
from pathlib import Path

from airflow_training.agent import proc
from airflow_training.agent.child_calls import LONGEST_TEXT, ChildCall
from airflow_training.agent.gpu_libraries import gpu_libraries, nvidia_driver

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from airflow_training.agent.parameters import ParametersFile

__all__ = ["MOST_BYTES", "SoftwareWatch"]

MOST_BYTES = 20 << 10
"""Of the line, beside which there is room for parameters: a report of a pod has room for both beside all else."""
_PATIENCE_SECONDS = 42.0
"""Of which the tool of a driver may take eleven."""
_LONGEST_ANSWER = 1 << 20
_OS_RELEASE = Path("/etc/os-release")

_QUESTION = r"""
import io, json, os, re, sys
found, torch = {}, ""
for folder in sys.path:
    try:
        names = sorted(os.listdir(folder or "."))
    except OSError:
        continue
    for name in names:
        match = re.match(r"(.+?)-([^-]+)(-py[0-9.]+)?\.(dist|egg)-info$", name)
        if match:
            found.setdefault(re.sub("[-_.]+", "-", match.group(1)).lower(), match.group(2))
    if "torch" in names and not torch:
        try:
            with io.open(os.path.join(folder or ".", "torch", "version.py"), encoding="utf-8", errors="replace") as file:
                torch = file.read(10000)
        except OSError:
            pass
print()
print(json.dumps({"torch": torch, "python": sys.version.split()[0], "implementation": sys.implementation.name, "packages": found}))
"""


class SoftwareWatch:
    """Asks the first Python that it is shown; never waits for it."""

    def __init__(self) -> None:
        self.line = ""
        """What it answered, as a record of its own; "" until then."""
        self._call: ChildCall | None = None
        self._over = False
        self._made_of = ""
        """The line that `_record` was made of."""
        self._record = ""

    def poll(self, pids: Iterable[int]) -> None:
        """Take in what was answered; where nobody was asked, ask the first of these that is a Python."""
        if self._over:
            return
        if self._call is not None:
            self._collect(self._call)
            return
        for pid in pids:
            python = _python_of(pid)
            if python is not None:
                self._call = ChildCall(partial(_ask, pid, python), on_error=lambda _: {})
                self._call.put()
                return

    def record(self, parameters: ParametersFile) -> str:
        """Return the record of this Python and of what the training was set to; "" where neither has told anything."""
        if parameters.poll() or self._made_of != self.line:
            self._made_of = self.line
            told = {"parameters": parameters.document} if parameters.document else {}
            document = json.loads(self.line or '{"on": "software"}')
            self._record = json.dumps({**document, **told}, separators=(",", ":"))
            if not told:
                self._record = self.line
        return self._record

    def finish(self) -> None:
        """Take in what was answered; nothing of it lives on."""
        if self._call is not None and not self._over:
            self._collect(self._call)
            self._call.give_up()
        self._over = True

    def _collect(self, call: ChildCall) -> None:
        answer = call.answer()
        if answer is not None:
            self._over = True
            self.line = _line_of(answer)
        elif call.age > _PATIENCE_SECONDS:
            self._over = True
            call.give_up()


def _python_of(pid: int) -> str | None:
    """Return how the Python that a process runs was called; None where it runs none.

    Not the file that it is: that of a virtual environment is a link, and would not know of it.
    """
    try:
        program = Path(os.readlink(f"/proc/{pid}/exe"))  # noqa: PTH115  # `Path.readlink` came with Python 3.9
        if not program.name.startswith(("python", "pypy")):
            return None
        called = os.fsdecode(next(iter(proc.arguments_of(pid, "cmdline")), b""))
        if "/" in called:
            found: str | None = str(Path(os.readlink(f"/proc/{pid}/cwd"), called))  # noqa: PTH115  # as above
        else:
            found = shutil.which(called, path=_environment_of(pid).get("PATH", os.defpath))
        # a program may call itself as it likes
        if found is not None and Path(found).samefile(program):
            return found
    except OSError:  # it has ended, or what it was called by is gone
        return None
    return str(program)


def _environment_of(pid: int) -> dict[str, str]:
    pairs = (os.fsdecode(each).partition("=") for each in proc.arguments_of(pid, "environ"))
    return {name: value for name, equals, value in pairs if equals}


def _ask(pid: int, python: str) -> dict[str, Any]:
    """Return what this Python says, with the surroundings of the process; raises what goes wrong."""
    import subprocess

    environment = _environment_of(pid)
    printed = subprocess.run(
        [python, "-c", _QUESTION],
        check=True,
        cwd=f"/proc/{pid}/cwd",
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ).stdout
    # what is imported at every start may print too, before
    answer: dict[str, Any] = json.loads(printed[-_LONGEST_ANSWER:].splitlines()[-1])
    libraries = gpu_libraries(answer["packages"], answer.pop("torch"), environment)
    driver = nvidia_driver()
    return {
        **answer,
        "executable": python,
        "system": _system(),
        "machine": os.uname().machine,
        "gpu": {**libraries, **({"driver": driver} if driver else {})},
    }


def _system() -> str:
    """Return the name of the distribution, which in a container is that of its image."""
    for line in _OS_RELEASE.read_text().splitlines() if _OS_RELEASE.exists() else ():
        name, _, value = line.partition("=")
        if name == "PRETTY_NAME":
            return value.strip('"')[:LONGEST_TEXT]
    return ""


def _line_of(answer: bytes) -> str:
    """Return the record of an answer, with as many packages as there is room for; "" where it is none."""
    try:
        found = json.loads(answer)
        packages = sorted(found.pop("packages").items())
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        return ""
    kept = len(packages)
    while True:
        record = {
            "on": "software",
            **found,
            "packages": dict(packages[:kept]),
            "left_out": len(packages) - kept,
        }
        line = json.dumps(record, separators=(",", ":"))
        if len(line) <= MOST_BYTES or not kept:
            return line
        kept -= kept // 8 + 1
