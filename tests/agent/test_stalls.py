"""When a script that reports progress counts as hanging; the clock is an argument."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_training.agent.progress_tail import NewestProgress
from airflow_training.agent.stalls import StallWatch, allowed_seconds


class Script:
    """A script's progress file, and who watches it; a look every second."""

    def __init__(self, folder: Path, **limits: object) -> None:
        self.path = folder / "progress.jsonl"
        self.now = 100.0
        self.watch = StallWatch(NewestProgress(self.path), limits)

    def says(self, **line: object) -> Script:
        with self.path.open("a") as file:
            file.write(json.dumps({"time": self.now, **line}) + "\n")
        return self

    def trains(self, steps: int, *, seconds: float) -> Script:
        for step in range(steps):
            self.says(step=step)
            assert not self.after(seconds)
        return self

    def after(self, seconds: float) -> str:
        """Return the first complaint within so many seconds."""
        until = self.now + seconds
        while self.now < until:
            self.now = min(until, self.now + 1)
            message = self.watch.poll(now=self.now)
            if message:
                return message
        return ""


def test_a_script_that_reports_nothing_never_hangs(tmp_path: Path) -> None:
    assert Script(tmp_path).after(100_000) == ""


@pytest.mark.parametrize(
    ("step_seconds", "quiet", "hangs"),
    [
        pytest.param(0.1, 30, False, id="at-least-thirty-seconds"),
        pytest.param(0.1, 32, True, id="and-no-more"),
        pytest.param(20.0, 100, False, id="five-steps"),
        pytest.param(20.0, 103, True, id="five-steps-and-no-more"),
    ],
)
def test_how_long_nothing_may_come(
    tmp_path: Path, step_seconds: float, quiet: float, hangs: bool
) -> None:
    script = Script(tmp_path).trains(60, seconds=step_seconds)
    message = script.says(step=60).after(quiet)
    assert bool(message) == hangs
    assert not hangs or "after step 60" in message


def test_while_it_warms_up_it_has_the_time_of_init(tmp_path: Path) -> None:
    script = Script(tmp_path, sections={"init": 60}).trains(5, seconds=1)
    assert script.after(55) == ""
    assert "60 s are allowed" in script.after(10)


def test_a_section_has_a_limit_of_its_own(tmp_path: Path) -> None:
    script = Script(tmp_path, sections={"eval": 200}).trains(20, seconds=1)
    script.says(section="eval")
    assert script.after(190) == ""
    assert "in section 'eval'; 200 s are allowed" in script.after(15)


def test_after_a_section_it_trains_again(tmp_path: Path) -> None:
    script = Script(tmp_path).trains(20, seconds=1)
    script.says(section="eval")
    assert script.after(500) == ""
    script.says(section=None)
    script.says(step=20)
    assert script.after(29) == ""
    assert "after step 20; 30 s are allowed" in script.after(5)


def test_a_commit_is_a_sign_of_life(tmp_path: Path) -> None:
    script = Script(tmp_path).trains(20, seconds=1)
    for _ in range(5):
        assert script.after(25) == ""
        script.says(checkpoint={"uri": "/c", "step": 1, "digest": "d"})


def test_a_machine_that_stood_still_is_no_silence(tmp_path: Path) -> None:
    script = Script(tmp_path).trains(20, seconds=1)
    script.now += 3600
    assert script.after(10) == ""


def test_other_sections_are_not_without_limit() -> None:
    known = {
        name: allowed_seconds({}, section=name, step_seconds=[]) for name in ("compile", "mine")
    }
    assert known == {"compile": 1800.0, "mine": 3600.0}


def test_the_p95_is_that_of_the_newest_fifty_steps(tmp_path: Path) -> None:
    newest = NewestProgress(tmp_path / "p")
    at = 0.0
    lines = []
    for step in range(200):
        at += 10.0 if step < 100 else 1.0 + (step % 10 == 0)
        lines.append(json.dumps({"step": step, "time": at}))
    (tmp_path / "p").write_text("\n".join(lines) + "\n")
    newest.poll()
    assert sorted(set(newest.step_seconds)) == [1.0, 2.0]
    assert allowed_seconds(
        {"stallSeconds": 0.1}, section="", step_seconds=newest.step_seconds
    ) == pytest.approx(10.0)


def test_the_document_keeps_what_later_lines_do_not_say(tmp_path: Path) -> None:
    path = tmp_path / "p"
    newest = NewestProgress(path)
    path.write_text('{"step": 1, "metrics": {"a": 1}}\n{"checkpoint": {"step": 1}}\n')
    newest.poll()
    with path.open("a") as file:
        file.write('{"step": 2}\n{"sect')
    assert newest.poll() == {"checkpoint": {"step": 1}, "step": 2}
    with path.open("a") as file:
        file.write('ion": "eval"}\n')
    assert newest.poll() == {"checkpoint": {"step": 1}, "step": 2, "section": "eval"}


def test_while_it_waits_for_others_its_clock_stands(tmp_path: Path) -> None:
    script = Script(tmp_path).trains(20, seconds=1)
    assert script.after(20) == ""
    script.watch.excuse(7, seconds=240, now=script.now)
    assert script.after(100) == ""
    script.watch.excuse(7, seconds=240, now=script.now)  # an order that is read again
    assert script.after(145) == ""
    assert "no progress for 3" in script.after(12), "what it had counted before counts"


def test_each_order_to_wait_begins_anew(tmp_path: Path) -> None:
    script = Script(tmp_path).trains(20, seconds=1)
    for number in range(10):
        script.watch.excuse(number, seconds=240, now=script.now)
        assert script.after(120) == ""


def test_once_it_waits_for_nobody_its_silence_counts_from_then_on(tmp_path: Path) -> None:
    script = Script(tmp_path).trains(60, seconds=0.1)
    assert script.after(20) == ""
    script.watch.excuse(0, seconds=240.0, now=script.now)
    assert script.after(100) == ""
    for _ in range(2):  # the same order, given again
        script.watch.excuse(1, seconds=0.0, now=script.now)
        assert script.after(14) == ""
    assert "30 s are allowed" in script.after(5)
