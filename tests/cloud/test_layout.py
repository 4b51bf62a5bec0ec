"""Trees that must not be laid out, and data that is read where it lies."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from airflow_training.capture.model import Tree, TreeEntry
from airflow_training.cloud.protocol import DataReference, TreeManifest
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
    roots = [DataReference(path="project/data", source=str(data))]
    folder = tmp_path / "run"
    content = ContentFolder(tmp_path / "content")
    lay_out(TreeManifest(tree=Tree(entries=[]), data=roots), folder, content, link_data=True)
    return folder


def test_data_is_read_where_it_lies(laid_out, tmp_path):
    assert (laid_out / "project/data/deep/x.csv").read_text() == "1,2"
    assert (laid_out / "project/data/deep/x.csv").is_symlink()
    assert changed_files(laid_out) == []


def test_data_beside_code_is_read_where_it_lies(tmp_path, airflow_home):
    source = tmp_path / "project"
    (source / "other").mkdir(parents=True)
    (source / "train.py").write_text("print()\n")
    (source / "x.csv").write_text("1,2")
    (source / "other" / "y.csv").write_text("told by itself")
    content = ContentFolder(tmp_path / "content")
    data = (source / "train.py").read_bytes()
    sha256 = hashlib.sha256(data).hexdigest()
    content.path(sha256).parent.mkdir(parents=True)
    content.path(sha256).write_bytes(data)
    tree = Tree(entries=[TreeEntry(path="project/train.py", size=len(data), sha256=sha256)])
    manifest = TreeManifest(tree=tree, data=[DataReference(path="project", source=str(source))])
    lay_out(manifest, tmp_path / "run", content, link_data=True)
    assert (tmp_path / "run/project/x.csv").read_text() == "1,2"
    assert not (tmp_path / "run/project/train.py").is_symlink()
    assert not (tmp_path / "run/project/other").exists()


def test_our_own_store_is_no_data(tmp_path, airflow_home):
    ours = airflow_home / "training-cloud"
    (airflow_home / "notes.csv").touch()
    manifest = TreeManifest(
        tree=Tree(entries=[]), data=[DataReference(path="project/home", source=str(airflow_home))]
    )
    lay_out(manifest, ours / "run", ContentFolder(ours / "content"), link_data=True)
    found = [each.name for each in (ours / "run/project/home").iterdir()]
    assert found == ["notes.csv"]


def test_a_model_that_the_run_writes_again_does_not_reach_the_one_here(laid_out, tmp_path):
    (laid_out / "project/data/model.pt").write_text("newer")
    assert (tmp_path / "data/model.pt").read_text() == "old"
    assert changed_files(laid_out) == ["project/data/model.pt"]


def test_caches_of_python_are_no_output(laid_out):
    (laid_out / "project/__pycache__").mkdir()
    (laid_out / "project/__pycache__/a.pyc").write_text("")
    (laid_out / "project/new").write_text("")
    assert changed_files(laid_out) == ["project/new"]
