"""A command line travels with its paths, and refuses to take secrets along."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_training.capture.command import capture_command, storage_addresses
from airflow_training.capture.model import CapturedCommand
from airflow_training.errors import InputError
from tests.capture.planted import GITHUB, HF, PASSWORD, URL, made


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "scripts").mkdir(parents=True)
    (root / "train.py").write_text("")
    (root / "scripts" / "run.py").write_text("")
    (root / "data.csv").write_text("")
    (tmp_path / "elsewhere").mkdir()
    return root


def captured(root: Path, *argv: str, working_dir: str = ".", **more: object) -> CapturedCommand:
    return capture_command(
        list(argv),
        root=root,
        working_dir=root / working_dir,
        environ=more.pop("environ", {}),  # type: ignore[arg-type]
        **more,  # type: ignore[arg-type]
    )


def test_a_script_with_its_arguments(root):
    command = captured(root, "scripts/run.py", "--lr", "0.1", "-v")
    assert (command.kind, command.entry, command.working_dir) == (
        "script",
        "scripts/run.py",
        "project",
    )
    assert list(command.args) == ["--lr", "0.1", "-v"]
    assert CapturedCommand.from_json(command.to_json()) == command


def test_a_module_in_a_folder_of_the_project(root):
    command = captured(root, "-m", "run", "--lr", "1", working_dir="scripts")
    assert (command.kind, command.entry, command.working_dir) == (
        "module",
        "run",
        "project/scripts",
    )


def test_a_script_is_named_from_where_it_is_started(root):
    assert captured(root, "../train.py", working_dir="scripts").entry == "train.py"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("data.csv", "data.csv"),
        ("--data=data.csv", "data.csv"),
        ("data.path=data.csv", "data.csv"),
        ("@data.csv", "data.csv"),
        ("../elsewhere", "../elsewhere"),
    ],
)
def test_arguments_that_name_what_exists_are_mapped(root, text, value):
    command = captured(root, "train.py", "--epochs", "3", text)
    assert command.paths == {2: str((root / value).resolve())}
    assert list(command.args) == ["--epochs", "3", text]


@pytest.mark.parametrize("text", ["nothing.csv", "3", "s3://bucket/data.csv", "--flag", "", "--x="])
def test_other_arguments_are_text(root, text):
    assert captured(root, "train.py", text).paths == {}


def test_an_absolute_path_of_the_project_is_written_as_a_relative_one(root):
    command = captured(
        root, "../train.py", f"--data={root}/data.csv", str(root), working_dir="scripts"
    )
    assert list(command.args) == ["--data=../data.csv", ".."]
    assert command.paths == {0: f"{root}/data.csv", 1: str(root)}


def test_an_absolute_path_outside_keeps_its_spelling(root, tmp_path):
    command = captured(root, "train.py", f"{tmp_path}/elsewhere")
    assert list(command.args) == [f"{tmp_path}/elsewhere"]
    assert command.paths == {0: f"{tmp_path}/elsewhere"}


@pytest.mark.parametrize(
    "args",
    [
        ["--token", "x"],
        ["--token=x"],
        ["--api-key=x"],
        ["--api_key", "abc"],
        ["--hf-token", "abc"],
        ["--password", "12345678"],
        ["--db.password=abc"],
        ["-password", "abc"],
        ["wandb.api_key=abc"],
        ["+trainer.secret=abc"],
        ["--clientSecret", "abc"],
        ["--key", made(32)],
        ["--name", HF],
        [HF],
        [f"--header=x {GITHUB}"],
        ["--config", f'{{"api_key": "{made(32)}"}}'],
        ["--db", f"postgresql://me:{PASSWORD}@db.company.com/x"],
    ],
)
def test_a_secret_in_an_argument_is_refused_with_what_to_use_instead(root, args):
    with pytest.raises(InputError) as raised:
        captured(root, "train.py", *args)
    text = str(raised.value)
    assert "secret" in text or "token" in text
    assert "cluster secret or an Airflow connection" in text
    assert not any(len(value) > 6 and f": {value}" in text for value in args)
    assert not any(secret in text for secret in (HF, GITHUB, PASSWORD))


@pytest.mark.parametrize(
    "args",
    [
        ["--max-tokens", "100"],
        ["--token-length=5"],
        ["--pad-token", "<pad>"],
        ["--tokenizer", "bert-base"],
        ["--use-auth-token", "--epochs", "3"],
        ["--use-auth-token", "true"],
        ["--key", "loss"],
        ["--sort-key=validation/top5"],
        ["--num-key-value-heads", "8"],
        ["--key-dim", "64"],
        ["--token", "$TOKEN"],
        ["--url", "http://localhost:8080/x"],
        ["model.eos_token=</s>"],
        ["--placeholder_token", "<cat-toy>", "--initializer_token", "toy"],
    ],
)
def test_arguments_that_only_sound_like_secrets_are_not_refused(root, args):
    assert list(captured(root, "train.py", *args).args) == args


def test_only_chosen_variables_travel(root):
    environ = {
        "OMP_NUM_THREADS": "4",
        "NCCL_DEBUG": "INFO",
        "WANDB_PROJECT": "digits",
        "WANDB_API_KEY": made(40),
        "HF_TOKEN": HF,
        "HOME": "/home/user",
        "HF_HOME": "/home/user/hf",
        "TORCH_HOME": "/home/user/torch",
        "PATH": "/bin",
        "SEED": "1",
        "TORCH_LOGS": HF,
        "HF_ENDPOINT": URL,
        "OTHER": "2",
    }
    command = captured(root, "train.py", environ=environ, env=["SEED", "LR=0.1", "NOT_SET"])
    assert command.env == {
        "LR": "0.1",
        "NCCL_DEBUG": "INFO",
        "OMP_NUM_THREADS": "4",
        "SEED": "1",
        "WANDB_PROJECT": "digits",
    }


@pytest.mark.parametrize(
    "text",
    ["HF_TOKEN", "DB_PASSWORD=x", f"X={HF}", f"INDEX={URL}", "HUB", "DATABASE", "not a name"],
)
def test_a_variable_that_holds_a_secret_is_refused(root, text):
    with pytest.raises(InputError) as raised:
        captured(root, "train.py", env=[text], environ={"HUB": HF, "DATABASE": URL})
    assert HF not in str(raised.value)
    assert URL not in str(raised.value)


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["trainn.py"], "did you mean 'train.py'?"),
        (["scripts"], "cloud run -m scripts"),
        (["nowhere/at/all.py"], "there is no such file in"),
        ([], "cloud run train.py"),
        (["../elsewhere.py"], "--root "),
    ],
)
def test_a_script_that_is_not_there_is_told_with_the_next_command(root, argv, expected):
    (root.parent / "elsewhere.py").write_text("")
    with pytest.raises(InputError) as raised:
        captured(root, *argv)
    assert expected in str(raised.value)


def test_addresses_of_storages_are_told_and_others_are_none():
    args = ["--data=s3://bucket/train", "gs://b/x", "--out", "s3://bucket/train", "https://host/a"]
    assert storage_addresses(
        [*args, "s3:/none", "text s3://in/it", "data.path=hf://datasets/a"]
    ) == [
        "s3://bucket/train",
        "gs://b/x",
        "hf://datasets/a",
    ]
