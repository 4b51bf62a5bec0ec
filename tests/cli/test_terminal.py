"""Nothing that others wrote makes a terminal do something; `logs show` alone prints bytes as they are."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_training.cli.airflow_demo import picture
from airflow_training.cli.output import protect_terminal, table_lines
from airflow_training.control.model import JobEntry, Ledger
from airflow_training.control.reports import ProgressReport
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.text import printable
from tests.builders import entry
from tests.cli.conftest import COMMAND, job_file
from tests.waiting import PATIENCE

EVIL = "\x1b[31mred\x07\x9b2J\u202eevil\r"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "evil.log"
    lines = [
        json.dumps({"step": i, EVIL: 1.0 / (i + 1), "loss": 0.5}, ensure_ascii=False)
        for i in range(9)
    ]
    raw = [f"step={i} lo\x1b[31mss\x9b={i}.5 accuracy=0.5" for i in range(9)]
    path.write_text("\n".join([*lines, *raw, "RuntimeError: CUDA out of memory \x1b[31m"]) + "\n")
    return path


def check(answer) -> None:
    for text in (answer.stdout, answer.stderr):
        assert printable(text) == text


@pytest.mark.parametrize("output", ["table", "json"])
@pytest.mark.parametrize(
    "words",
    [
        ("validate", "evil.json"),
        ("explain", "evil.json"),
        ("validate", "fine.json", "-p", f"{EVIL}=1"),
        ("validate", "fine.json", "--set", f"spec.{EVIL}=1"),
        ("status", EVIL),
        ("list", "--state", EVIL),
        ("frameworks", "show", EVIL),
        ("logs", "metrics", "evil.log"),
        ("logs", "diagnose", "evil.log"),
        ("checkpoints", "list", EVIL),
    ],
)
def test_control_characters_never_reach_a_terminal(typed, home, log, words, output):
    work = home.parent / "work"
    job_file(work / "fine.json")
    evil: dict[str, Any] = {EVIL: 1, "framework": EVIL, "parameters": {EVIL: EVIL}}
    job_file(work / "evil.json", ("worker", 1), command=["true"], name="digits", **evil)
    (work / "evil.log").write_bytes(log.read_bytes())
    with_output = words[:2] != ("frameworks", "show")
    answer = typed(*words, *(["-o", output] if with_output else []))
    assert answer.stdout + answer.stderr
    check(answer)
    if output == "json" and answer.stdout and with_output:
        for line in answer.stdout.splitlines():
            json.loads(line)


def test_logs_are_shown_byte_for_byte(typed, log):
    assert "\x1b[31m" in typed("logs", "show", str(log)).stdout


def test_the_end_of_a_style_that_a_library_writes_is_not_shown_as_text(monkeypatch):
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stdout", shown)
    monkeypatch.setattr(sys, "stderr", shown)
    protect_terminal()
    sys.stdout.write("\x1b[0m")
    sys.stdout.write("red \x1b[31m")
    assert shown.getvalue() == "\x1b[0mred \\u001b[31m"


def test_a_cell_of_a_table_is_one_line():
    heads, row = table_lines(["a", "b"], [["one\ntwo\x1b", "x"]])
    assert row == "one\\ntwo\\u001b   x"
    assert heads.index("B") == row.index("x")


def on_a_terminal(stream: str, *words: str, **options: Any) -> str:
    """Return what a command writes to a terminal that is its `stdout` or `stderr`."""
    ours, theirs = pty.openpty()
    options = {"stdout": subprocess.DEVNULL, stream: theirs, **options}
    with subprocess.Popen([*COMMAND, *words], stdin=theirs, **options) as process:
        os.close(theirs)
        shown = b""
        try:
            while chunk := os.read(ours, 65536):
                shown += chunk
        except OSError:
            pass  # the other end is closed
        process.wait(timeout=PATIENCE)
    os.close(ours)
    return shown.decode()


@pytest.mark.e2e
def test_a_run_on_a_terminal_keeps_its_colours_and_escapes_what_others_wrote(home):
    work = home.parent / "work"
    job_file(work / "job.json", command=["sh", "-c", "exit 3"])
    shown = on_a_terminal(
        "stderr", "run", "job.json", "--run-id", "a\x9b31m",
        cwd=work, env={**os.environ, "TERM": "xterm-256color"},
    )  # fmt: skip
    assert "\x1b[" in shown
    assert "\x9b" not in shown


WHY = "exited with 1: FileNotFoundError: /data/shards/train-00001.parquet was deleted meanwhile"
STATUS = [
    ["worker", "Running", 4, 0, 3, 0, 1, 0, 2, WHY],
    ["parameter-server", "Succeeded", 1, 0, 0, 1, 0, 0, 0, ""],
]
COLUMNS = [
    "role",
    "state",
    "desired",
    "pending",
    "running",
    "succeeded",
    "failed",
    "stopped",
    "restarts",
    "why",
]


@pytest.mark.parametrize("width", [60, 100, 160])
def test_tables_wrap_at_words(width):
    lines = table_lines(COLUMNS, STATUS, width=width)
    assert max(map(len, lines)) <= width
    shown = " ".join(lines).split()
    for row in STATUS:
        assert {word for cell in row for word in str(cell).split()} <= {*shown}
    assert {head.upper() for head in COLUMNS} <= {*shown}


@pytest.mark.parametrize("width", [60, 100])
def test_a_word_longer_than_the_terminal_stays_whole(width):
    uri = "s3://bucket/" + "x" * width
    assert uri in " ".join(table_lines(["step", "uri"], [[1, uri]], width=width)).split()


def test_a_table_that_fits_or_goes_to_a_pipe_is_not_wrapped():
    whole = table_lines(COLUMNS, STATUS)
    assert len(whole) == 3
    assert WHY in whole[1]
    assert table_lines(COLUMNS, STATUS, width=max(map(len, whole))) == whole
    assert table_lines(COLUMNS, [], width=60)[0].split() == [head.upper() for head in COLUMNS]


@pytest.mark.e2e
@pytest.mark.parametrize("width", [60, 100])
def test_a_diagnosis_wraps_at_words(typed, home, width):
    line = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB " + "of many words " * 12
    Path("train.log").write_text(f"step 1\n{line.strip()}\n")
    piped = typed("logs", "diagnose", "train.log").stdout
    assert line.strip() in piped
    columns = {**os.environ, "COLUMNS": str(width)}
    lines = on_a_terminal("stdout", "logs", "diagnose", "train.log", env=columns).splitlines()
    assert max(map(len, lines)) <= width
    assert " ".join(lines).split() == piped.split()


def test_the_demo_shows_the_loss_or_nothing(home):
    instances = {
        InstanceKey("master", 0): entry("master", state="succeeded", address="127.0.0.1:29500"),
        InstanceKey("worker", 0): entry("worker", state="running", address="127.0.0.1:29501"),
    }
    ledger = Ledger(job=JobEntry(state="Running"), instances=instances)
    done = ProgressReport(step=900, total_steps=900, metrics={"accuracy": 0.97})
    going = ProgressReport(step=30, total_steps=900, metrics={"loss": 0.31})
    lines = picture(
        "digits",
        ledger,
        {InstanceKey("master", 0): done, InstanceKey("worker", 0): going},
        "running",
        width=100,
    )
    assert [line.split()[0] for line in lines[1:]] == ["INSTANCE", "master-0", "worker-0"]
    assert lines[2].endswith("900 / 900")
    assert lines[3].endswith("30 / 900    0.31")
    assert "done" not in " ".join(lines)
