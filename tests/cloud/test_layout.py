"""Trees that must not be laid out, and data that is read where it lies."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_training.capture.model import Tree, TreeEntry
from airflow_training.cloud.protocol import DataRoot, TreeManifest
from airflow_training.cloud.service.content import ContentFolder
from airflow_training.cloud.service.layout import changed_files, check_tree, lay_out
from airflow_training.errors import InputError

DIGEST = "0" * 64


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([TreeEntry(path="/etc/passwd", sha256=DIGEST)], "no path below project/"),
        ([TreeEntry(path="project/../../x", sha256=DIGEST)], "no path below the folder"),
        ([TreeEntry(path="other/x", sha256=DIGEST)], "no path below project/"),
        ([TreeEntry(path="project//x", sha256=DIGEST)], "no path below the folder"),
        ([TreeEntry(path="project/x\0y", sha256=DIGEST)], "no path below"),
        ([TreeEntry(path="project/x", sha256=DIGEST)] * 2, "there twice"),
        ([TreeEntry(path="project/x", mode=0o4755, sha256=DIGEST)], "more than permissions"),
        ([TreeEntry(path="project/x")], "content has no digest"),
        ([TreeEntry(path="project/x", kind="pipe")], "no known kind"),  # type: ignore[arg-type]
        (
            [
                TreeEntry(path="project/out", kind="symlink", link="/etc"),
                TreeEntry(path="project/out/passwd", sha256=DIGEST),
            ],
            "project/out is no folder",
        ),
    ],
)
def test_a_tree_never_leads_out_of_its_folder(entries, message):
    with pytest.raises(InputError, match=message):
        check_tree(Tree(entries=entries))


@pytest.fixture
def laid_out(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    (data / "deep").mkdir(parents=True)
    (data / "deep" / "x.csv").write_text("1,2")
    (data / "model.pt").write_text("old")
    roots = [DataRoot(path="project/data", source=str(data))]
    folder = tmp_path / "run"
    content = ContentFolder(tmp_path / "content")
    lay_out(TreeManifest(tree=Tree(entries=[]), data=roots), folder, content, link_data=True)
    return folder


def test_data_is_read_where_it_lies(laid_out, tmp_path):
    assert (laid_out / "project/data/deep/x.csv").read_text() == "1,2"
    assert (laid_out / "project/data/deep/x.csv").is_symlink()
    assert changed_files(laid_out) == []


def test_a_model_that_the_run_writes_again_does_not_reach_the_one_here(laid_out, tmp_path):
    (laid_out / "project/data/model.pt").write_text("newer")
    assert (tmp_path / "data/model.pt").read_text() == "old"
    assert changed_files(laid_out) == ["project/data/model.pt"]


def test_caches_of_python_are_no_output(laid_out):
    (laid_out / "project/__pycache__").mkdir()
    (laid_out / "project/__pycache__/a.pyc").write_text("")
    (laid_out / "project/new").write_text("")
    assert changed_files(laid_out) == ["project/new"]
