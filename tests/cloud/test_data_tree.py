"""The tree of a run whose instances fetch: the same for equal submissions, and whole without an installation."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from airflow_training.capture.model import Tree, TreeEntry
from airflow_training.cloud.service.data_tree import data_contents, tree_with_data
from airflow_training.remote_data.manifest import DataFile, DataManifest, DataRoot

pytestmark = pytest.mark.e2e

TREE = Tree(entries=[TreeEntry(path="project/train.py", size=1, sha256="a" * 64)])


def shared(source: str) -> DataManifest:
    files = [DataFile(path="a.npy", size=4, mtime_ns=5)]
    return DataManifest(
        source=source, roots=[DataRoot(name="project", path="/home/user/project", files=files)]
    )


def test_equal_submissions_share_a_tree():
    trees = [tree_with_data(TREE, shared(source)) for source in ("run-1", "run-2")]
    assert trees[0].digest == trees[1].digest != TREE.digest
    assert TREE.entries[0] in trees[0].entries
    contents = data_contents(shared("run-1"))
    added = [each for each in trees[0].entries if each.path.startswith("on-demand/")]
    assert {each.sha256: each.size for each in added} == {
        sha256: len(content) for sha256, content in contents.items()
    }


def test_who_fetches_needs_nothing_that_is_installed(tmp_path):
    contents = data_contents(shared("run"))
    for each in tree_with_data(TREE, shared("run")).entries:
        if each.path.startswith("on-demand/"):
            path = tmp_path / each.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(contents[each.sha256])
    words = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'on-demand')!r})\n"
        "import airflow_training.remote_data.beside_command, airflow_training.remote_data.fetching\n"
        "import airflow_training.interception.hook\n"
        "print(airflow_training.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(tmp_path)
