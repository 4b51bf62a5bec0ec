"""Tells what instances have measured before their commands started, once of each attempt. Pure."""

from __future__ import annotations

from dataclasses import replace

from airflow_training.control import reasons
from airflow_training.control.draft import Draft
from airflow_training.control.model import ActivePhase
from airflow_training.control.observations import Observations
from airflow_training.control.readiness import preflight_result

__all__ = ["tell_measured"]


def tell_measured(draft: Draft, observations: Observations) -> None:
    """Tell the figures of attempts as soon as the records of their agents have them, of short ones at their end."""
    if draft.spec.preflight is None:
        return
    awaited = {
        entry.uid: entry
        for entry in draft.instances.values()
        if isinstance(entry.phase, ActivePhase) and not entry.phase.preflight_told and entry.uid
    }
    for seen in observations.instances if awaited else ():
        entry = awaited.get(seen.uid)
        measured = preflight_result(seen.environment) if entry is not None else None
        if entry is None or measured is None or not isinstance(entry.phase, ActivePhase):
            continue
        told = draft.put(replace(entry, phase=replace(entry.phase, preflight_told=True)))
        if measured:
            words = "; ".join(f"{name}: {value}" for name, value in measured.items())
            draft.record_event(reasons.PREFLIGHT_PASSED, words, of=told)
