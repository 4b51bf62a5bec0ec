"""A file that looks as it did is not read again, and never passes for another or for one without secrets."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from airflow_training.capture.known_contents import KnownContents
from airflow_training.capture.model import CapturedCommand
from airflow_training.capture.project import capture_project
from airflow_training.errors import InputError

PLANTED = "AK" + "IA" + "Q3EGRT7W" + "XK2MZP5N"


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text("import words\n")
    (folder / "words.py").write_text("width = 3\n")
    (folder / "notes.txt").write_text("the first\n")
    return folder


@pytest.fixture
def capture(project, tmp_path, monkeypatch):
    # the times of inodes cannot be set: let it be later
    later = "airflow_training.capture.known_contents.time.time_ns"
    monkeypatch.setattr(later, lambda: 1 << 62)
    read: list[str] = []
    plain = Path.read_bytes

    def read_bytes(path):
        if path.parent == project:
            read.append(path.name)
        return plain(path)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)

    def run(**options):
        read.clear()
        command = CapturedCommand(kind="script", entry="train.py", args=(), working_dir="project")
        known = KnownContents(tmp_path / "contents.json")
        captured = capture_project(project, command, known=known, site_dirs=[], **options)
        return captured, sorted(read)

    return run


def digests(captured):
    return {each.path: each.sha256 for each in captured.tree.entries}


def test_what_looks_as_it_did_is_not_read_again(capture):
    first, read = capture()
    assert "notes.txt" in read
    second, read = capture()
    assert "notes.txt" not in read
    assert digests(second) == digests(first)
    assert second.tree.digest == first.tree.digest
    assert {**second.contents}.keys() == {**first.contents}.keys()


@pytest.mark.parametrize("same_time", [False, True])
def test_a_file_that_changes_is_read(capture, project, same_time):
    first, _ = capture()
    info = (project / "notes.txt").stat()
    (project / "notes.txt").write_text("the other\n")
    if same_time:  # its ctime tells
        os.utime(project / "notes.txt", ns=(info.st_atime_ns, info.st_mtime_ns))
    second, read = capture()
    assert "notes.txt" in read
    assert digests(second)["project/notes.txt"] != digests(first)["project/notes.txt"]


def test_a_secret_that_was_allowed_once_is_refused_without_it(capture, project):
    (project / "words.py").write_text(f'key = "{PLANTED}"\n')
    allowed, _ = capture(allow_secrets=["words.py:1"])
    allowed.check()
    refused, _ = capture()
    with pytest.raises(InputError, match="would travel"):
        refused.check()


def test_a_file_that_was_written_just_now_is_read_again(capture, project, monkeypatch):
    monkeypatch.undo()
    now = (project / "train.py").stat().st_ctime_ns  # whatever a busy machine takes
    monkeypatch.setattr("airflow_training.capture.known_contents.time.time_ns", lambda: now + 10**9)
    command = CapturedCommand(kind="script", entry="train.py", args=(), working_dir="project")
    place = project.parent / "fresh.json"
    known = KnownContents(place)
    capture_project(project, command, known=known, site_dirs=[])
    assert not place.exists() or json.loads(place.read_text())["files"] == {}


@pytest.mark.parametrize("content", ["", "{", "[]", '{"rules": 1}', '{"rules": "x", "files": 3}'])
def test_a_file_of_another_version_counts_for_nothing(capture, tmp_path, content):
    first, _ = capture()
    (tmp_path / "contents.json").write_text(content)
    second, read = capture()
    assert "notes.txt" in read
    assert digests(second) == digests(first)
