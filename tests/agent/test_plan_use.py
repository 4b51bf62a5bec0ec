"""What an agent can say of a script and its plan: from its mark, or from what its files mention."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from airflow_training.agent import plan_use
from airflow_training.agent.plan_use import NAMES, PlanUse
from airflow_training.agent.progress import mark_plan
from airflow_training.planning.answers.launchers import split_variables
from airflow_training.planning.view.strategy import Strategy

SPLIT = {"PLAN_FILE": "plan.json"}


def use(folder: Path, *command: str, environment: dict[str, str] = SPLIT) -> PlanUse:
    progress = folder / "progress.jsonl"
    return PlanUse(command, working_dir=str(folder), environment=environment, progress=progress)


def mentions(folder: Path, *command: str) -> list[str] | None:
    document = use(folder, *command).document()
    assert document is not None
    assert document["carried_out"] is False
    found: list[str] | None = document["mentions"]
    return found


def test_without_a_plan_there_is_nothing_to_say(tmp_path: Path):
    (tmp_path / "train.py").write_text("")
    assert use(tmp_path, "python", "train.py", environment={}).document() is None


def test_a_script_whose_files_name_nothing_of_the_plan_mentions_nothing(tmp_path: Path):
    (tmp_path / "train.py").write_text("import model\nprint('SOME_TP_SIZE', TP_SIZES)\n")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "__init__.py").write_text("")
    assert use(tmp_path, "torchrun", "train.py").document() == {
        "carried_out": False,
        "mentions": [],
        "files": 2,
    }


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["sh", "-c", "torchrun train.py $MEGATRON_ARGS"], ["MEGATRON_ARGS"]),
        (["python", "train.py", "--tp=$TP_SIZE"], ["TP_SIZE"]),
        (["python", "read.py"], ["TP_SIZE"]),
        (["python", "-m", "package.train"], ["PLAN_FILE"]),
        (["bash", "run.sh"], ["DEEPSPEED_CONFIG"]),
        (["python", "distributed.py"], ["airflow_training.execution"]),
    ],
)
def test_what_a_command_its_scripts_and_their_neighbours_name_is_found(tmp_path, command, expected):
    for place in ("package", "read", "alone", "shell"):
        (tmp_path / place).mkdir()
    folder = tmp_path / "alone"
    (folder / "train.py").write_text("print()")
    if "read.py" in command:
        (folder / "read.py").write_text("import settings")
        (folder / "settings.py").write_text("import os\nTP = os.environ['TP_SIZE']")
    if "package.train" in command:
        (folder / "package").mkdir()
        (folder / "package" / "train.py").write_text("open(os.environ['PLAN_FILE'])")
    if "run.sh" in command:
        (folder / "run.sh").write_text("python train.py --deepspeed $DEEPSPEED_CONFIG")
    if "distributed.py" in command:
        (folder / "distributed.py").write_text("from airflow_training.execution import distribute")
    assert mentions(folder, *command) == expected


@pytest.mark.parametrize(
    "command",
    [
        ["./trainer"],
        ["python", "-m", "installed.trainer"],
        ["bash", "run.sh"],
        ["python", "-c", "1"],
    ],
)
def test_of_a_program_whose_text_is_not_there_nothing_is_said(tmp_path: Path, command):
    (tmp_path / "run.sh").write_text("exec trainer --config x")
    (tmp_path / "trainer").write_bytes(b"\x7fELF")
    assert mentions(tmp_path, *command) is None


def test_a_folder_with_too_many_files_is_not_judged(tmp_path: Path):
    for number in range(301):
        (tmp_path / f"m{number}.py").write_text("")
    assert mentions(tmp_path, "python", "m0.py") is None


def test_what_a_script_may_import_from_the_working_folder_is_looked_at(tmp_path: Path):
    for name in ("package", "common", "scripts"):
        (tmp_path / name).mkdir()
    (tmp_path / "package" / "train.py").write_text("from common import settings")
    (tmp_path / "scripts" / "train.py").write_text("from common import settings")
    (tmp_path / "common" / "settings.py").write_text("os.environ['PP_SIZE']")
    assert mentions(tmp_path, "python", "-m", "package.train") == ["PP_SIZE"]
    assert mentions(tmp_path, "python", "scripts/train.py") == ["PP_SIZE"]


def test_a_configuration_file_may_name_variables(tmp_path: Path):
    (tmp_path / "train.py").write_text("import hydra")
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "mesh.yaml").write_text("tp: ${oc.env:TP_SIZE}")
    assert mentions(tmp_path, "python", "train.py") == ["TP_SIZE"]


def test_a_value_in_the_command_is_its_variable(tmp_path: Path):
    (tmp_path / "train.py").write_text("")
    environment = {**SPLIT, "MEGATRON_ARGS": "--tensor-model-parallel-size 2", "TP_SIZE": "2"}
    command = ("sh", "-c", "python train.py --tensor-model-parallel-size 2 --lr 2")
    document = use(tmp_path, *command, environment=environment).document()
    assert document is not None
    assert document["mentions"] == ["MEGATRON_ARGS"]


def test_what_would_take_long_to_read_is_not_judged(tmp_path: Path, monkeypatch):
    (tmp_path / "train.py").write_text("")
    os.mkfifo(tmp_path / "pipe.py")  # opening it would wait for a writer
    (tmp_path / "zero.py").symlink_to("/dev/zero")
    assert mentions(tmp_path, "python", "train.py") == []
    monkeypatch.setattr(plan_use, "_MOST_ENTRIES", 50)
    for number in range(60):
        (tmp_path / f"{number}.jpg").touch()
    assert mentions(tmp_path, "python", "train.py") is None
    assert mentions(tmp_path, "python", "train.py", "--tp", "$TP_SIZE") == ["TP_SIZE"]


def test_packages_beside_a_script_are_not_its_own(tmp_path: Path):
    (tmp_path / "train.py").write_text("")
    site = tmp_path / "venv" / "lib" / "site-packages"
    site.mkdir(parents=True)
    (site / "other.py").write_text("TP_SIZE")
    assert mentions(tmp_path, "python", "train.py") == []


def test_a_script_that_carries_the_plan_out_leaves_a_mark(tmp_path: Path, monkeypatch):
    (tmp_path / "train.py").write_text("")
    seen = use(tmp_path, "python", "train.py")
    monkeypatch.setenv("TRAINING_PROGRESS_FILE", str(tmp_path / "progress.jsonl"))
    assert seen.document() == {"carried_out": False, "mentions": [], "files": 1}
    mark_plan()
    assert seen.document() == {"carried_out": True, "mentions": [], "files": 1}
    monkeypatch.delenv("TRAINING_PROGRESS_FILE")
    mark_plan()
    assert {each.name for each in tmp_path.iterdir()} == {"train.py", "plan-carried-out"}


def test_the_names_are_those_that_plans_set():
    strategy = Strategy(global_batch=1, micro_batch=1)
    common = {"RECOMPUTE", "PRECISION"}  # any script may have one of these
    assert split_variables(strategy).keys() - common <= set(NAMES)
