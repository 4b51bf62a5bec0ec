"""Makes the code of a job ready in a child of the agent: its tree, and the packages that the image lacks.

Python 3.8 and newer, standard library only.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

from airflow_training.agent.code_tree import (
    TreeError,
    add_known_files,
    changed_files,
    lay_out_archive,
    lay_out_code,
    remove_folder,
)
from airflow_training.agent.data_fetcher import listed_files
from airflow_training.agent.upload import may_pass

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from airflow_training.agent.loop import Loop

__all__ = [
    "CHANGES_FILE",
    "CHANGES_FOLDER",
    "CodeSetup",
    "changes_to_upload",
    "packages_dirs",
    "packages_folder",
]

CHANGES_FOLDER = "code"
"""Folder of the job's output that has what the run wrote below its code."""
CHANGES_FILE = "code.json"
"""File of the job's output that lists them: `{"files": [{"path", "size", "sha256"}]}`."""
_WAITS_SECONDS = (1.0, 5.0, 20.0, 60.0, 60.0, 60.0, 60.0)
"""Before each further try of a storage that is away: a script that is not restarted begins once only."""
_INDEX_WAITS_SECONDS = (5.0, 30.0)
"""The same of an index of packages, which an installer has asked several times by then."""
_LONGEST_WORDS = 1500
_LONGEST_ANSWER = 2000
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

        def work() -> list[str]:
            os.environ.update(self._environment)
            answer = self._made()
            words = [each.encode(errors="backslashreplace").decode() for each in answer]
            return [each[:_LONGEST_ANSWER] for each in words]

        self._loop.ask(work, then=lambda told: done(*(told or ("CodeFailed", "it was killed"))))

    def _made(self) -> tuple[str, str]:
        """Make it; return reason and message of a failure, two empty texts for none."""
        try:
            self._lay_out()
            self._install()
        except TreeError as error:
            return "CodeDamaged", f"{error}; nothing of it was executed"
        except _InstallError as error:
            return "CodeFailed" if may_pass(error) else "PackagesFailed", str(error)
        except BaseException as error:  # noqa: BLE001  # whatever a storage client raises
            return "CodeFailed", f"the code cannot be fetched from {self._code['uri']}: {error!r}"
        return "", ""

    def _lay_out(self) -> None:
        uri, digest = self._code["uri"], self._code["digest"]
        self._try(lambda: lay_out_code(uri, digest, self._folder), waits=_WAITS_SECONDS)
        add_known_files(self._folder, listed_files(self._folder))

    def _try(self, work: Callable[[], object], *, waits: Sequence[float]) -> None:
        """Do it, again where what it needs may only be away for a moment."""
        for wait in waits:
            if self._succeeds(work, wait=wait):
                return
            time.sleep(wait)
        work()

    def _succeeds(self, work: Callable[[], object], *, wait: float) -> bool:
        try:
            work()
        except Exception as error:
            if isinstance(error, TreeError) or not may_pass(error):
                raise
            words = str(error) if isinstance(error, _InstallError) else repr(error)
            told = f"the code is not here yet: {words}"[:_LONGEST_WORDS]
            text = f"airflow-training: {told}; next try in {wait:g} s\n"
            os.write(self._log, text.encode(errors="backslashreplace"))
            return False
        return True

    def _install(self) -> None:
        """Put what the image lacks beside the tree: as it was installed once, or each package as the job names it and nothing else."""
        archive = self._code.get("archive")
        if archive:
            digest = archive["digest"].partition(":")[2]
            uri, folder = self._code["uri"], packages_folder(self._folder)
            self._try(
                lambda: lay_out_archive(uri, archive["path"], digest, folder), waits=_WAITS_SECONDS
            )
            return
        packages: Sequence[str] = self._code.get("packages") or ()
        targets = packages_dirs(self._folder)
        for target in targets:
            remove_folder(target)
        python = self._code.get("python") or "python3"
        file = self._folder.with_name(f"{self._folder.name}.requirements.txt")
        # one hash makes pip demand one of every line: those with and those without go apart, each into a
        # folder of its own, as pip leaves out what is called like something in its target
        groups = ([x for x in packages if "--hash=" in x], [x for x in packages if "--hash=" not in x])  # fmt: skip
        for target, lines in zip(targets, groups):  # noqa: B905 - Python 3.8 knows no `strict`
            if not lines:
                continue
            file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            command = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-input"]
            command += ["--disable-pip-version-check", "--target", str(target)]
            command += ["--requirement", str(file)]

            def install(words: Sequence[str] = command, target: Path = target) -> None:
                remove_folder(target)  # of a try before
                self._run(words)

            self._try(install, waits=_INDEX_WAITS_SECONDS)

    def _run(self, command: Sequence[str]) -> None:
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
                # a module of the code that is called like one of pip's is not for pip
                env={name: text for name, text in os.environ.items() if name != "PYTHONPATH"},
            )
        except OSError as error:
            raise _InstallError(
                f"no packages can be installed: {command[0]}: {error.strerror}"
            ) from error
        if done.returncode:
            os.write(self._log, done.stdout)
            words = done.stdout.decode(errors="replace").strip()
            errors = [line for line in words.splitlines() if line.startswith("ERROR:")]
            told = "\n".join(errors) or words  # its warnings stand in the log
            raise _InstallError(
                f"what the image lacks cannot be installed: {told[-_LONGEST_WORDS:]}", words
            )


class _InstallError(Exception):
    """An installer has failed: the message, and all its words, by which `may_pass` judges."""

    def __str__(self) -> str:
        return str(self.args[0])


def packages_folder(folder: Path) -> Path:
    """Where packages are that were installed for the code in a folder."""
    return folder.with_name(f"{folder.name}-packages")


def packages_dirs(folder: Path) -> Sequence[Path]:
    """The parts of `packages_folder`: those with a hash, and those without."""
    return [packages_folder(folder) / each for each in ("hashed", "unhashed")]


def changes_to_upload(folder: Path) -> dict[str, Path]:
    """What a run wrote below its code, by its name in the job's output, with the list of it."""
    changed = changed_files(folder)
    rows = [change_row(name, path) for name, path in changed.items()]
    told = folder.with_name(f"{folder.name}.changes.json")
    told.write_text(changes_text(rows), encoding="utf-8")
    found = {f"{CHANGES_FOLDER}/{name}": path for name, path in changed.items()}
    return {CHANGES_FILE: told, **found}


def change_row(name: str, path: Path) -> dict[str, Any]:
    """The row of a file in the list of what a run wrote below its code."""
    return {"path": name, "size": path.stat().st_size, "sha256": _digest(path)}


def changes_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """The list of what a run wrote below its code, as `CHANGES_FILE` has it."""
    return json.dumps({"files": [*rows]})


def _digest(path: Path) -> str:
    import hashlib

    found = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(_BLOCK):
            found.update(data)
    return found.hexdigest()
