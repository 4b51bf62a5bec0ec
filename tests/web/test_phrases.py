"""Where a run is, in twelve words."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from airflow_training.control.model import JobEntry
from airflow_training.documents.resolved import RunKey
from airflow_training.state.records import RunMark, RunOverview, RunRecord
from airflow_training.web.answers import actions_of, mark_of, phrase_of, version_of
from airflow_training.web.models import Phrase


def overview(state: Any, condition: str = "", **fields: Any) -> RunOverview:
    condition = condition or state
    entry = JobEntry(
        state=state,
        condition=condition,
        drained=fields.pop("drained", False),
    )
    record = RunRecord(
        uid="u",
        key=RunKey(source="cli", run_id="r"),
        job="digits",
        namespace="default",
        runtime="local",
        controller="here",
        state=state,
        condition=condition,
        submitted_at=0.0,
        finished_at=None,
        queued=False,
        tombstone=fields.pop("tombstone", False),
        document_digest="",
    )
    defaults = {
        "mark": RunMark(fields.pop("epoch", 0), fields.pop("request", 0)),
        "stop_requested": False,
        "kill_requested": False,
        "held": True,
        "lost": False,
        "instances": {"running": 2},
    }
    return RunOverview(record=record, entry=entry, **{**defaults, **fields})


TABLE: list[tuple[RunOverview, Phrase]] = [
    (overview("Pending", "Received"), "platform received the job"),
    (overview("Starting", "Submitting"), "sending it to the cluster"),
    (overview("Restarting", "Submitting"), "sending it to the cluster"),
    (overview("Starting", "Submitted"), "sent"),
    (overview("Failed", "SubmitFailed", drained=True), "sending failed"),
    (overview("Queued"), "queued"),
    (overview("Queued", lost=True, held=False), "queued"),
    (overview("Running"), "running"),
    (overview("Running", instances={"unknown": 1, "running": 1}), "running"),
    (overview("Running", "RuntimeUnknown"), "state unknown"),
    (overview("Running", lost=True, held=False), "state unknown"),
    (overview("Running", held=False), "running"),
    (overview("Running", instances={"unknown": 2, "succeeded": 1}), "state unknown"),
    (overview("Running", stop_requested=True), "received the stop command"),
    (overview("Running", stop_requested=True, lost=True), "received the stop command"),
    (overview("Queued", stop_requested=True), "received the stop command"),
    (overview("Stopped", "StopRequested"), "received the stop command"),
    (overview("Paused"), "paused"),
    (overview("Paused", lost=True, held=False), "paused"),
    (overview("Stopped", drained=True), "stopped"),
    (overview("Queued", tombstone=True), "stopped"),
    (overview("Failed", drained=True), "failed"),
    (overview("Failed", "StopRequested"), "running"),
    (overview("Succeeded", "Finished", drained=True), "succeeded"),
    (overview("Succeeded", "Finished", drained=True, tombstone=True), "succeeded"),
    (overview("Succeeded", "StopRequested"), "running"),
]


@pytest.mark.parametrize(("run", "phrase"), TABLE)
def test_the_state_is_told_in_words(run: RunOverview, phrase: Phrase):
    assert phrase_of(run) == phrase


def test_every_phrase_is_in_the_table():
    assert {phrase for _, phrase in TABLE} == set(get_args(Phrase))


@pytest.mark.parametrize(
    ("run", "actions"),
    [
        (overview("Running"), ["pause", "stop", "kill", "scale"]),
        (overview("Queued"), ["pause", "stop", "kill", "scale"]),
        (overview("Paused"), ["resume", "stop", "kill", "scale"]),
        (overview("Running", stop_requested=True), ["kill"]),
        (overview("Running", stop_requested=True, kill_requested=True), []),
        (overview("Stopped", "StopRequested"), ["kill"]),
        (overview("Failed"), ["kill"]),
        (overview("Succeeded"), []),
        (overview("Queued", tombstone=True), []),
        (overview("Succeeded", drained=True), []),
    ],
)
def test_what_can_be_asked_depends_on_the_state(run: RunOverview, actions: list[str]):
    assert actions_of(run) == actions


def test_what_was_seen_changes_with_each_request_and_epoch():
    runs = [
        overview("Running", request=last, epoch=epoch)
        for last in (0, 1, 11)
        for epoch in (0, 1, 11)
    ]
    assert len({version_of(run) for run in runs}) == len(runs)
    assert [mark_of(version_of(run)) for run in runs] == [run.mark for run in runs]


@pytest.mark.parametrize(
    "text", ["", "1", "1.", "1.2.3", "a.b", "-1.0", "1.9999999999", "\u0661.\u0662"]
)
def test_any_other_text_is_no_mark(text: str):
    assert mark_of(text) is None
