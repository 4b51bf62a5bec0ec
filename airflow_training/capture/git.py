"""What git says of a folder: which files are tracked or new, which are ignored, which commit. Asks the program, changes nothing."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["GitError", "GitState", "git_state", "ignored_names", "listed_files", "repository_top"]

_CALM = ("-c", "core.fsmonitor=false", "-c", "core.quotePath=false")
"""A repository's configuration can name programs to run when it is looked at."""
_OF_ANOTHER_REPOSITORY = frozenset(
    (
        "GIT_DIR",
        "GIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_PREFIX",
        "GIT_COMMON_DIR",
        "GIT_NAMESPACE",
        "GIT_OBJECT_DIRECTORY",
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_CEILING_DIRECTORIES",
        "GIT_LITERAL_PATHSPECS",
    )
)
"""git sets some for the hooks that it runs, and a hook may start a training."""
_TIMEOUT_SECONDS = 60


class GitError(Exception):
    """git is not there, or refuses to look at the folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GitState:
    """Where the captured files come from: information only, as the files themselves travel."""

    commit: str = ""
    """Hexadecimal; empty before the first commit."""
    branch: str = ""
    """Empty where HEAD is detached."""
    changed: int = 0
    """Tracked files that differ from the commit, staged or not."""


def repository_top(folder: Path) -> Path | None:
    """The work tree that holds a folder, by the `.git` in it or above it."""
    for each in (folder, *folder.parents):
        if (each / ".git").exists():
            return each
    return None


def listed_files(folder: Path) -> Sequence[str]:
    """Tracked and new files that git does not ignore, relative to the folder. A repository inside of it ends with `/` or is a folder."""
    # a file in conflict is listed once for each of its stages
    return sorted({*_ask(folder, "ls-files", "-co", "--exclude-standard", "-z")})


def ignored_names(folder: Path) -> Sequence[str]:
    """New files that git ignores; folders that are ignored as a whole end with `/`."""
    return _ask(folder, "ls-files", "-oi", "--exclude-standard", "--directory", "-z")


def git_state(folder: Path) -> GitState:
    """The commit, the branch and how many tracked files differ."""
    lines = _ask(folder, "status", "--porcelain=v2", "--branch", "-uno", "-z")
    heads = dict(re.findall(r"^# branch\.(oid|head) (.*)$", "\n".join(lines), re.MULTILINE))
    commit, branch = heads.get("oid", ""), heads.get("head", "")
    return GitState(
        commit="" if commit.startswith("(") else commit,
        branch="" if branch.startswith("(") else branch,
        changed=sum(line[:2] in ("1 ", "2 ", "u ") for line in lines),
    )


def _ask(folder: Path, *command: str) -> Sequence[str]:
    environment = {
        name: value for name, value in os.environ.items() if name not in _OF_ANOTHER_REPOSITORY
    } | {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["git", *_CALM, *command],
            cwd=folder,
            env=environment,
            capture_output=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        raise GitError("the program git is not installed") from None
    except subprocess.TimeoutExpired:
        raise GitError(f"git did not answer in {_TIMEOUT_SECONDS} s") from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        message = lines[0] if lines else f"git ended with {done.returncode}"
        if "dubious ownership" in message:
            message += f" (git config --global --add safe.directory {repository_top(folder)})"
        raise GitError(message)
    return [os.fsdecode(each) for each in done.stdout.split(b"\0") if each]
