"""Whether a command carries out the plan that its variables name, as far as that can be seen from beside it.

A script that calls `distribute` leaves a mark. One that reads the variables itself leaves none, so its text is
looked at: only where no file of it even mentions one is there something to tell. Python 3.8 and newer.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from airflow_training.agent.progress import MARK

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

__all__ = ["PlanUse"]

NAMES = (
    "TP_SIZE", "PP_SIZE", "DP_SIZE", "CP_SIZE", "EP_SIZE", "VIRTUAL_STAGES", "ZERO_STAGE",
    "SEQUENCE_PARALLEL", "MEGATRON_ARGS", "DEEPSPEED_CONFIG", "TORCHTITAN_CONFIG", "PLAN_FILE",
)  # fmt: skip
"""Variables of a plan that say how to split; others have names that any script may use."""
_MENTION = re.compile(
    rb"(?<![A-Za-z0-9_])(?:" + "|".join(NAMES).encode() + rb"|airflow_training\.execution)\b"
)
_MOST_FILES = 300
_MOST_BYTES = 8 << 20
_MOST_ENTRIES = 20_000
"""Of folders: data beside a script may be millions of files, on a slow disk."""
_SUFFIXES = (".py", ".sh", ".bash", ".yaml", ".yml", ".toml", ".cfg", ".ini")
"""Configuration files may take variables too, as `${oc.env:TP_SIZE}` does."""
_WORDS_FROM = 8
"""A value of so many characters is none by chance: `$(MEGATRON_ARGS)` comes to a pod's agent as its value."""
_PASSED_OVER = frozenset({"site-packages", "node_modules", "__pycache__"})
_MOST_SCRIPTS = 3
"""From a shell script to the next."""


class PlanUse:
    """Looks once at what a command runs, and at each record whether a mark was left."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        working_dir: str,
        environment: Mapping[str, str],
        progress: Path,
    ) -> None:
        self._command = list(command)
        self._folder = working_dir or os.getcwd()  # noqa: PTH109  # as the command means it
        self._has_plan = bool(environment.get("PLAN_FILE"))
        self._values = {name: environment.get(name, "") for name in NAMES}
        self._mark = progress.with_name(MARK)
        self._mentions: list[str] | None = None
        self._files = 0
        self._looked = False

    def document(self) -> dict[str, Any] | None:
        """What there is to record; None: there is no plan.

        `carried_out`: a mark was left; `mentions`: what the text names of the plan, None where it cannot be
        seen; `files`: how many were looked at.
        """
        if not self._has_plan:
            return None
        if not self._looked:
            self._looked = True
            self._mentions = self._look()
        return {
            "carried_out": self._mark.exists(),
            "mentions": self._mentions,
            "files": self._files,
        }

    def _look(self) -> list[str] | None:
        command = " ".join(self._command)
        found = {match.decode() for match in _MENTION.findall(command.encode(errors="replace"))}
        found |= {
            name
            for name, value in self._values.items()
            if len(value) >= _WORDS_FROM and value in command
        }
        scripts = list(_scripts(self._command, self._folder))
        seen: set[str] = set(scripts)
        python = [script for script in scripts if script.endswith(".py")]
        # a script imports from its own folder; with -m, PYTHONPATH or an installation, from the working folder
        folders = {os.path.dirname(script) for script in python}  # noqa: PTH120  # paths are text here
        for folder in folders | {self._folder} if python else ():
            files = _sources(folder)
            if files is None:
                return sorted(found) or None
            seen.update(files)
        if len(seen) > _MOST_FILES:
            return sorted(found) or None
        left = _MOST_BYTES
        for file in sorted(seen):
            content = _read(file, left)
            if content is None:
                return sorted(found) or None
            left -= len(content)
            found.update(match.decode() for match in _MENTION.findall(content))
        self._files = len(seen)
        # a program that is no Python here may do anything with its variables
        return sorted(found) if found or python else None


def _read(file: str, most: int) -> bytes | None:
    """Read a file; None: it cannot be read, or is longer."""
    try:
        with open(file, "rb") as opened:  # noqa: PTH123  # pathlib costs as much
            content = opened.read(most + 1)
    except OSError:
        return None
    return content if len(content) <= most else None


def _scripts(words: Sequence[str], folder: str, depth: int = 0) -> Iterator[str]:
    """Yield the files that words of a command name, those of a shell script too."""
    tokens = [token.strip("'\";") for word in words for token in word.split()]
    before = ""
    for token in tokens:
        if before == "-m":
            yield from _module(token, folder)
        path = os.path.join(folder, token)  # noqa: PTH118  # an absolute token replaces the folder
        before = token
        if not token or not os.path.isfile(path):  # noqa: PTH113  # as above
            continue
        if token.endswith(".py"):
            yield path
        elif token.endswith((".sh", ".bash")) and depth < _MOST_SCRIPTS:
            yield path
            content = _read(path, _MOST_BYTES)
            if content is not None:
                yield from _scripts([content.decode(errors="replace")], folder, depth + 1)


def _module(name: str, folder: str) -> Iterator[str]:
    path = Path(folder, *name.split("."))
    for file in (path.with_suffix(".py"), path / "__main__.py") if path.name else ():
        if file.is_file():
            yield str(file)


def _sources(top: str) -> set[str] | None:
    """List the texts of a project below a folder; None: there are too many, or too much beside them."""
    found: set[str] = set()
    left, entries = [top], 0
    while left:
        folder = left.pop()
        try:
            with os.scandir(folder) as listed:
                for entry in listed:
                    entries += 1
                    if entries > _MOST_ENTRIES or len(found) > _MOST_FILES:
                        return None
                    if entry.name.startswith(".") or entry.name in _PASSED_OVER:
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        if not os.path.exists(os.path.join(entry.path, "pyvenv.cfg")):  # noqa: PTH110, PTH118  # as text
                            left.append(entry.path)
                    elif entry.name.endswith(_SUFFIXES) and entry.is_file():
                        found.add(entry.path)
        except OSError:
            continue  # what the agent may not list, the command may not import
    return found
