"""How the process beside a script is let go."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any, cast

from airflow_training.agent.companion import Companion
from airflow_training.agent.loop import Loop


class Timers:
    """The part of a loop that lets a companion go; the test says when time is up."""

    def __init__(self) -> None:
        self.timers: dict[str, Callable[[], None]] = {}

    def after(self, _: float, name: str, act: Callable[[], None]) -> None:
        self.timers[name] = act

    def cancel(self, name: str) -> None:
        self.timers.pop(name, None)


def test_one_that_ends_after_its_time_was_up_is_let_go_once(tmp_path):
    timers, over = Timers(), []
    companion = Companion(
        "out",
        loop=cast(Loop, timers),
        environment={},
        working_dir=str(tmp_path),
        log=2,
        say=lambda _: None,
    )
    process: subprocess.Popen[Any] = subprocess.Popen(["sleep", "600"])
    try:
        companion.pid = process.pid
        companion.end(0, lambda: over.append("over"))
        timers.timers["last look"]()
        companion._was_ended(9)
    finally:
        process.kill()
        process.wait()
    assert over == ["over"]
    assert not timers.timers
