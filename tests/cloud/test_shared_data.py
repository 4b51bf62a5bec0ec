"""What of this machine a run may read: what is shown, under which place, and what is refused before anything moves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from airflow_training.capture.project import capture_run
from airflow_training.cloud.shared_data import SharedData, describe_shared, find_shared_data


@pytest.fixture
def project(tmp_path: Path, airflow_home: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "data" / "empty").mkdir(parents=True)
    (folder / "pyproject.toml").touch()
    (folder / "train.py").write_text("print(1)\n")
    (folder / "data" / "a.csv").write_text("1,2\n")
    (folder / "data" / "notes.txt").write_text("travels\n")
    (folder / "cache").mkdir()
    (folder / "cache" / "big").write_bytes(b"12345")
    (folder / ".gitignore").write_text("cache\n.env\n")
    (folder / "cache" / ".env").write_text("A=1\n")
    return folder


def shown(project: Path, *args: str, data: tuple[str, ...] = ()) -> SharedData:
    captured = capture_run(["train.py", *args], working_dir=project, environ={})
    return find_shared_data(captured, data, working_dir=project)


def files(shared: SharedData) -> Mapping[str, str]:
    """Place in the run's folder -> where it lies here."""
    return {
        f"{root.name}/{file.path}": f"{root.path}/{file.path}"
        for root in shared.manifest.roots
        for file in root.files
    }


def test_what_does_not_travel_is_shown_at_its_place_and_secrets_are_not(project):
    shared = shown(project)
    assert files(shared) == {
        "project/data/a.csv": f"{project}/data/a.csv",
        "project/cache/big": f"{project}/cache/big",
    }
    assert [Path(each.path).name for each in shared.manifest.omissions] == [".env"]
    assert not shared.problems
    assert describe_shared(shared.manifest) == ["cache/big (5 B)", "data/a.csv (4 B)"]


def test_a_folder_that_is_named_is_shown_without_what_travels(project):
    shared = shown(project, data=("data",))
    assert "project/data/a.csv" in files(shared)
    assert "project/data/notes.txt" not in files(shared)
    assert "data/empty" in shared.manifest.roots[0].folders


def test_an_argument_outside_of_the_project_is_found_at_another_place(project, tmp_path):
    outside = tmp_path / "digits"
    (outside / "train").mkdir(parents=True)
    (outside / "train" / "0.png").write_bytes(b"0")
    one = tmp_path / "one.csv"
    one.write_text("1\n")
    words = [f"--data={outside}", "--first", str(outside / "train"), "--csv", str(one)]
    shared = shown(project, *words)
    assert files(shared) == {
        **files(shown(project)),
        "data/0/digits/train/0.png": f"{outside}/train/0.png",
        "data/2/one.csv": str(one),
    }
    assert list(shared.command.args) == [
        "--data=../data/0/digits",
        "--first",
        "../data/0/digits/train",
        "--csv",
        "../data/2/one.csv",
    ]


@pytest.mark.parametrize("word", ["..", "/", "~", "{project}/../id_rsa", "{project}/../link"])
def test_an_argument_that_is_no_data_set_stays_and_is_told(project, word):
    (project.parent / "id_rsa").write_text("x")
    (project.parent / "link").symlink_to(project.parent / "id_rsa")
    path = str(Path(word.format(project=project)).expanduser())
    shared = shown(project, path)
    assert files(shared) == files(shown(project))
    assert "the run cannot read it" in shared.notes[0]
    with pytest.raises(Exception, match="--data"):
        shown(project, data=(path,)).check()


def test_a_program_that_spells_an_outside_path_itself_is_refused_by_its_line(project, tmp_path):
    (tmp_path / "digits").mkdir()
    (tmp_path / "digits" / "0.png").write_bytes(b"0")
    (project / "train.py").write_text(f"import os\nDATA = '{tmp_path}/digits'\n")
    [problem] = shown(project, data=("../digits",)).problems
    assert problem.field == "train.py:2"
    assert problem.hint == f"let an argument of the script name it: SCRIPT --data {tmp_path}/digits"
    assert not shown(project, "--data", "../digits").problems


@pytest.mark.parametrize(
    ("spelled", "line"),
    [
        ("{path}", "train.py:1"),
        ("{path}/train", "train.py:1"),
        ("file://{path}", "train.py:1"),
        ("{path}base", "--data"),
        ("{path}-2", "--data"),
        ("{path}.tar", "--data"),
        ("/mnt{path}", "--data"),
        ("s3://bucket{path}", "--data"),
    ],
)
def test_only_whole_parts_of_a_path_spell_it(project, tmp_path, spelled, line):
    (tmp_path / "digits").mkdir()
    (tmp_path / "digits" / "0.png").write_bytes(b"0")
    (project / "train.py").write_text(f"DATA = '{spelled.format(path=tmp_path / 'digits')}'\n")
    [problem] = shown(project, data=("../digits",)).problems
    assert problem.field == line


def test_equal_data_is_equal_bytes_and_none_is_nothing(project):
    first = shown(project).document
    assert first == shown(project).document
    (project / "data" / "a.csv").write_text("1,3,4\n")
    assert first != shown(project).document
    for each in (project / "data" / "a.csv", project / "cache" / "big", project / "cache" / ".env"):
        each.unlink()
    (project / "cache").rmdir()
    assert shown(project).document == b""
