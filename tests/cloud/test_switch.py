"""The line in a script: inert everywhere but where it is to act."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from airflow_training import cloud
from airflow_training.cloud import MODE_VARIABLE, runs_in_cloud
from airflow_training.cloud.program import bill_text, main_program
from airflow_training.errors import InputError


@pytest.mark.parametrize(
    ("mode", "environ", "sent"),
    [
        pytest.param("cloud", {}, True, id="said-in-the-script"),
        pytest.param("local", {}, False, id="local"),
        pytest.param("local", {MODE_VARIABLE: "cloud"}, True, id="the-variable-decides"),
        pytest.param("cloud", {MODE_VARIABLE: "local"}, False, id="in-the-run"),
        pytest.param("cloud", {MODE_VARIABLE: ""}, True, id="an-empty-variable-says-nothing"),
        pytest.param("cloud", {"RANK": "0"}, False, id="a-rank"),
        pytest.param("cloud", {"LOCAL_RANK": "1"}, False, id="a-rank-of-torchrun"),
        pytest.param("cloud", {"TRAINING_ROLE": "worker"}, False, id="an-instance"),
        pytest.param(
            "cloud", {MODE_VARIABLE: "cloud", "RANK": "0"}, False, id="a-rank-all-the-same"
        ),
        pytest.param("other", {}, False, id="no-mode"),
    ],
)
def test_where_the_line_acts(mode, environ, sent):
    assert runs_in_cloud(mode, environ, {"__main__"}) is sent


def test_a_spawned_worker_sends_nothing():
    assert not runs_in_cloud("cloud", {}, {"__main__", "__mp_main__"})


def test_the_line_returns_and_says_nothing_where_it_does_not_act(monkeypatch, capfd):
    monkeypatch.delenv(MODE_VARIABLE, raising=False)
    before = {*sys.modules}
    assert cloud.run(framework="pytorch", replicas=2, resources={"cpu": 1}) is None  # type: ignore[func-returns-value]
    assert cloud.run(mode="local") is None  # type: ignore[func-returns-value]
    monkeypatch.setenv(MODE_VARIABLE, "local")
    assert cloud.run(mode="cloud", replicas=2) is None  # type: ignore[func-returns-value]
    assert capfd.readouterr() == ("", "")
    assert {*sys.modules} == before


@pytest.mark.e2e
def test_the_import_brings_nothing_that_a_script_would_notice():
    program = """
import sys
from airflow_training import cloud
cloud.run(mode="local")
print(*sorted(sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-S", "-c", program], capture_output=True, text=True, check=True,
        env={"PYTHONPATH": str(Path(cloud.__file__).parents[2])},
    )  # fmt: skip
    brought = {*done.stdout.split()}
    ours = {each for each in brought if each.startswith("airflow_training")}
    assert ours == {"airflow_training", "airflow_training.cloud"}
    others = {each.partition(".")[0] for each in brought - ours} - {"__main__", "sitecustomize"}
    assert others <= sys.stdlib_module_names
    assert not others & {
        "asyncio",
        "email",
        "http",
        "json",
        "logging",
        "pathlib",
        "socket",
        "subprocess",
    }


def test_a_script_is_sent_by_its_name_and_a_module_by_its_own():
    module = type(sys)("__main__")
    module.__spec__ = None
    module.__file__ = "/home/user/train.py"
    found = main_program(module, ["/home/user/train.py", "--lr", "0.1"])
    assert found == ["/home/user/train.py", "--lr", "0.1"]
    module.__spec__ = ModuleSpec("pkg.__main__", None)
    assert main_program(module, ["/home/user/pkg/__main__.py", "--lr"]) == ["-m", "pkg", "--lr"]


def test_a_running_notebook_is_told_to_be_sent_as_a_file():
    module = type(sys)("__main__")
    module.__spec__ = None
    with pytest.raises(InputError, match="in a terminal"):
        main_program(module, [""])


BILL = {
    "run_id": "train-1",
    "account": "ada",
    "team": None,
    "currency": "EUR",
    "final": True,
    "instance_seconds": "7.2",
    "gpu_seconds": "0",
    "total": "0.42",
}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "bill: 0.42 EUR, charged to ada (7.2 instance seconds)"),
        ({"team": "vision"}, "bill: 0.42 EUR, charged to vision (7.2 instance seconds)"),
        ({"account": None}, "bill: charged to nobody (7.2 instance seconds)"),
        (
            {"gpu_seconds": "14.4", "final": False},
            "bill: 0.42 EUR, charged to ada (7.2 instance seconds, 14.4 GPU seconds); it may become more",
        ),
    ],
    ids=["account", "team", "nobody", "goes-on"],
)
def test_a_bill_is_told_on_a_line_with_the_way_to_all_of_it(more, said):
    assert bill_text({**BILL, **more}) == f"{said}\nnext: airflow-training cloud bill train-1"
