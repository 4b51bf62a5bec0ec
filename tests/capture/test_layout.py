"""A tree is laid out as a whole or not at all, and never reaches out of its folder."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from airflow_training.capture.layout import check_paths, lay_out, tree_of
from airflow_training.capture.links import destination
from airflow_training.capture.model import Tree, TreeEntry
from airflow_training.errors import InputError

CONTENTS = {hashlib.sha256(text).hexdigest(): text for text in (b"", b"one", b"two\r\n")}


def entry(path: str, content: bytes = b"one", mode: int = 0o644) -> TreeEntry:
    sha256 = hashlib.sha256(content).hexdigest()
    return TreeEntry(path=path, mode=mode, size=len(content), sha256=sha256)


def link(path: str, target: str) -> TreeEntry:
    return TreeEntry(path=path, kind="symlink", mode=0o777, link=target)


GOOD = Tree(
    entries=[
        entry("project/train.py", mode=0o755),
        entry("project/deep/er/a b\n.py", b"two\r\n", mode=0o600),
        entry("project/readonly", b"", mode=0o444),
        link("project/latest", "deep/er"),
        link("project/deep/up", "../train.py"),
        link("project/dangling", "nowhere"),
        TreeEntry(path="project/out", kind="folder", mode=0o700),
        TreeEntry(path="imports/empty/folder", kind="folder", mode=0o755),
    ]
)


def test_what_is_laid_out_is_the_tree(tmp_path):
    lay_out(GOOD, tmp_path / "run", CONTENTS.__getitem__)
    assert tree_of(tmp_path / "run").digest == GOOD.digest
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "run/project/latest").readlink() == Path("deep/er")
    assert (tmp_path / "run/project/readonly").stat().st_mode & 0o777 == 0o444
    assert [each.name for each in tmp_path.iterdir()] == ["run"]


def test_the_umask_changes_no_mode(tmp_path):
    before = os.umask(0o077)
    try:
        lay_out(GOOD, tmp_path / "run", CONTENTS.__getitem__)
    finally:
        os.umask(before)
    assert tree_of(tmp_path / "run").digest == GOOD.digest


def test_contents_may_be_files(tmp_path):
    def content(sha256: str) -> Path:
        path = Path(tmp_path, sha256)
        path.write_bytes(CONTENTS[sha256])
        return path

    lay_out(GOOD, tmp_path / "run", content)
    assert tree_of(tmp_path / "run").digest == GOOD.digest


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "train.py").write_bytes(b"One"),
        lambda folder: (folder / "train.py").chmod(0o644),
        lambda folder: (folder / "new.py").write_bytes(b""),
        lambda folder: (folder / "readonly").unlink(),
        lambda folder: (folder / "out").rmdir(),
        lambda folder: (folder / "out" / "new").mkdir(),
        lambda folder: ((folder / "dangling").unlink(), (folder / "dangling").symlink_to("here")),
        lambda folder: ((folder / "latest").unlink(), (folder / "latest").mkdir()),
        lambda folder: (folder / "train.py").rename(folder / "Train.py"),
        lambda folder: os.mkfifo(folder / "pipe"),
    ],
)
def test_any_change_changes_the_digest(change, tmp_path):
    lay_out(GOOD, tmp_path, CONTENTS.__getitem__)
    change(tmp_path / "project")
    assert tree_of(tmp_path).digest != GOOD.digest


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param([entry("../out.py")], id="above"),
        pytest.param([entry("a/../../out.py")], id="above-by-a-folder"),
        pytest.param([entry("/etc/passwd")], id="absolute"),
        pytest.param([entry("a//b")], id="empty-part"),
        pytest.param([entry("a/./b")], id="dot"),
        pytest.param([entry("")], id="no-name"),
        pytest.param([entry("a\0b")], id="null"),
        pytest.param([link("a", "/etc")], id="link-absolute"),
        pytest.param([link("a", "../x")], id="link-above"),
        pytest.param([link("a/b", "../../x")], id="link-above-from-a-folder"),
        pytest.param([link("a", "b"), link("b", "a")], id="circle"),
        pytest.param(
            [link("a", "b/.."), link("b", "deep/er"), link("c", "b/../../..")], id="link-by-a-link"
        ),
        pytest.param([link("a", "b"), entry("a/x.py")], id="file-through-a-link"),
        pytest.param([entry("a"), entry("a/x.py")], id="file-below-a-file"),
        pytest.param([entry("a"), entry("a", b"two\r\n")], id="twice"),
        pytest.param([link("a", "")], id="link-to-nothing"),
        pytest.param([entry("a", mode=0o4755)], id="set-user-id"),
        pytest.param([TreeEntry(path="a")], id="no-digest"),
        pytest.param([TreeEntry(path="a", sha256="../" * 20 + "keys")], id="digest-that-is-a-path"),
        pytest.param([entry("a" * 256)], id="name-too-long"),
        pytest.param([entry("a/" * 2000 + "b")], id="path-too-long"),
    ],
)
def test_a_tree_that_reaches_out_is_refused_whole(entries, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(InputError):
        lay_out(Tree(entries=[entry("good.py"), *entries]), folder, CONTENTS.__getitem__)
    assert list(tmp_path.iterdir()) == []


def test_content_that_is_not_what_it_says_leaves_nothing(tmp_path):
    with pytest.raises(InputError, match=r"project/train\.py: its content is not"):
        lay_out(
            Tree(entries=[entry("project/a.py", b""), entry("project/train.py")]),
            tmp_path / "run",
            lambda sha256: CONTENTS[sha256].replace(b"one", b"0ne"),
        )
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_something_in_it_is_not_written_over(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine").write_text("")
    with pytest.raises(InputError, match="something else is there already"):
        lay_out(GOOD, tmp_path / "run", CONTENTS.__getitem__)
    assert [each.name for each in tmp_path.rglob("*")] == ["run", "mine"]


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"entries": None},
        {"entries": [{"path": "a", "owner": 0}]},
        {"entries": [{"kind": "folder"}]},
        {"entries": [{"path": 1}]},
        {"entries": [{"path": "a", "kind": "device"}]},
        {"entries": [{"path": "a", "mode": "0o644"}]},
        {"entries": [{"path": "a", "mode": True}]},
        {"entries": [{"path": "a", "size": -1}]},
        {"entries": [{"path": "\udc80"}]},
        {"entries": ["a"]},
    ],
)
def test_a_document_that_is_no_tree_is_refused(document):
    with pytest.raises(InputError, match="it is no tree of a capture"):
        Tree.from_json(document)


def test_every_mistake_is_told_at_once():
    with pytest.raises(InputError) as raised:
        check_paths(Tree(entries=[entry("../a"), link("b", "/x"), entry("fine.py")]))
    assert [each.field for each in raised.value.problems] == ["../a", "b"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("plain/file", "plain/file"),
        ("d/file", "deep/er/file"),
        ("d/../file", "deep/file"),
        ("d/../../file", "file"),
        ("d/../../../file", None),
        ("chain", "deep/er"),
        ("circle", None),
        ("absolute", None),
        ("out", None),
        ("./a/./b/..", "a"),
    ],
)
def test_links_are_followed_as_a_system_would(path, expected):
    links = {
        "d": "deep/er",
        "chain": "d",
        "circle": "ring",
        "ring": "circle",
        "absolute": "/etc",
        "out": "../x",
    }
    assert destination(path, links) == expected
