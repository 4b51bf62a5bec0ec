"""Which attempt a pod runs, from its labels, its annotations and what its agent said."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_training.agent.pod_attempts import expand_variables
from airflow_training.control.observations import Observation
from airflow_training.documents.instances import InstanceKey
from airflow_training.runtimes.kubernetes import names
from airflow_training.runtimes.kubernetes.pod_attempts import (
    AgentReport,
    first_log_line,
    intended_uid,
    newest_agent_report,
    ref_of,
    stays_now,
    with_agent_report,
)
from airflow_training.runtimes.kubernetes.pod_view import PodView

WAITS: dict[str, Any] = {"waits": True, "exit_code": 7, "reason": "Error", "finished_at": 30.0}


def a_pod(*, attempt: int = 0, **annotations: Any) -> dict[str, Any]:
    labels = {
        names.RUN: "r", names.JOB: "digits", names.CONTROLLER: "here", names.ROLE: "worker",
        names.INDEX: "0", names.EPOCH: "0", names.JOB_ATTEMPT: "0", names.ATTEMPT: str(attempt),
    }  # fmt: skip
    annotations = {names.IN_PLACE: "true", **annotations}
    metadata = {"uid": "pod", "labels": labels, "annotations": annotations}
    return {"metadata": metadata}


def restarted(number: int = 1) -> dict[str, Any]:
    """Return a pod that was ordered to begin attempt 4 after attempt 3."""
    mark = json.dumps({"number": number, "before": [0, 0, 3]})
    return a_pod(attempt=4, **{names.TURN: mark})


def look(pod: dict[str, Any], turn: AgentReport | None, state: Any = "running") -> Observation:
    seen = Observation(key=InstanceKey("worker", 0), uid="pod", state=state, address_live=True)
    return with_agent_report(seen, PodView.of(pod), turn)


def test_a_pod_that_reports_can_stay():
    assert not look(a_pod(), None).in_place
    seen = look(a_pod(), AgentReport(number=0))
    assert (seen.uid, seen.state, seen.in_place) == ("pod", "running", True)


def test_a_pod_whose_command_has_failed_is_a_failed_instance_that_waits():
    seen = look(a_pod(), AgentReport(number=0, **WAITS))
    assert (seen.state, seen.exit_code, seen.in_place) == ("failed", 7, True)
    assert not seen.address_live
    assert seen.finished_at == 30.0


@pytest.mark.parametrize(
    ("turn", "uid", "attempt", "state"),
    [
        pytest.param(AgentReport(number=0, **WAITS), "pod", 3, "failed", id="ordered-not-begun"),
        pytest.param(AgentReport(number=1), "pod.1", 4, "running", id="begun"),
        pytest.param(AgentReport(number=1, **WAITS), "pod.1", 4, "failed", id="failed-again"),
    ],
)
def test_the_next_attempt_is_another_instance_once_it_has_begun(turn, uid, attempt, state):
    seen = look(restarted(), turn)
    assert (seen.uid, seen.attempt, seen.state) == (uid, attempt, state)
    assert ref_of(PodView.of(restarted()), turn).uid == uid


@pytest.mark.parametrize("odd", ["x", "nan", "inf", "9e18"])
def test_until_when_a_pod_stays_is_not_believed_where_it_cannot_be(odd):
    pod = {**a_pod(), "status": {"phase": "Running"}}
    pod["metadata"]["annotations"]["airflow-training/kept-until"] = odd
    assert not stays_now(PodView.of(pod), now=1000.0)
    pod["metadata"]["annotations"]["airflow-training/kept-until"] = "1060"
    assert stays_now(PodView.of(pod), now=1000.0)


def test_a_pod_that_is_going_does_not_wait():
    seen = look(a_pod(), AgentReport(number=0, **WAITS), state="terminating")
    assert (seen.state, seen.in_place) == ("terminating", False)


def test_what_the_labels_name_has_a_uid_and_a_place_in_the_log():
    first, third = PodView.of(a_pod()), PodView.of(restarted(2))
    assert (intended_uid(first), first_log_line(first)) == ("pod", b"")
    assert intended_uid(third) == "pod.2"
    assert first_log_line(third) == b"airflow-training: attempt 0.0.4 begins"


def test_only_the_newest_word_of_this_very_pod_counts():
    records: list[dict[str, Any]] = [
        {"turn": {"number": 0, "pod": "pod", **WAITS}},
        {"turn": {"number": 1, "pod": "pod", "started_at": 40.0}},
        {"turn": {"number": 5, "pod": "another"}},
        {"turn": "nonsense"},
        {},
    ]
    assert newest_agent_report(records, "pod") == AgentReport(number=1, started_at=40.0)
    assert newest_agent_report(records, "unknown") == AgentReport(number=0)
    later = AgentReport(number=2)
    assert newest_agent_report(records, "pod", after=later) == later


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("$(HERE)/x", "there/x"),
        ("$(NOWHERE_AT_ALL)", "$(NOWHERE_AT_ALL)"),
        ("$$(HERE)", "$(HERE)"),
        ("$HERE $$", "$HERE $"),
    ],
)
def test_variables_are_replaced_as_a_kubelet_does_it(text, found, monkeypatch):
    monkeypatch.setenv("HERE", "there")
    assert expand_variables(text) == found
