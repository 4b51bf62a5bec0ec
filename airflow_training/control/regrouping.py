"""Ranks that formed their group again while their processes stayed, as the story of the run tells it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from airflow_training.control import reasons
from airflow_training.control.model import Event
from airflow_training.control.reports import Regrouping
from airflow_training.documents.instances import InstanceKey

__all__ = ["regrouped_event"]


def regrouped_event(
    key: InstanceKey, told: Regrouping, *, moves: Sequence[Mapping[str, Any]] = (), now: float
) -> Event:
    """Return the event of what an instance told; the same for the same words, but for its time.

    `moves`: what revisions of the plan were expected to cost. A group that was formed again under a revision is told beside that.
    """
    steps = _steps(told.lost_steps)
    source = "the newest checkpoint" if told.source == "checkpoint" else told.source
    bytes_ = "" if told.moved_bytes is None else f", {told.moved_bytes:,} bytes of it moved"
    expected = next((each for each in moves if each["revision"] == told.revision), None)
    data = {name: value for name, value in asdict(told).items() if value is not None}
    words = ""
    if expected is not None:
        data["expected"] = dict(expected)
        words = (
            f"; revision {told.revision} was expected to lose {_steps(expected['lost_steps'])},"
            f" {expected['seconds']:.1f} s and to move {expected['moved_bytes']:,} bytes"
        )
    return Event(
        at=now,
        reason=reasons.REGROUPED,
        message=(
            f"{told.ranks} ranks went on after step {told.step:,}, with the state of {source}{bytes_}: {steps} lost,"
            f" {told.seconds:.1f} s to the end of the first new step; who survived kept its process{words}"
        ),
        role=key.role,
        index=key.index,
        data=data,
    )


def _steps(number: int) -> str:
    return "1 step" if number == 1 else f"{number:,} steps"
