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

LIBRARY = "airflow_training.execution"
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
        text = "\n".join(self._command).encode(errors="replace")
        found = {match.decode() for match in _MENTION.findall(text)}
        scripts = list(_scripts(self._command, self._folder))
        seen = {file for script in scripts for file in _sources(script)}
        if len(seen) > _MOST_FILES:
            return None
        left, is_python = _MOST_BYTES, False
        for file in sorted(seen):
            try:
                with open(file, "rb") as opened:  # noqa: PTH123  # pathlib costs as much
                    content = opened.read(left + 1)
            except OSError:
                return None
            left -= len(content)
            if left < 0:
                return None
            is_python |= file.endswith(".py")
            found.update(match.decode() for match in _MENTION.findall(content))
        self._files = len(seen)
        # a program that is no Python here may do anything with its variables
        return sorted(found) if found or is_python else None


def _scripts(words: Sequence[str], folder: str, depth: int = 0) -> Iterator[str]:
    """Yield the files that words of a command name, those of a shell script too."""
    tokens = [token.strip("'\";") for word in words for token in word.split()]
    before = ""
    for token in tokens:
        if before == "-m":
            yield from _module(token, folder)
        path = os.path.join(folder, token)  # noqa: PTH118  # an absolute token replaces the folder
        before = token
        if not token or not os.path.isfile(path):  # noqa: PTH113
            continue
        if token.endswith(".py"):
            yield path
        elif token.endswith((".sh", ".bash")) and depth < _MOST_SCRIPTS:
            yield path
            try:
                text = Path(path).read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            yield from _scripts([text], folder, depth + 1)


def _module(name: str, folder: str) -> Iterator[str]:
    path = Path(folder, *name.split("."))
    for file in (path.with_suffix(".py"), path / "__main__.py") if path.name else ():
        if file.is_file():
            yield str(file)


def _sources(script: str) -> Iterator[str]:
    """Yield a script, and the Python below its folder, which it may import."""
    yield script
    if not script.endswith(".py"):
        return
    count = 0
    for folder, folders, files in os.walk(os.path.dirname(script)):  # noqa: PTH120
        folders[:] = [
            each
            for each in folders
            if not each.startswith(".")
            and each not in _PASSED_OVER
            and not os.path.exists(os.path.join(folder, each, "pyvenv.cfg"))  # noqa: PTH110, PTH118
        ]
        for each in files:
            if each.endswith(".py"):
                count += 1
                yield os.path.join(folder, each)  # noqa: PTH118
        if count > _MOST_FILES:
            return
