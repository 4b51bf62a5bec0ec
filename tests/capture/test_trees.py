"""A project in any state travels as it stands in the work tree, and lies elsewhere with the same digest."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from airflow_training.capture.command import capture_command
from airflow_training.capture.layout import lay_out, tree_of
from airflow_training.capture.model import TreeEntry
from airflow_training.capture.project import ProjectCapture, capture_project
from tests.capture.tree_fixtures import FIXTURES, TreeFixture, git, repository, write


def capture(root: Path) -> ProjectCapture:
    write(root, {} if (root / "train.py").exists() else {"train.py": ""})
    command = capture_command(["train.py"], root=root, working_dir=root, environ={})
    return capture_project(root, command, site_dirs=[])


def told(entry: TreeEntry) -> str:
    path = entry.path.removeprefix("project/")
    if entry.kind == "symlink":
        return f"{path} -> {entry.link}"
    return f"{path}/" if entry.kind == "folder" else path


def test_a_folder_whose_repository_is_not_there_travels_all_the_same(tmp_path):
    repository(tmp_path, {"train.py": ""})
    write(tmp_path, {"lib/a.py": "", "lib/.gitignore": "*.log\n", "lib/a.log": ""})
    write(tmp_path, {"lib/.git": "gitdir: /nowhere\n"})
    captured = capture(tmp_path)
    assert {"train.py", "lib/a.py"} <= {told(each) for each in captured.tree.entries}
    assert "lib/a.log" not in {told(each) for each in captured.tree.entries}
    [note] = captured.notes
    assert note.startswith(f"{tmp_path}/lib: fatal: not a git repository")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_repository_of_another_user_is_told_with_the_next_command(tmp_path, monkeypatch):
    repository(tmp_path, {"train.py": ""})
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    for path in (tmp_path, tmp_path / ".git"):
        os.chown(path, 65534, 65534)
    [note] = capture(tmp_path).notes
    assert f"git config --global --add safe.directory {tmp_path}" in note


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("mode", [0o000, 0o400, 0o100])
def test_a_folder_that_cannot_be_read_stays(mode, tmp_path):
    write(tmp_path, {"train.py": "", "pgdata/base/1": ""})
    (tmp_path / "pgdata").chmod(mode)
    try:
        captured = capture(tmp_path)
    finally:
        (tmp_path / "pgdata").chmod(0o700)
    [omission] = captured.omissions
    assert omission.path.rstrip("/") == "project/pgdata"
    assert omission.reason == "it cannot be read: Permission denied"


def test_a_repository_cannot_have_programs_run(tmp_path):
    repository(tmp_path / "p", {"train.py": ""})
    spy = tmp_path / "spy.sh"
    spy.write_text(f"#!/bin/sh\ntouch {tmp_path}/was-run\n")
    spy.chmod(0o755)
    git(tmp_path / "p", "config", "core.fsmonitor", str(spy))
    assert "project/train.py" in {each.path for each in capture(tmp_path / "p").tree.entries}
    assert not (tmp_path / "was-run").exists()


def test_folders_of_the_repository_are_followed_by_each_link_and_in_no_circle(tmp_path):
    repository(tmp_path, {"common/a.py": "", "other/b.py": "", "p/train.py": ""})
    (tmp_path / "common" / "other").symlink_to("../other")
    (tmp_path / "other" / "common").symlink_to("../common")
    (tmp_path / "common" / "same.py").symlink_to(tmp_path / "common" / "a.py")
    for name in ("one", "two"):
        (tmp_path / "p" / name).symlink_to("../common")
    names = {told(each) for each in capture(tmp_path / "p").tree.entries}
    assert {"one/a.py", "one/same.py -> a.py", "one/other/b.py", "two/a.py"} <= names
    assert len(names) < 20


def test_an_empty_folder_can_be_written_to(tmp_path):
    write(tmp_path, {"train.py": ""})
    (tmp_path / "out").mkdir(mode=0o555)
    [folder] = [each for each in capture(tmp_path).tree.entries if each.kind == "folder"]
    assert folder.mode == 0o755


def test_there_are_twenty_five_fixtures():
    assert len({each.name for each in FIXTURES}) >= 25


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda each: each.name)
def test_the_tree_lies_elsewhere_as_it_is_here(fixture: TreeFixture, tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    write(folder, {"train.py": ""})
    fixture.setup(folder)
    root = folder / fixture.root
    captured = capture(root)
    captured.check()
    there = tmp_path / "there"
    lay_out(captured.tree, there, captured.read)
    assert tree_of(there).digest == captured.tree.digest
    names = {told(each) for each in captured.tree.entries}
    assert fixture.there <= names
    assert not {each for each in names if each.split(" -> ")[0] in fixture.absent}
    for entry in captured.tree.entries:
        here = root / entry.path.removeprefix("project/")
        laid = there / entry.path
        if entry.kind == "file":
            assert laid.read_bytes() == here.read_bytes()
            assert laid.stat().st_mode == here.stat().st_mode
        if entry.kind == "symlink":
            assert os.path.realpath(laid).removeprefix(str(there / "project")) == os.path.realpath(
                here
            ).removeprefix(str(root))


def test_what_stays_is_told_with_its_reason(tmp_path):
    repository(tmp_path, {"data/a.csv": "1,2", "data/b.csv": "1", ".gitignore": "*.tmp\n"})
    write(tmp_path, {"x.tmp": "1", "run/model.pt": "w", "env/pyvenv.cfg": ""})
    os.mkfifo(tmp_path / "pipe")
    reasons = {each.path: (each.reason, each.kind) for each in capture(tmp_path).omissions}
    assert reasons == {
        "project/data/": ("data: read on demand", "data"),
        "project/env/": ("a Python environment", "environment"),
        "project/run/model.pt": ("a model that no argument names: read on demand", "model"),
        "project/x.tmp": ("ignored by git", "ignored"),
        "project/pipe": ("neither a file nor a folder", "special"),
    }


def test_a_thousand_pictures_are_one_line(tmp_path):
    repository(tmp_path)
    write(tmp_path, {f"data/{c}/{n}.jpg": b"1" * 10 for c in "ab" for n in range(500)})
    [omission] = capture(tmp_path).omissions
    assert (omission.path, omission.count, omission.size) == ("project/data/", 1000, 10_000)


def test_commit_branch_and_changes_are_told(tmp_path):
    repository(tmp_path, {"a.py": "1", "train.py": ""})
    write(tmp_path, {"a.py": "2"})
    state = capture(tmp_path).git
    assert (state.commit, state.branch, state.changed) == (
        git(tmp_path, "rev-parse", "HEAD").strip(),
        "main",
        1,
    )


def test_a_password_in_the_address_of_a_remote_stays(tmp_path):
    repository(tmp_path)
    git(tmp_path, "remote", "add", "origin", "https://me:Pa55word-of-mine@git.example.com/x.git")
    captured = capture(tmp_path)
    captured.check()
    assert not any("Pa55word" in str(captured.read(sha)) for sha in captured.contents)


@pytest.mark.parametrize("name", [b"\xe9t\xe9.py", b"data\xff.txt"])
def test_a_name_that_is_not_utf_8_is_refused_by_name(name, tmp_path):
    repository(tmp_path)
    (tmp_path / os.fsdecode(name)).write_bytes(b"1")
    [problem] = capture(tmp_path).problems
    assert "not UTF-8" in str(problem)
    assert "\\x" in problem.field


def test_git_that_refuses_is_told_and_does_not_stop(tmp_path, monkeypatch):
    repository(tmp_path, {"a.py": "1"})
    (tmp_path / ".git" / "HEAD").write_text("broken")
    captured = capture(tmp_path)
    assert "project/a.py" in {each.path for each in captured.tree.entries}
    assert any("files are found by ignore files" in note for note in captured.notes)


def test_without_the_program_git_the_files_travel_all_the_same(tmp_path, monkeypatch):
    repository(tmp_path, {"a.py": "1", ".gitignore": "*.tmp\n", "train.py": ""})
    write(tmp_path, {"x.tmp": "1"})
    before = capture(tmp_path).tree.digest
    monkeypatch.setenv("PATH", str(tmp_path))
    captured = capture(tmp_path)
    assert captured.tree.digest == before
    told = "the program git is not installed: files are found by ignore files"
    assert captured.notes == [f"{tmp_path}: {told}"]


def test_variables_of_a_hook_do_not_mislead_git(tmp_path, monkeypatch):
    repository(tmp_path, {"a.py": "1"})
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY"):
        monkeypatch.setenv(name, "/nowhere")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    captured = capture(tmp_path)
    assert "project/a.py" in {each.path for each in captured.tree.entries}
    assert captured.notes == []
