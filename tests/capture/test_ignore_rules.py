"""Without git the same files travel as with it, whatever the ignore files say."""

from __future__ import annotations

import random
import shutil

import pytest

from airflow_training.capture.files import list_files
from tests.capture.tree_fixtures import git, write
from tests.examples import examples

_NAMES = ("a", "b", "build", "x.py", "y.log", "z.tmp", "out", "c d")
_PATTERNS = (
    "*.log",
    "/build",
    "build/",
    "out/*",
    "!out/x.py",
    "**/a",
    "a/**",
    "!*.py",
    "*.py",
    "/a/b",
    "b",
    "!b",
    "a/*/x.py",
    "**/out/**/z.tmp",
    "[xy].*",
    "!y.log",
    "c\\ d",
    "# nothing",
    "",
    "?.tmp",
    "/*",
    "!/a",
    "!build/",
)


def _make(dice: random.Random) -> dict[str, str]:
    files = {}
    for _ in range(25):
        depth = dice.choice((1, 2, 2, 3, 4))
        path = "/".join(dice.choice(_NAMES[:3] + _NAMES[6:]) for _ in range(depth - 1))
        name = dice.choice(_NAMES[3:6])
        files[f"{path}/{name}" if path else name] = "1"
    folders = ["", *sorted({path.rpartition("/")[0] for path in files})]
    for folder in dice.sample(folders, k=min(len(folders), dice.choice((1, 2, 3)))):
        lines = dice.sample(_PATTERNS, k=dice.randint(1, 4))
        files[f"{folder}/.gitignore" if folder else ".gitignore"] = "\n".join(lines) + "\n"
    return files


@pytest.mark.parametrize("seed", range(examples(120)))
def test_ignore_files_are_read_as_git_reads_them(seed, tmp_path):
    dice = random.Random(seed)
    files = _make(dice)
    write(tmp_path, files)
    without = {each.path for each in list_files(tmp_path).candidates if each.kind == "file"}
    git(tmp_path, "init", "-q")
    with_git = {each.path for each in list_files(tmp_path).candidates if each.kind == "file"}
    shutil.rmtree(tmp_path / ".git")
    ignores = {path: text for path, text in files.items() if path.endswith(".gitignore")}
    assert without == with_git, ignores
