"""What a training was set to is told by whoever knows it, and no secret of it."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_training.agent.library import library_path
from airflow_training.agent.package import agent_program, portable_agent
from airflow_training.agent.parameters import MOST_BYTES, ParametersFile
from airflow_training.interception.module_changes import after_method
from airflow_training.interception.parameters import ParameterWatch, plain_values
from airflow_training.interception.protocol import PARAMETERS, PARAMETERS_NAME, hook_environment

SCRIPT = """
import argparse, dataclasses, pathlib, sys

@dataclasses.dataclass
class Config:
    width: int = 32
    layers: tuple = (1, 2)
    api_key: str = "k"
    folder: pathlib.Path = pathlib.Path("out")
    loss: object = print

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.5)
parser.add_argument("--token", default="x")
args = parser.parse_args()
config = Config(width=args.lr and 64)
print("trained", sorted(each for each in sys.modules if "airflow" in each))
sys.exit(3)
"""
TORCH = """
import torch
from torch.utils.data import DataLoader, TensorDataset

def train():
    data = TensorDataset(torch.zeros(8, 2))
    loader = DataLoader(data, batch_size=4, shuffle=True)
    DataLoader(data, batch_size=2)
    model = torch.nn.Linear(2, 1)
    torch.optim.AdamW(model.parameters(), lr=0.25)
    torch.optim.AdamW(model.parameters(), lr=0.25)

train()
"""


def run(script: str, folder: Path, *args: str, **variables: str):
    (folder / "train.py").write_text(script)
    told = hook_environment(parameters=True, code_roots=[str(folder)])
    progress = {"TRAINING_PROGRESS_FILE": str(folder / "progress.jsonl")}
    done = subprocess.run(
        [sys.executable, "train.py", *args],
        cwd=folder,
        env={**os.environ, **told, **progress, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    found = ParametersFile(folder / "progress.jsonl")
    found.poll()
    return done, found.document


@pytest.mark.e2e
def test_arguments_and_dataclasses_are_told_and_nothing_else_changes(tmp_path):
    done, found = run(SCRIPT, tmp_path, "--lr", "0.1")
    assert (done.stdout, done.stderr, done.returncode) == ("trained []\n", "", 3)
    assert found == {
        "argparse": {"lr": 0.1},
        "Config": {"width": 64, "layers": [1, 2], "folder": "out"},
    }


RAISING = """
import dataclasses

@dataclasses.dataclass
class First:
    width: int

@dataclasses.dataclass
class Second:
    width: int = 2

class Slots:
    __slots__ = ("depth",)

@dataclasses.dataclass
class Third(Slots):
    __slots__ = ()
    depth: int

@dataclasses.dataclass
class Fourth:
    lr: float
    steps: int = dataclasses.field(default=4, init=False)
    decay: float = 0.0

@dataclasses.dataclass
class Unset(Slots):
    __slots__ = ("bits",)
    depth: int
    bits: int

