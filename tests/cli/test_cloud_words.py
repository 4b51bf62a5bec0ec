"""What is typed behind `cloud run` is read the same with Typer and without it; what is not plain is left to Typer."""

from __future__ import annotations

import inspect
from dataclasses import fields

import pytest

from airflow_training.cli import cloud
from airflow_training.cli.cloud_run import CloudRunWords, default_of, plain_words
from airflow_training.cli.main import build
from airflow_training.cloud import run
from airflow_training.cloud.options import RunOptions

PLAIN = [
    ["train.py"],
    ["train.py", "--lr", "0.1", "-m", "--detach", "--help"],
    ["--detach", "--all", "train.py"],
    ["--replicas", "2", "--framework=pytorch", "train.py"],
    ["--resources", "cpu=4", "--resources=nvidia.com/gpu=1", "train.py", "a=b"],
    ["--until", "loss < 0.1", "--hours", "1.5", "--data-wait=0", "train.py"],
    ["--env", "A=1", "--env", "B", "--data", "/d", "--allow-secret", "a.py:1", "t.py"],
    ["--allow-missing", "x", "--root", ".", "--team", "t", "--returns", "model=a.pt", "t.py"],
    ["--target", "office", "-m", "pkg.train", "--lr", "0.1"],
    ["-m", "pkg.train"],
    ["-m", "pkg.train", "--", "--lr", "0.1"],
    ["-m", "pkg.train", "x", "--", "y"],
    ["train.py", "--", "x"],
    ["--hours", "1", "--hours", "2", "train.py"],
    ["--dry-run", "train.py"],
]
NOT_PLAIN = [
    [],
    ["--help"],
    ["-h"],
    ["-o", "json", "--dry-run", "train.py"],
    ["--replicas", "0", "train.py"],
    ["--replicas", "many", "train.py"],
    ["--hours", "-1", "train.py"],
    ["--hours", "nan", "train.py"],
    ["--hours", "soon", "train.py"],
    ["--hours", "1", "--hours", "soon", "train.py"],
    ["--target"],
    ["--target", "--detach", "train.py"],
    ["--detach=yes", "train.py"],
    ["--detatch", "train.py"],
    ["-m"],
    ["--", "train.py"],
    ["-mpkg", "x"],
]


def by_typer(words, monkeypatch):
    found = []

    def run_there(typed):
        found.append(typed)
        return 0

    monkeypatch.setattr(cloud, "run_there", run_there)
    with pytest.raises(SystemExit):
        build(["cloud"])(["cloud", "run", *words], prog_name="airflow-training")
    return found[0] if found else None


def lists(typed):
    """Sequences of any kind as lists."""
    return {
        name: list(value) if isinstance(value, (list, tuple)) else value
        for name in (each.name for each in fields(CloudRunWords))
        for value in (getattr(typed, name),)
    }


@pytest.mark.parametrize("words", PLAIN, ids=" ".join)
def test_a_plain_line_is_read_as_typer_reads_it(words, monkeypatch):
    typed = plain_words(words)
    assert typed is not None
    assert lists(typed) == lists(by_typer(words, monkeypatch))


@pytest.mark.parametrize("words", [*NOT_PLAIN, ["--dry-run"]], ids=" ".join)
def test_another_line_is_left_to_typer(words):
    assert plain_words(words) is None


def test_the_line_in_a_script_takes_the_same_options():
    """`cloud.run` spells them out for whoever reads it, and imports nothing that could tell them."""
    told = {
        name: each.default
        for name, each in inspect.signature(run).parameters.items()
        if name != "mode"
    }
    known = {each.name: default_of(each) or None for each in fields(RunOptions)}
    del known["loads"]  # its own process tells what it opens
    assert {name: value or None for name, value in told.items()} == known
