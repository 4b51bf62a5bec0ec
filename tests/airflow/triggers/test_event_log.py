"""What the log of a task tells of the run's events."""

from __future__ import annotations

import pytest

from airflow_training.control.model import Event
from airflow_training.triggers.event_log import EventLogger, line_of
from tests.airflow.triggers.scenes import Scene
from tests.builders import job, role


async def test_each_event_is_told_once_and_in_order(scene: Scene):
    scene.launch(job(runtime="memory"))
    told: list[str] = []
    story = EventLogger(scene.store, scene.uid, tell=lambda level, text: told.append(text))
    scene.store.add_events(scene.uid, [Event(at=1, reason="One"), Event(at=2, reason="Two")])
    await story.catch_up()
    scene.store.add_events(scene.uid, [Event(at=3, reason="Three")])
    await story.catch_up()
    assert told[-3:] == ["One", "Two", "Three"]
    assert len(told) == len(set(told))


async def test_a_role_hears_only_of_itself(scene: Scene):
    scene.launch(job(role("a"), role("b"), runtime="memory"))
    told: list[str] = []
    story = EventLogger(
        scene.store, scene.uid, tell=lambda level, text: told.append(text), role="b"
    )
    scene.store.add_events(
        scene.uid, [Event(at=1, reason="One", role="a"), Event(at=2, reason="Two", role="b")]
    )
    await story.catch_up()
    assert told == ["b: Two"]


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (Event(at=0, reason="JobStarted", message="launch begins"), "JobStarted: launch begins"),
        (Event(at=0, reason="Running", role="worker"), "worker: Running"),
        (
            Event(
                at=0,
                reason="InstanceRestarted",
                message="exit code 3",
                role="worker",
                index=1,
                attempt=2,
                rule="my-rule",
            ),
            "worker-1 (attempt 2): InstanceRestarted: exit code 3 [rule my-rule]",
        ),
    ],
)
def test_a_line_says_who_what_and_why(event: Event, line: str):
    assert line_of(event) == line
