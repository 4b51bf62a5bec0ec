"""Ranks that formed their group again while their processes stayed, as the story of the run tells it. Pure."""

from __future__ import annotations

from dataclasses import asdict

from airflow_training.control import reasons
from airflow_training.control.model import Event
from airflow_training.control.reports import Regrouping
from airflow_training.documents.instances import InstanceKey

__all__ = ["regrouped_event"]


def regrouped_event(key: InstanceKey, told: Regrouping, *, now: float) -> Event:
    """Return the event of what an instance told; the same for the same words, but for its time."""
    steps = "1 step" if told.lost_steps == 1 else f"{told.lost_steps:,} steps"
    source = "the newest checkpoint" if told.source == "checkpoint" else told.source
    return Event(
        at=now,
        reason=reasons.REGROUPED,
        message=(
            f"{told.ranks} ranks went on after step {told.step:,}, with the state of {source}: {steps} lost,"
            f" {told.seconds:.1f} s to the end of the first new step; who survived kept its process"
        ),
        role=key.role,
        index=key.index,
        data=asdict(told),
    )
