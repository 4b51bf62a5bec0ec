"""`align` as a user types it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.execution import plain_training

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(540)]

SIZES = ("--global-batch", "16", "--micro-batch", "4", "--steps", "1", "-o", "json")
FAULTY = """
import os

class Shifted(nn.Module):
    def forward(self, x):
        return x.roll(1, 0) if os.environ["WORLD_SIZE"] == "2" else x

def shifted():
    return nn.Sequential(nn.Linear(16, 16), Shifted(), nn.Linear(16, 8)), (torch.zeros(4, 16),)
"""


def test_align_says_equal_or_names_the_operator_and_its_place(command, home, monkeypatch):
    shutil.copy(plain_training.__file__, "train.py")
    with Path("train.py").open("a") as file:
        file.write(FAULTY)
    equal = command("align", "train:example", "--split", "tp=2", *SIZES)
    assert equal.code == 0, equal.stderr
    assert equal.json["equal"] is True
    assert equal.json["first"] is None
    assert {each["kind"]: each["diverged"] for each in equal.json["kinds"]} == {
        "output": 0,
        "output gradient": 0,
        "gradient": 0,
        "loss": 0,
        "parameter": 0,
        "optimizer": 0,
    }
    other = command("align", "train:shifted", "--split", "tp=2", *SIZES)
    assert other.code == 1, other.stderr
    first = other.json["first"]
    assert (first["kind"], first["operator"], first["step"]) == ("output", "1", 0)
    assert first["place"].startswith("Shifted (train.py:")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--split", "tp=2"], "--global-batch"),
        (SIZES, "--plan"),
        (["--split", "cp=2", *SIZES], "strategy.cp"),
        (["--split", "tp=1", *SIZES], "one device"),
        (["--split", "tp=2", "--split", "recompute=full", *SIZES], "strategy.recompute"),
        (["--split", "tp=2", "--record", "kept", "--bisect", *SIZES], "--record"),
        (["--between", "one", "other"], "--between"),
        (["--split", "tp=2", "--record", "/dev/null/kept", *SIZES], "--record"),
    ],
)
def test_what_cannot_be_aligned_is_refused(command, home, words, says):
    done = command("align", "train:example", *words)
    assert done.code == 2
    assert says in done.stderr


def test_a_function_that_is_missing_is_named(command, home):
    shutil.copy(plain_training.__file__, "train.py")
    done = command("align", "train:example", "--split", "dp=2", "--loss", "los", *SIZES)
    assert done.code == 2
    assert "train has no function 'los'" in done.stderr


def test_recorded_runs_of_two_splits_are_compared(command, home):
    shutil.copy(plain_training.__file__, "train.py")
    for folder, split, micro_batch in (("samples", "dp=2", "4"), ("width", "tp=2", "8")):
        sizes = ("--global-batch", "16", "--micro-batch", micro_batch, "--steps", "1")
        done = command("align", "train:example", "--split", split, *sizes, "--record", folder)
        assert done.code == 0, done.stderr
    found = command("align", "--between", "samples/split", "width/split", "-o", "json")
    assert found.code == 0, found.stderr
    assert found.json["equal"] is True
    compared = {each["kind"]: each["compared"] for each in found.json["kinds"]}
    assert min(compared[kind] for kind in ("output", "gradient", "parameter")) > 0
    ignored = command("align", "--between", "samples/split", "width/split", "--split", "dp=2")
    assert ignored.code == 2
    assert "--between" in ignored.stderr
    missing = command("align", "--between", "samples/split", "samples/other")
    assert missing.code == 2
    assert "samples/other" in missing.stderr


LATE = """
class Late(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(16, 16)
        self.calls = 0

    def forward(self, x):
        self.calls += self.training
        x = self.inner(x)
        late = os.environ["WORLD_SIZE"] == "2" and self.calls > 12
        return x * 1.001 if late else x

def late():
    return nn.Sequential(nn.Linear(16, 16), Late(), nn.Linear(16, 8)), (torch.zeros(4, 16),)
"""


def test_the_step_is_found_by_few_passes(command, home):
    shutil.copy(plain_training.__file__, "train.py")
    with Path("train.py").open("a") as file:
        file.write(FAULTY + LATE)
    sizes = ("--global-batch", "16", "--micro-batch", "4", "--steps", "8", "-o", "json")
    done = command("align", "train:late", "--split", "dp=2", "--bisect", *sizes)
    assert done.code == 1, done.stderr
    first = done.json["first"]
    assert first["step"] > 0
    assert (first["kind"], first["operator"]) == ("output", "1")
    assert done.json["notes"][-1].startswith("3 passes")
