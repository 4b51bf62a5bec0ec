"""A run is captured as a whole: what travels, what stays, what is refused, and how that is told."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from airflow_training.capture.command import capture_command
from airflow_training.capture.layout import lay_out, tree_of
from airflow_training.capture.project import ProjectCapture, capture_project, capture_run
from airflow_training.capture.report import describe, describe_json
from airflow_training.capture.roots import find_root
from airflow_training.errors import InputError
from tests.capture.clean_projects import CLEAN
from tests.capture.planted import HF, PLANTED, made


def write(folder: Path, files: Mapping[str, str]) -> Path:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def captured(folder: Path, *argv: str, **more: object) -> ProjectCapture:
    more = {"working_dir": folder, "environ": {}, **more}
    return capture_run(list(argv) or ["train.py"], **more)  # type: ignore[arg-type]


def paths(capture: ProjectCapture) -> list[str]:
    return [each.path for each in capture.tree.entries]


def test_a_folder_with_a_script_travels_as_it_is(tmp_path):
    capture = captured(
        write(tmp_path, {"train.py": "import lib\n", "lib.py": "", "conf/a.yaml": ""})
    )
    capture.check()
    assert paths(capture) == ["project/conf/a.yaml", "project/lib.py", "project/train.py"]
    lay_out(capture.tree, tmp_path / "there", capture.read)
    assert tree_of(tmp_path / "there").digest == capture.tree.digest


def test_equal_projects_have_equal_digests_wherever_they_lie(tmp_path):
    files = {"train.py": "import lib\n", "lib.py": "x = 1\n"}
    one = captured(write(tmp_path / "a", files))
    other = captured(write(tmp_path / "b" / "c", files))
    assert one.tree.digest == other.tree.digest
    changed = captured(write(tmp_path / "a", {"lib.py": "x = 2\n"}))
    assert changed.tree.digest != one.tree.digest


def test_a_secret_is_refused_before_anything_is_sent(tmp_path):
    write(tmp_path, {"train.py": "import lib\n", "lib.py": f'\ntoken = "{HF}"\n', ".env": "A=1\n"})
    capture = captured(tmp_path)
    with pytest.raises(InputError) as raised:
        capture.check()
    assert [each.field for each in raised.value.problems] == [".env:1", "lib.py:2"]
    assert HF not in describe(capture) + json.dumps(describe_json(capture))
    captured(tmp_path, allow_secrets=[".env", "lib.py:2"]).check()


def test_a_secret_in_what_is_imported_from_outside_is_refused_too(tmp_path):
    write(tmp_path, {"p/train.py": "import lib\n", "common/lib.py": f'token = "{HF}"\n'})
    capture = captured(tmp_path / "p", environ={"PYTHONPATH": "../common"})
    assert [each.field for each in capture.problems] == ["imports/common/lib.py:1"]


def test_what_an_ignore_file_keeps_here_is_no_matter(tmp_path):
    write(tmp_path, {"train.py": "", ".env": f"HF_TOKEN={HF}\n", ".trainingignore": ".env\n"})
    capture = captured(tmp_path)
    capture.check()
    assert ("project/.env", "ignored by .trainingignore") in [
        (each.path, each.reason) for each in capture.omissions
    ]


def test_the_dry_run_tells_everything(tmp_path):
    write(
        tmp_path,
        {
            "p/train.py": "import importlib, lib, sys\nimportlib.import_module(sys.argv[1])\n"
            "try:\n    import not_there\nexcept ImportError:\n    pass\n",
            "p/big.txt": "x" * 5000,
            "p/data/a.csv": "1" * 2000,
            "p/pyproject.toml": "",
            "common/lib.py": "",
        },
    )
    capture = captured(
        tmp_path / "p",
        "train.py",
        "data",
        environ={"PYTHONPATH": "../common", "OMP_NUM_THREADS": "2"},
    )
    text = describe(capture)
    for expected in (
        f"root     {tmp_path}/p   (no git)",
        "command  python train.py data   in project",
        "imports/common on PYTHONPATH",
        "with OMP_NUM_THREADS",
        f"argument 1 is a path here: {tmp_path}/p/data",
        "4.9 KiB  project/big.txt",
        f"imports/common: {tmp_path}/common, used by train.py:1",
        "2 KiB  project/data/a.csv: data: read on demand",
        "train.py:2: importlib.import_module(sys.argv[1])",
        "train.py:4: not_there",
    ):
        assert expected in text
    assert text.index("big.txt") < text.index("project/train.py")
    document = json.loads(json.dumps(describe_json(capture)))
    assert document["digest"] == capture.tree.digest
    assert document["bytes"] == sum(each.size for each in capture.tree.entries)
    assert document["dynamicImports"] == [
        {"path": "train.py", "line": 2, "text": "importlib.import_module(sys.argv[1])"}
    ]


def test_many_files_are_told_in_few_lines(tmp_path):
    write(tmp_path, {"train.py": "", **{f"m{n}.py": "" for n in range(100)}})
    assert "81 more" in describe(captured(tmp_path))


def test_a_notebook_travels_as_a_script(tmp_path):
    cells = [
        {"cell_type": "code", "source": ["%matplotlib inline\n", "import lib\n"]},
        {"cell_type": "code", "source": [f"key = '{made(8)}'\n"]},
    ]
    write(tmp_path, {"a.ipynb": json.dumps({"cells": cells, "metadata": {}}), "lib.py": ""})
    capture = captured(tmp_path, "a.ipynb", "--lr", "1")
    capture.check()
    assert capture.command.entry == "a.ipynb.py"
    assert {"project/a.ipynb", "project/a.ipynb.py", "project/lib.py"} == {*paths(capture)}
    assert capture.notes == ["a.ipynb: left out: cell 1, line 1: %matplotlib inline"]
    [entry] = [each for each in capture.tree.entries if each.path == "project/a.ipynb.py"]
    assert b"import lib" in capture.read(entry.sha256)
    assert not (tmp_path / "a.ipynb.py").exists()


def test_a_package_that_only_a_configuration_names_travels(tmp_path):
    write(
        tmp_path,
        {
            "p/train.py": "",
            "p/conf/model.yaml": "_target_: mylib.nets.Net\n",
            "lib/src/mylib/__init__.py": "",
            "lib/src/mylib/nets.py": "",
            "lib/src/unnamed/__init__.py": "",
            "site-packages/lib.pth": f"{tmp_path}/lib/src\n",
        },
    )
    root = tmp_path / "p"
    command = capture_command(["train.py"], root=root, working_dir=root, environ={})
    capture = capture_project(root, command, site_dirs=[tmp_path / "site-packages"])
    assert [each for each in paths(capture) if "imports/" in each] == [
        "imports/src/mylib/__init__.py",
        "imports/src/mylib/nets.py",
    ]
    assert list(capture.command.import_paths) == ["imports/src"]


def test_of_a_home_only_what_is_imported_travels(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    write(
        tmp_path, {"train.py": "import lib\n", "lib.py": "", "letters/private.txt": "", "x.py": ""}
    )
    capture = captured(tmp_path)
    assert paths(capture) == ["project/lib.py", "project/train.py"]
    assert "--root" in capture.notes[0]


def test_a_model_travels_when_an_argument_names_it(tmp_path):
    write(tmp_path, {"train.py": "", "old.pt": "1", "best.pt": "1", "data.csv": "1"})
    capture = captured(tmp_path, "train.py", "--init=best.pt", "data.csv")
    assert "project/best.pt" in paths(capture)
    assert {each.path: each.kind for each in capture.omissions} == {
        "project/data.csv": "data",
        "project/old.pt": "model",
    }


def test_what_stays_can_be_looked_for_where_it_lies(tmp_path):
    write(
        tmp_path,
        {
            "p/train.py": "import lib\n",
            "p/.gitignore": "cache/\n.env\n",
            "p/.env": "A=1",
            "p/cache/x": "1",
            "p/data/a.csv": "12",
            "p/data/b.csv": "1",
            "p/venv/pyvenv.cfg": "",
            "common/lib/__init__.py": "",
            "common/lib/deep/table.npy": "1",
        },
    )
    capture = captured(tmp_path / "p", environ={"PYTHONPATH": "../common"})
    assert {(each.path, str(each.source), each.size) for each in capture.local_data} == {
        ("project/cache", f"{tmp_path}/p/cache", 0),
        ("project/data", f"{tmp_path}/p/data", 3),
        ("imports/common/lib/deep/table.npy", f"{tmp_path}/common/lib/deep/table.npy", 1),
    }


def test_a_store_that_lies_in_the_project_is_no_part_of_it(tmp_path):
    write(tmp_path, {"train.py": "", "home/airflow.cfg": "", "home/sub/x.txt": "", "store.db": ""})
    capture = captured(tmp_path, excluded=[tmp_path / "home", tmp_path / "store.db"])
    assert paths(capture) == ["project/train.py"]
    assert capture.omissions == []


@pytest.mark.parametrize("name", sorted(CLEAN))
def test_a_clean_project_travels_whole_or_on_demand(name, tmp_path):
    for path, text in {"main_script.py": "", **CLEAN[name]}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(text if isinstance(text, bytes) else text.encode())
    captured(tmp_path, "main_script.py").check()


def test_none_of_the_planted_secrets_travels(tmp_path):
    write(tmp_path, {"main_script.py": "", **{each.path: each.text for each in PLANTED}})
    capture = captured(tmp_path, "main_script.py")
    with pytest.raises(InputError) as raised:
        capture.check()
    refused = {problem.field for problem in raised.value.problems}
    assert {f"{each.path}:{each.line}" for each in PLANTED} <= refused


def test_a_file_that_changes_while_it_is_sent_is_told(tmp_path):
    capture = captured(write(tmp_path, {"train.py": "x = 1\n"}))
    [entry] = capture.tree.entries
    (tmp_path / "train.py").write_text("x = 2\n")
    with pytest.raises(InputError, match="changed while it was sent"):
        capture.read(entry.sha256)


def test_a_file_that_cannot_be_read_is_told_with_the_next_command(tmp_path):
    write(tmp_path, {"train.py": "", "closed.txt": ""})
    (tmp_path / "closed.txt").chmod(0)
    if os.access(tmp_path / "closed.txt", os.R_OK):
        pytest.skip("this user may read everything")
    [problem] = captured(tmp_path).problems
    assert "closed.txt: it cannot be read" in str(problem)
    assert "chmod u+r" in problem.hint


def test_code_that_needs_a_huge_file_is_told(tmp_path):
    write(
        tmp_path,
        {
            "train.py": "import pkg\n",
            "pkg/__init__.py": "import pkgutil\npkgutil.get_data(__name__, 'x.bin')\n",
        },
    )
    with (tmp_path / "pkg" / "x.bin").open("wb") as file:
        file.truncate(51 << 20)
    [problem] = captured(tmp_path).problems
    assert "pkg/x.bin: the code needs it, and it is larger than 50 MiB" in str(problem)


def test_too_many_files_are_told_with_the_next_command(tmp_path, monkeypatch):
    monkeypatch.setattr("airflow_training.capture.project._MOST_FILES", 10)
    write(tmp_path, {"train.py": "", **{f"notes/{n}.md": "x" for n in range(20)}})
    with pytest.raises(InputError) as raised:
        captured(tmp_path)
    [problem] = raised.value.problems
    assert "21 files" in str(problem)
    assert "project/notes" in str(problem)
    assert "--root FOLDER" in problem.hint


def test_too_many_files_are_told_before_they_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr("airflow_training.capture.project._MOST_FILES", 10)
    write(tmp_path, {"train.py": "", **{f"notes/{n}.md": HF for n in range(20)}})
    with pytest.raises(InputError) as raised:
        captured(tmp_path)
    assert [each.code for each in raised.value.problems] == ["too-much"]


def test_a_link_to_a_file_of_secrets_is_refused_whatever_it_is_called(tmp_path):
    write(tmp_path, {"home/.netrc": "x", "home/kaggle.json": "{}", "p/train.py": ""})
    (tmp_path / "p/login.txt").symlink_to(tmp_path / "home/.netrc")
    (tmp_path / "p/.gitignore").write_text("kaggle\n")
    (tmp_path / "p/kaggle").symlink_to(tmp_path / "home/kaggle.json")
    capture = captured(tmp_path / "p")
    [problem] = capture.problems
    assert "login.txt:1: a file of passwords, .netrc, would travel" in str(problem)
    assert capture.local_data == []


def test_an_ignored_link_out_of_the_project_is_not_read_on_demand(tmp_path):
    files = {"home/x": "1", "p/train.py": "", "p/.gitignore": "out\nin\n", "p/a/b.md": ""}
    write(tmp_path, files)
    (tmp_path / "p/out").symlink_to(tmp_path / "home")
    (tmp_path / "p/in").symlink_to("a")
    capture = captured(tmp_path / "p")
    assert [each.path for each in capture.local_data] == ["project/in"]
    [told] = [each for each in capture.omissions if each.path == "project/out"]
    assert told.reason == f"ignored by .gitignore, a link out of the project, to {tmp_path}/home"


def test_a_file_that_is_removed_meanwhile_does_not_travel(tmp_path, monkeypatch):
    write(tmp_path, {"train.py": "", ".gitignore": "*.log\n", "old.log": "x", "step-1.txt": "x"})
    real = os.scandir

    def scanned(folder):
        with real(folder) as entries:
            found = list(entries)
        for name in ("old.log", "step-1.txt"):
            Path(folder, name).unlink(missing_ok=True)
        return found

    with monkeypatch.context() as patch:
        patch.setattr("airflow_training.capture.files.os.scandir", scanned)
        capture = captured(tmp_path)
    assert paths(capture) == ["project/.gitignore", "project/train.py"]


def test_a_working_directory_outside_of_the_project_is_told(tmp_path):
    write(tmp_path, {"p/pyproject.toml": "", "p/train.py": ""})
    capture = captured(tmp_path, "p/train.py")
    assert capture.command.working_dir == "project"
    assert any("--root FOLDER names another" in note for note in capture.notes)


def test_the_folder_it_starts_in_is_there(tmp_path):
    write(tmp_path, {"pyproject.toml": "", "train.py": ""})
    (tmp_path / "runs").mkdir()
    write(tmp_path, {"runs/old.pt": "1"})
    capture = captured(tmp_path / "runs", "../train.py")
    assert capture.command.working_dir == "project/runs"
    assert "project/runs" in paths(capture)


@pytest.mark.parametrize(
    ("files", "start", "argv", "expected"),
    [
        ({"a/train.py": ""}, "a", ["train.py"], "a"),
        ({"a/train.py": "", "a/pyproject.toml": ""}, "a", ["train.py"], "a"),
        ({"a/b/train.py": "", "a/pyproject.toml": ""}, "a/b", ["train.py"], "a"),
        (
            {"a/b/train.py": "", "a/.git": "gitdir: x", "a/b/pyproject.toml": ""},
            "a",
            ["b/train.py"],
            "a",
        ),
        ({"a/b/m.py": "", "a/setup.py": ""}, "a/b", ["-m", "m"], "a"),
        ({"a/b/m.py": ""}, "a", ["-m", "b.m"], "a"),
        ({"a/b/c/train.py": "", "a/b/.trainingignore": ""}, ".", ["a/b/c/train.py"], "a/b"),
        ({"a/b/train.py": ""}, "a", ["b/train.py"], "a"),
        ({"a/train.py": "", "b/x": ""}, "b", ["../a/train.py"], "a"),
    ],
)
def test_the_root_is_found(files, start, argv, expected, tmp_path):
    write(tmp_path, files)
    assert find_root(argv, working_dir=tmp_path / start) == tmp_path / expected


def test_the_root_can_be_named(tmp_path):
    write(tmp_path, {"p/sub/train.py": "", "p/pyproject.toml": ""})
    assert (
        find_root(["train.py"], working_dir=tmp_path / "p/sub", root=Path()) == tmp_path / "p/sub"
    )
    assert find_root(["a.py"], working_dir=tmp_path / "p/sub", root=Path("..")) == tmp_path / "p"
    with pytest.raises(InputError, match="it is no folder"):
        find_root(["train.py"], working_dir=tmp_path, root=Path("nowhere"))