first = First(object())
First.width = property(lambda _: print("read"))
second = Second()
third = Third(3)
fourth = Fourth(0.5)
del fourth.decay
Fourth.decay = property(lambda _: print("read"))
unset = Unset(5, 6)
del unset.bits
"""


@pytest.mark.e2e
def test_what_holds_values_is_read_by_no_code_of_the_program(tmp_path):
    done, found = run(RAISING, tmp_path)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
    assert found == {
        "Second": {"width": 2},
        "Third": {"depth": 3},
        "Fourth": {"lr": 0.5, "steps": 4},
        "Unset": {"depth": 5},
    }


@pytest.mark.e2e
@pytest.mark.parametrize("name", ["portable", "compiled"])
def test_the_program_of_an_agent_brings_the_hook(tmp_path, name):
    program = tmp_path / "agent.pyz"
    if name == "portable":
        program.write_bytes(portable_agent())
    else:
        program = agent_program(tmp_path)
    path = library_path(str(program), {PARAMETERS: "tell", "PYTHONPATH": "own"})
    _, found = run(SCRIPT, tmp_path, "--lr", "0.1", PYTHONPATH=path)
    assert found["argparse"] == {"lr": 0.1}
    assert library_path("x.pyz", {"PYTHONPATH": "own"}) == "own:x.pyz"


@pytest.mark.e2e
def test_two_hooks_on_the_path_are_one(tmp_path):
    told = hook_environment(parameters=True)["PYTHONPATH"]
    program = tmp_path / "agent.pyz"
    program.write_bytes(portable_agent())
    path = library_path(str(program), {PARAMETERS: "tell", "PYTHONPATH": told})
    script = "import sys\nprint(sum('interception' in type(f).__module__ for f in sys.meta_path))\n"
    done, _ = run(script, tmp_path, PYTHONPATH=path)
    assert (done.stdout, done.stderr) == ("1\n", "")


@pytest.mark.e2e
def test_the_other_ranks_of_an_instance_say_nothing(tmp_path):
    _, found = run(SCRIPT, tmp_path, LOCAL_RANK="1")
    assert found == {}


@pytest.mark.e2e
def test_a_framework_tells_learning_rate_and_batch_size(tmp_path):
    pytest.importorskip("torch")
    done, found = run(TORCH, tmp_path)
    assert done.returncode == 0, done.stderr
    assert found["torch.optim.AdamW"]["lr"] == 0.25
    assert found["torch.utils.data.DataLoader"]["batch_size"] == 4
    assert found["torch.utils.data.DataLoader (2)"]["batch_size"] == 2
    assert len(found) == 3, "the same once"


@pytest.mark.parametrize(
    "values",
    [
        {"lr": 0.1, "name": "a", "on": True, "none": None},
        {"betas": [0.9, 0.99]},
        {"tokenizer": "bert", "max_tokens": 100, "key_size": 3, "author": "me"},
        {
            "model": "meta-llama/Llama-2-7b-chat",
            "data": "s3://bucket/train/part-1.csv",
            "at": "a:1",
        },
        {"maxTokens": 3, "modules": ["q_proj", "v_proj"], "use_auth": False, "monkey_size": 2},
        {"path": "/data/a-long-path/of-2026/with/many/folders.csv"},
    ],
    ids=", ".join,
)
def test_plain_values_are_told(values):
    assert plain_values(values) == values


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lr", float("nan")),
        ("hf_token", "x"),
        ("password", "x"),
        ("api-key", "x"),
        ("anything", "sk" + "ab12" * 8),
        ("several", ["ab12" * 8]),
        ("url", "https://me:word@host/x"),
        ("url", "https://word@host/x"),
        ("url", "https://host/x?token=x"),
        ("url", "https://account.blob/x?sv=1&sig=x"),
        ("url", "here:\nhttps://me:wo/rd@host/x"),
        ("url", "https://hooks.slack.com/services/T0/B0/x"),
        ("url", "https://host/T0/" + "ab12" * 6),
        ("dbPassword", "x"),
        ("dbpassword", 1234),
        ("pwd", "x"),
        ("authToken", "x"),
        ("hftoken", "x"),
        ("pass_phrase", "x"),
        ("wandb_key", "x"),
        ("api_key_value", "x"),
        ("APIKey", "x"),
        ("openaiApiKey2", "x"),
        ("header", "Authorization: Bearer x"),
        ("header", "bearer x"),
        ("dsn_text", "Server=h;Password=x;"),
        ("arguments", "--password x"),
        ("arguments", '{"token": "x"}'),
        ("words", ["--password", "x"]),
        ("words", ["--hf-token=x"]),
        ("aws", "wJalr/UtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKE1"),
        ("aws", "id " + "Ab1/" * 10),
        ("azure", "Ab1/" * 21 + "Ab=="),
        ("words", ["--id", "use " + "ab12" * 8]),
        ("_private", 1),
        ("tensor", object()),
        ("text", "x" * 300),
    ],
    ids=lambda each: each if isinstance(each, str) and len(each) < 10 else "",
)
def test_what_may_be_a_secret_and_what_is_no_plain_value_is_left_out(name, value):
    assert plain_values({name: value, "width": 3}) == {"width": 3}


WATCHED = """
import dataclasses, sys, weakref

@dataclasses.dataclass
class Config:
    width: int = 32

def train():
    config = Config()
    gone = weakref.ref(config)
    given = locals()
    watch.tell_set(sys._getframe())
    given["config"] = width = 3
    watch.tell_set(sys._getframe())
    del config
    return given["config"], "width" in given, gone() is None

found = train()
"""


def test_a_look_at_variables_leaves_those_of_a_function_as_they_are(tmp_path):
    (tmp_path / "train.py").write_text(WATCHED)
    watch = ParameterWatch(str(tmp_path / PARAMETERS_NAME), after_method)
    script = str(tmp_path / "train.py")
    found = runpy.run_path(script, init_globals={"watch": watch}, run_name="__main__")["found"]
    assert found == (3, False, True)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_that_is_none_in_json_is_left_out(tmp_path, number):
    line = f'{{"from": "a", "values": {{"lr": {number}}}}}\n'
    other = '{"from": "b", "values": {"lr": 1}}\n'
    (tmp_path / PARAMETERS_NAME).write_text(line + line + other)
    found = ParametersFile(tmp_path / "progress.jsonl")
    assert found.poll()
    assert found.document == {"b": {"lr": 1}}


def test_what_is_told_is_bounded_and_nonsense_is_left_out(tmp_path):
    lines = ["[]", "{", '{"from": 1, "values": {}}', '{"from": "a", "values": [1]}']
    lines += [
        json.dumps({"from": f"c{number}", "values": {"v": "x" * 100}}) for number in range(100)
    ]
    (tmp_path / PARAMETERS_NAME).write_text("".join(f"{each}\n" for each in lines) + '{"from": "h')
    found = ParametersFile(tmp_path / "progress.jsonl")
    assert found.poll()
    assert 10 < len(found.document) < 100
    assert len(json.dumps(found.document)) <= MOST_BYTES
    assert not found.poll()
