"""The status document of a run, put together from the store. The same for every reader."""

from __future__ import annotations

from typing import Any

from airflow_training.control import reasons
from airflow_training.control.expected_start import expected_start, is_waiting
from airflow_training.control.model import Ledger
from airflow_training.control.recovery import rejection_text
from airflow_training.control.rollup import rollup, timestamp
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.state.records import RunState
from airflow_training.state.store import Measurement, Store
from airflow_training.supervise.absences import absence_of_run, what_to_type

__all__ = ["rejected_checkpoints", "run_status"]

NOT_DRIVEN = "NotDriven"
"""Reason of a run that nobody drives."""


def run_status(store: Store, uid: str) -> dict[str, Any]:
    """The document of `status --output json`; raises InputError for an unknown run. Blocks."""
    state = store.read([uid]).get(uid)
    if state is None:
        store.job(uid)  # raises with the runs that exist
        raise KeyError(uid)
    document = rollup(
        state.job,
        state.ledger,
        run_id=state.record.key.run_id,
        submitted_by=state.record.submitted_by,
        progress=store.progress.newest(uid),
        usage=store.usage.of_run(uid),
        output=store.output(uid),
        now=store.now(),
    )
    document["expected_start"] = None
    if is_waiting(state.ledger.job):
        expected = expected_start(store.past_waits(state.job, besides=uid))
        document["expected_start"] = None if expected is None else expected.to_document()
    if document["state"] == "Running":
        _add_data_wait(document, store, uid)
    _add_absence(document, state, now=store.now())
    if document["plan"] is not None:
        found = store.measurements.of_run(uid, plan=document["plan"]["id"])
        document["plan"]["measured"] = None if found is None else _measured(found)
    return document


def _add_data_wait(document: dict[str, Any], store: Store, uid: str) -> None:
    """Say why a run that runs goes on no further, where it waits for data."""
    told = store.newest_event(uid, (reasons.WAITING_FOR_DATA, reasons.DATA_AVAILABLE))
    if told is not None and told.reason == reasons.WAITING_FOR_DATA:
        document["reason"], document["message"] = told.reason, told.message


def _add_absence(document: dict[str, Any], state: RunState, *, now: float) -> None:
    """Say where nobody drives the run: what the document tells may be long over."""
    ledger = state.ledger
    absence = absence_of_run(
        state.record, ledger.job, state.driver, now=now, instances=ledger.instances.values()
    )
    document["undriven"] = None
    if absence is None:
        return
    document["reason"] = NOT_DRIVEN
    document["message"] = str(absence)
    document["undriven"] = {
        "since": timestamp(absence.since),
        "why": absence.why,
        "what_to_do": what_to_type(state.record, absence),
    }


def rejected_checkpoints(job: ResolvedJob, ledger: Ledger) -> list[str]:
    """Return the checkpoints of a run that were not restored, in words, each once."""
    passed_over = job.checkpoint.passed_over if job.checkpoint else ()
    told = [rejection_text(each) for each in ledger.job.recovery.rejected]
    return list(dict.fromkeys((*passed_over, *told)))


def _measured(found: Measurement) -> dict[str, Any]:
    return {
        "step_time_s": found.step_seconds,
        "steps": found.steps,
        "peak_memory_bytes": found.memory_bytes,
    }
