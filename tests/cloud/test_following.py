"""What a person sees of a run: lines as they are, and where it stands."""

from __future__ import annotations

import io
from typing import Any

import pytest

from airflow_training.cloud.following import ProgressLine, follow, progress_text, shown_lines
from airflow_training.cloud.protocol import CloudRunState
from airflow_training.errors import InputError, RuntimeUnavailable


@pytest.mark.parametrize(
    ("data", "last", "rank", "expected"),
    [
        pytest.param(b"a\nb", False, None, (b"a\nb", [], b""), id="at-once"),
        pytest.param(b"50%\r60%\r", False, None, (b"50%\r60%\r", [], b""), id="bars-move"),
        pytest.param(b"\xff\n", True, None, (b"\xff\n", [], b""), id="bytes-stay-bytes"),
        pytest.param(b"a\nb", False, 1, (b"[1] a\n", [], b"b"), id="whole-lines-of-several"),
        pytest.param(b"a\nb", True, 1, (b"[1] a\n[1] b\n", [], b""), id="the-last-line-too"),
        pytest.param(
            b"airflow-training: limit\nx\n", False, None, (b"x\n", ["airflow-training: limit"], b""),
            id="ours-apart",
        ),
        pytest.param(b"airfl", False, None, (b"", [], b"airfl"), id="maybe-ours"),
        pytest.param(b"airfl", True, None, (b"airfl", [], b""), id="not-ours"),
    ],
)  # fmt: skip
def test_lines(data, last, rank, expected):
    assert shown_lines(data, last=last, rank=rank) == expected


class Reviving:
    """A client whose service goes away, cannot be started at first, and is there again."""

    def __init__(self) -> None:
        self.answers = iter([True, False, False, True, True])
        self.tries = 0

    def run(self, run_id: str) -> CloudRunState:
        if not next(self.answers):
            raise RuntimeUnavailable("it does not answer")
        return CloudRunState(
            run_id=run_id, uid="u", state="Succeeded", over=True, exit_code=0, message=""
        )

    def log(self, run_id: str, **_: object) -> object:
        raise InputError.of(code="not_found", field="rank", message=f"{run_id} has none such")

    def revive(self) -> None:
        self.tries += 1
        raise RuntimeUnavailable("it has ended")


def test_a_service_that_cannot_be_started_again_at_once_is_waited_for(monkeypatch):
    monkeypatch.setattr("airflow_training.cloud.following._SLOWEST_POLL_SECONDS", 0)
    client: Any = Reviving()
    assert follow(client, "train-1", told=print).state == "Succeeded"
    assert client.tries == 2


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_an_open_line_of_the_program_is_not_erased(monkeypatch):
    screen = _Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr("sys.stdout", screen)
    line = ProgressLine(print)
    line.show("Starting")
    line.clear()
    line.printed(b"\r 10% of the bar")
    before = screen.getvalue()
    line.show("Running")
    assert screen.getvalue() == before
    line.printed(b" done\n")
    line.show("Running")
    assert screen.getvalue().endswith("Running")


def test_progress_is_rank_0s():
    rows = [
        {"rank": 1, "name": "worker-1", "state": "running", "progress": {"step": 9}},
        {
            "rank": 0,
            "name": "worker-0",
            "state": "running",
            "progress": {"step": 3, "total_steps": 9, "epoch": 1.0, "metrics": {"loss": 0.123456}},
        },
    ]
    state = CloudRunState(
        run_id="r", uid="u", state="Running", over=False, exit_code=None, message="", instances=rows
    )
    assert progress_text(state) == "Running: step 3/9, epoch 1, loss 0.1235"
