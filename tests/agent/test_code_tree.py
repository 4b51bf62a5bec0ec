"""A tree by digest becomes a folder, and nothing else does; what is changed in it is found."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from airflow_training.agent.code_setup import CHANGES_FILE, changes_to_upload
from airflow_training.agent.code_tree import (
    PACKED_BYTES,
    TreeError,
    blob_key,
    changed_files,
    lay_out_code,
    pack_key,
    tree_key,
)
from airflow_training.agent.upload import upload
from airflow_training.capture import layout
from airflow_training.capture.model import Tree, TreeEntry
from airflow_training.cloud.service.tree_storage import TreeStorage
from airflow_training.errors import InputError

LARGE = b"x" * (PACKED_BYTES + 1)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "sent" / "project"
    (folder / "pkg").mkdir(parents=True)
    (folder / "out").mkdir()
    (folder / "train.py").write_text("from pkg import model\n")
    (folder / "pkg" / "model.py").write_text("width = 3\n")
    (folder / "pkg" / "same.py").write_text("width = 3\n")
    (folder / "pkg" / "empty").write_text("")
    (folder / "words").write_bytes(LARGE)
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("pkg/model.py")
    return folder.parent


def stored(sent: Path, folder: Path) -> Tree:
    """Put a tree into a storage, as a service does."""
    tree = layout.tree_of(sent)
    contents = {
        hashlib.sha256(path.read_bytes()).hexdigest(): path.read_bytes()
        for path in sent.rglob("*")
        if path.is_file()
    }
    TreeStorage(str(folder)).put(tree, contents.__getitem__)
    return tree


def test_what_arrives_is_what_was_sent(project, tmp_path):
    tree = stored(project, tmp_path / "storage")
    lay_out_code(f"file://{tmp_path}/storage", tree.digest, tmp_path / "code")
    assert layout.tree_of(tmp_path / "code") == tree
    assert TreeStorage(str(tmp_path / "storage")).has(tree)


def test_another_attempt_begins_with_the_tree_again(project, tmp_path):
    tree = stored(project, tmp_path / "storage")
    for _ in range(2):
        lay_out_code(str(tmp_path / "storage"), tree.digest, tmp_path / "code")
        assert layout.tree_of(tmp_path / "code").digest == tree.digest
        (tmp_path / "code/project/train.py").write_text("other\n")


@pytest.mark.parametrize("kind", ["rows", "pack", "blob"])
def test_one_flipped_byte_is_never_laid_out(project, tmp_path, kind):
    tree = stored(project, tmp_path / "storage")
    keys = {
        "rows": tree_key(tree.digest),
        "pack": pack_key(tree.digest),
        "blob": blob_key(hashlib.sha256(LARGE).hexdigest()),
    }
    path = tmp_path / "storage" / keys[kind]
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(TreeError):
        lay_out_code(str(tmp_path / "storage"), tree.digest, tmp_path / "code")
    assert not (tmp_path / "code").exists()


@pytest.mark.parametrize(
    "rows",
    [
        [["../x", "file", 0o644, 0, hashlib.sha256().hexdigest(), ""]],
        [["/x", "file", 0o644, 0, hashlib.sha256().hexdigest(), ""]],
        [["x", "pipe", 0o644, 0, "", ""]],
        [["x", "file", 0o4755, 0, hashlib.sha256().hexdigest(), ""]],
        [["x", "file", 0o644, 0, "../../etc/passwd", ""]],
        [["x", "symlink", 0o777, 0, "", "/etc"]],
        [["p/x", "symlink", 0o777, 0, "", "../../etc"]],
        [
            ["out", "symlink", 0o777, 0, "", "elsewhere"],
            ["out/x", "file", 0o644, 0, hashlib.sha256().hexdigest(), ""],
        ],
    ],
)
def test_no_tree_leads_out_of_its_folder_whoever_named_it(tmp_path, rows: list[Any]):
    text = json.dumps(rows).encode()
    digest = hashlib.sha256(text).hexdigest()
    path = tmp_path / "storage" / tree_key(digest)
    path.parent.mkdir(parents=True)
    path.write_bytes(text)
    (tmp_path / "storage" / "packs").mkdir()
    (tmp_path / "storage" / pack_key(digest)).write_bytes(b"")
    with pytest.raises(TreeError, match="leads out"):
        lay_out_code(str(tmp_path / "storage"), digest, tmp_path / "code")
    assert not (tmp_path / "code").exists()


def test_what_a_run_wrote_goes_with_its_output(project, tmp_path):
    tree = stored(project, tmp_path / "storage")
    code = tmp_path / "code"
    lay_out_code(str(tmp_path / "storage"), tree.digest, code)
    (code / "project/out/model.pt").write_bytes(b"weights")
    (code / "project/train.py").write_text("changed by itself\n")
    (code / "project/pkg/__pycache__").mkdir()
    (code / "project/pkg/__pycache__/model.pyc").write_bytes(b"")
    (code / "project/elsewhere").symlink_to("/etc/passwd")
    assert [*changed_files(code)] == ["project/out/model.pt", "project/train.py"]
    (tmp_path / "output").mkdir()
    (tmp_path / "output" / "log").write_text("more")
    told = upload(
        tmp_path / "output", str(tmp_path / "away"), say=print, beside=changes_to_upload(code)
    )
    assert told["files"] == 4
    assert (tmp_path / "away/code/project/out/model.pt").read_bytes() == b"weights"
    assert (tmp_path / "away/log").read_text() == "more"
    rows = json.loads((tmp_path / "away" / CHANGES_FILE).read_text())["files"]
    assert rows[0] == {
        "path": "project/out/model.pt",
        "size": 7,
        "sha256": hashlib.sha256(b"weights").hexdigest(),
    }


def test_what_is_stored_already_is_not_sent_again(project, tmp_path):
    tree = stored(project, tmp_path / "storage")

    def nothing(sha256: str) -> bytes:
        raise AssertionError(sha256)

    TreeStorage(str(tmp_path / "storage")).put(tree, nothing)


def test_what_is_half_there_is_written_again(project, tmp_path):
    tree = stored(project, tmp_path / "storage")
    pack = tmp_path / "storage" / pack_key(tree.digest)
    whole = pack.read_bytes()
    pack.write_bytes(whole[:5])
    assert not TreeStorage(str(tmp_path / "storage")).has(tree)
    stored(project, tmp_path / "storage")
    assert pack.read_bytes() == whole


def test_a_storage_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(InputError) as refused:
        TreeStorage(str(tmp_path / "file")).check()
    [problem] = refused.value.problems
    assert (problem.field, problem.value) == ("storage", str(tmp_path / "file"))


def test_an_empty_tree_is_a_folder(tmp_path):
    tree = Tree(entries=[TreeEntry(path="project", kind="folder", mode=0o755)])
    TreeStorage(str(tmp_path / "storage")).put(tree, lambda sha256: os.urandom(1))
    lay_out_code(str(tmp_path / "storage"), tree.digest, tmp_path / "code")
    assert (tmp_path / "code/project").is_dir()


@pytest.mark.parametrize(
    "rows",
    [
        {"x": 1},
        ["x"],
        [["x", "file", 0o644, 0, hashlib.sha256().hexdigest()]],
        [["x", "file", "0644", 0, hashlib.sha256().hexdigest(), ""]],
        [["x", "file", 0o644, -1, hashlib.sha256().hexdigest(), ""]],
        [["x", "file", 0o644, 1.5, hashlib.sha256().hexdigest(), ""]],
        [["x\0", "file", 0o644, 0, hashlib.sha256().hexdigest(), ""]],
    ],
)
def test_a_list_that_is_no_tree_is_damage_and_no_other_try_mends_it(tmp_path, rows: Any):
    text = json.dumps(rows).encode()
    digest = hashlib.sha256(text).hexdigest()
    path = tmp_path / tree_key(digest)
    path.parent.mkdir(parents=True)
    path.write_bytes(text)
    with pytest.raises(TreeError):
        lay_out_code(str(tmp_path), digest, tmp_path / "code")


def test_what_a_run_has_closed_or_replaced_does_not_stop_the_next_attempt(project, tmp_path):
    tree = stored(project, tmp_path / "storage")
    uri, code = str(tmp_path / "storage"), tmp_path / "code"
    lay_out_code(uri, tree.digest, code)
    (code / "project/cache/deep").mkdir(parents=True)
    (code / "project/cache/deep/file").write_text("x")
    for each in ("project/cache/deep", "project/cache"):
        (code / each).chmod(0o500)
    lay_out_code(uri, tree.digest, code)
    assert layout.tree_of(code) == tree
    elsewhere = tmp_path / "elsewhere"
    code.rename(elsewhere)
    code.symlink_to(elsewhere)
    lay_out_code(uri, tree.digest, code)
    assert not code.is_symlink()
    assert (elsewhere / "project/train.py").is_file()


def test_names_that_are_no_text_are_uploaded_as_they_are(project, tmp_path):
    tree = stored(project, tmp_path / "storage")
    code = tmp_path / "code"
    lay_out_code(str(tmp_path / "storage"), tree.digest, code)
    name = os.fsdecode(b"caf\xe9.pt")
    (code / "project" / name).write_bytes(b"x")
    (tmp_path / "output").mkdir()
    upload(tmp_path / "output", str(tmp_path / "away"), say=print, beside=changes_to_upload(code))
    assert (tmp_path / "away/code/project" / name).read_bytes() == b"x"
