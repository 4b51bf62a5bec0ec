"""What a program was seen to open before it is sent: models travel, data may be read, a path that no run has is named."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_training.cloud import MODE_VARIABLE
from airflow_training.cloud.observed_loads import read_loads
from airflow_training.cloud.options import RunOptions
from airflow_training.cloud.submit import capture_program, share_data
from airflow_training.errors import InputError
from tests.cloud.elsewhere import ROOT
from tests.waiting import PATIENCE

LINE = """
import json, pathlib, sys
from airflow_training import cloud
weights = open("weights.ckpt", "rb").read()
rows = open("data/rows.csv").read()
cloud.run({mode})
print("there", len(weights), len(rows))
pathlib.Path("out.pt").write_bytes(weights)
"""


def observed(path: Path, **kinds: str) -> str:
    lines = [json.dumps({"path": place, "class": kind}) for place, kind in kinds.items()]
    path.write_text("\n".join(["no json", "[]", *lines]))
    return str(path)


@pytest.fixture
def program(tmp_path: Path, airflow_home: Path) -> Path:
    folder = tmp_path / "program"
    (folder / "data").mkdir(parents=True)
    (folder / "train.py").write_text(LINE.format(mode="mode='cloud'"))
    (folder / "weights.ckpt").write_bytes(b"w" * 100)
    (folder / "other.ckpt").write_bytes(b"o" * 100)
    (folder / "data" / "rows.csv").write_text("1,2\n")
    return folder


def test_a_line_that_is_none_and_a_file_that_is_gone_are_left_out(tmp_path, program):
    kinds = {
        str(program / "weights.ckpt"): "model",
        str(program / "data"): "data",
        str(program / "gone.ckpt"): "model",
        "relative.ckpt": "model",
        str(program / "train.py"): "program",
    }
    found = read_loads(Path(observed(tmp_path / "loads", **kinds)))
    assert found.models == [program / "weights.ckpt"]
    assert found.data == [program / "data"]


def test_without_the_file_it_is_named(tmp_path):
    with pytest.raises(InputError, match="--loads: what was opened cannot be read"):
        read_loads(tmp_path / "none")


def test_a_model_that_was_loaded_travels_and_others_stay(tmp_path, program):
    loads = observed(tmp_path / "loads", **{str(program / "weights.ckpt"): "model"})
    captured = capture_program(["train.py"], RunOptions(loads=loads), cwd=program)
    paths = {each.path for each in captured.tree.entries}
    assert "project/weights.ckpt" in paths
    assert "project/other.ckpt" not in paths


def test_a_path_outside_that_the_program_spells_is_refused_by_its_line(tmp_path, program):
    outside = tmp_path / "outside.csv"
    outside.write_text("1\n")
    loads = observed(tmp_path / "loads", **{str(outside): "data"})
    (program / "train.py").write_text(f"import csv\nrows = open({str(outside)!r})\n")
    options = RunOptions(loads=loads)
    shared = share_data(capture_program(["train.py"], options, cwd=program), options, cwd=program)
    [problem] = shared.problems
    assert problem.field == "train.py:2"
    assert str(outside) in problem.message


def test_a_path_outside_that_no_argument_names_is_told(tmp_path, program):
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "rows.csv").write_text("1\n")
    loads = observed(tmp_path / "loads", **{str(folder / "rows.csv"): "data"})
    options = RunOptions(loads=loads)
    captured = capture_program(["train.py"], options, cwd=program)
    shared = share_data(captured, options, cwd=program)
    assert not shared.problems
    assert any(
        str(folder / "rows.csv") in each and "SCRIPT --data" in each for each in shared.notes
    )
    named = capture_program(["train.py", "--data", str(folder)], options, cwd=program)
    assert not share_data(named, options, cwd=program).notes


NOT_SENT = """
import os, sys, tempfile
tempfile.tempdir = {folder!r}
from airflow_training import cloud
open("weights.ckpt", "rb").close()
path = cloud._watch and cloud._watch.loads_file
cloud.run(mode="local")  # and not mode="cloud"
open("other.ckpt", "rb").close()
print(path and "other.ckpt" in open(path).read())
"""


@pytest.mark.e2e
@pytest.mark.parametrize(("folder", "said"), [("", "False"), ("/nowhere", "None")])
def test_a_program_that_stays_here_is_watched_no_further_than_to_the_line(
    tmp_path, program, folder, said
):
    (program / "train.py").write_text(NOT_SENT.format(folder=folder or str(tmp_path)))
    plain = {name: text for name, text in os.environ.items() if name != MODE_VARIABLE}
    done = subprocess.run(
        [sys.executable, "train.py"],
        cwd=program,
        env={**plain, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.stdout, done.stderr) == (f"{said}\n", "")
    assert not [*tmp_path.glob("airflow-training-loads-*")]


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("mode", "variable"), [("mode='cloud'", ""), ("", "cloud")], ids=["said", "variable"]
)
def test_what_stands_before_the_line_is_seen_and_its_model_travels(
    program, airflow_home, mode, variable
):
    (program / "train.py").write_text(LINE.format(mode=mode))
    done = subprocess.run(
        [sys.executable, "train.py"],
        cwd=program,
        env={**os.environ, "PYTHONPATH": str(ROOT), MODE_VARIABLE: variable},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "there 100 4\n"), done.stderr
    assert (program / "out.pt").read_bytes() == b"w" * 100
    content = airflow_home / "training-cloud" / "service" / "content" / "whole"
    sent = {each.name for each in content.glob("*/*")}
    assert hashlib.sha256(b"w" * 100).hexdigest() in sent
    assert hashlib.sha256(b"o" * 100).hexdigest() not in sent
