"""Makes the code of a job ready in a child of the agent: its tree, and the packages that the image lacks.

Python 3.8 and newer, standard library only.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

from airflow_training.agent.code_tree import TreeError, changed_files, lay_out_code
from airflow_training.agent.upload import may_pass

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from airflow_training.agent.loop import Loop

__all__ = ["CHANGES_FILE", "CHANGES_FOLDER", "CodeSetup", "changes_to_upload", "packages_dir"]

CHANGES_FOLDER = "code"
"""Folder of the job's output that has what the run wrote below its code."""
CHANGES_FILE = "code.json"
"""File of the job's output that lists them: `{"files": [{"path", "size", "sha256"}]}`."""
_WAITS_SECONDS = (1.0, 5.0, 20.0)
"""Before each further try of a storage that is away."""
_LONGEST_WORDS = 1500
_BLOCK = 1 << 20


class CodeSetup:
    """Prepares the code of one attempt."""

    def __init__(
        self,
        code: Mapping[str, Any],
        folder: Path,
        *,
        loop: Loop,
        environment: Mapping[str, str],
        log: int,
    ) -> None:
        """`environment`: of the command; it has the credentials of the storage. `log`: where installers speak."""
        self._code = code
        self._folder = folder
        self._loop = loop
        self._environment = environment
        self._log = log

    def start(self, done: Callable[[str, str], None]) -> None:
        """Have it made in a child; `done` gets reason and message of a failure, two empty texts for none."""
        read, write = os.pipe()

        def work() -> None:
            os.environ.update(self._environment)
            answer = ["CodeFailed", "it was killed"]
            try:
                self._lay_out()
                self._install()
                answer = ["", ""]
            except TreeError as error:
                answer = ["CodeDamaged", f"{error}; nothing of it was executed"]
            except _InstallError as error:
                answer = ["PackagesFailed", str(error)]
            except BaseException as error:  # noqa: BLE001  # whatever a storage client raises
                answer = [
                    "CodeFailed",
                    f"the code cannot be fetched from {self._code['uri']}: {error!r}",
                ]
            os.write(write, json.dumps(answer).encode())

        def ended(_: int) -> None:
            with os.fdopen(read, "rb") as pipe:
                reason, message = json.loads(pipe.read() or b'["CodeFailed", "it was killed"]')
            done(reason, message)

        self._loop.fork(work, ended=ended)
        os.close(write)

    def _lay_out(self) -> None:
        for wait in _WAITS_SECONDS:
            if self._is_laid_out():
                return
            time.sleep(wait)
        lay_out_code(self._code["uri"], self._code["digest"], self._folder)

    def _is_laid_out(self) -> bool:
        """Try it; False where the storage may only be away for a moment."""
        try:
            lay_out_code(self._code["uri"], self._code["digest"], self._folder)
        except Exception as error:
            if isinstance(error, TreeError) or not may_pass(error):
                raise
            return False
        return True

    def _install(self) -> None:
        """Install what the image lacks beside the tree, each package as the job names it and nothing else."""
        packages: Sequence[str] = self._code.get("packages") or ()
        target = packages_dir(self._folder)
        shutil.rmtree(str(target), ignore_errors=True)
        if not packages:
            return
        python = self._code.get("python") or "python3"
        file = self._folder.with_name(f"{self._folder.name}.requirements.txt")
        # one hash makes pip demand one of every line: those with and those without go apart
        for lines in ([x for x in packages if "--hash=" in x], [x for x in packages if "--hash=" not in x]):  # fmt: skip
            if not lines:
                continue
            file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            command = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-input"]
            command += ["--disable-pip-version-check", "--target", str(target)]
            self._run([*command, "--requirement", str(file)])

    def _run(self, command: Sequence[str]) -> None:
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
            )
        except OSError as error:
            raise _InstallError(
                f"no packages can be installed: {command[0]}: {error.strerror}"
            ) from error
        if done.returncode:
            os.write(self._log, done.stdout)
            words = done.stdout.decode(errors="replace").strip()[-_LONGEST_WORDS:]
            raise _InstallError(f"what the image lacks cannot be installed: {words}")


class _InstallError(Exception):
    """An installer has failed; the message has its words."""


def packages_dir(folder: Path) -> Path:
    """Where packages are that were installed for the code in a folder."""
    return folder.with_name(f"{folder.name}-packages")


def changes_to_upload(folder: Path) -> dict[str, Path]:
    """What a run wrote below its code, by its name in the job's output, with the list of it."""
    changed = changed_files(folder)
    rows = [
        {"path": name, "size": path.stat().st_size, "sha256": _digest(path)}
        for name, path in changed.items()
    ]
    told = folder.with_name(f"{folder.name}.changes.json")
    told.write_text(json.dumps({"files": rows}), encoding="utf-8")
    found = {f"{CHANGES_FOLDER}/{name}": path for name, path in changed.items()}
    return {CHANGES_FILE: told, **found}


def _digest(path: Path) -> str:
    import hashlib

    found = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(_BLOCK):
            found.update(data)
    return found.hexdigest()
