"""Scripts as tutorials have them: trained here and by `cloud run` they print the same losses and leave the same files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from airflow_training.state.store import open_store
from tests.waiting import PATIENCE

SCRIPTS = Path(__file__).parent / "scripts"


@dataclass(frozen=True, kw_only=True)
class Example:
    """A folder of `scripts`, and how its program is started. `{project}` is the folder's absolute path."""

    name: str
    words: Sequence[str] = ("train.py",)
    replicas: int = 1
    other_bytes: Sequence[str] = ()
    """Ends of names of files whose bytes differ between two runs here, too: absolute paths, times."""


EXAMPLES = [
    Example(name="numpy_regression", words=("train.py", "--lr", "0.2")),
    Example(name="torch_loop", words=("train.py", "--batch-size", "128")),
    Example(name="sklearn_digits"),
    Example(name="torch_ddp", replicas=2),
    Example(name="torch_images", words=("train.py", "{project}/pictures")),
    Example(name="char_lstm"),
    Example(name="resume", words=("train.py", "--resume", "first.ckpt")),
    Example(name="config_file", words=("train.py", "config.yaml", "optimizer.lr=0.01")),
    Example(
        name="package_module",
        words=(
            "-m",
            "trainer.train",
            "--samples",
            "{project}/samples",
            "--output",
            "{project}/out",
        ),
    ),
    Example(name="lightning_loop", other_bytes=(".ckpt",)),
    Example(name="transformers_trainer", other_bytes=("training_args.bin",)),
    Example(name="multiprocess"),
]
QUICK = ("numpy_regression", "torch_loop")


def _params() -> list[object]:
    return [
        pytest.param(
            each, id=each.name, marks=pytest.mark.e2e if each.name in QUICK else pytest.mark.soak
        )
        for each in EXAMPLES
    ]


def printed(words: Sequence[str], *, cwd: Path) -> str:
    """What a program says on standard output; it has to succeed."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def files_of(folder: Path, *, other_bytes: Sequence[str]) -> Mapping[str, bytes]:
    """Name and bytes of every file below a folder; no bytes of what differs from run to run."""
    return {
        str(each.relative_to(folder)): b""
        if str(each).endswith(tuple(other_bytes) or ("\0",))
        else each.read_bytes()
        for each in sorted(folder.rglob("*"))
        if each.is_file() and "__pycache__" not in each.parts
    }


@pytest.mark.parametrize("example", _params())
def test_a_script_trains_there_as_it_trains_here(example, tmp_path, airflow_home):
    here, sent = tmp_path / "here", tmp_path / "sent"
    shutil.copytree(SCRIPTS / example.name, here)
    if (here / "make_data.py").exists():
        printed(["make_data.py"], cwd=here)
    shutil.copytree(here, sent)
    words = [each.format(project=here) for each in example.words]
    if example.replicas > 1:
        launcher = ["torch.distributed.run", "--standalone", f"--nproc-per-node={example.replicas}"]
        words = ["-m", *launcher, *words]
    expected = printed(words, cwd=here)
    assert "loss" in expected

    options = ["--replicas", str(example.replicas), "--returns", "address"]
    words = [each.format(project=sent) for each in example.words]
    found = printed(["-m", "airflow_training.cli", "cloud", "run", *options, *words], cwd=sent)

    # the log of a run has what was written to standard error, too
    lines = {*expected.splitlines()}
    assert [line for line in found.splitlines() if line in lines] == expected.splitlines()
    [record] = open_store().runs()
    there = Path(os.environ["AIRFLOW_HOME"], "training-cloud/service/runs", record.key.run_id)
    left = files_of(there / "project", other_bytes=example.other_bytes)
    assert left == files_of(here, other_bytes=example.other_bytes)
