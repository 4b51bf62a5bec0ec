"""How runs are started, again or for the first time: the port that `api.rerun` and `api.new_trainings` ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fastapi import Request

from airflow_training.admission.request import Source
from airflow_training.builtin_runtimes import SIMULATED
from airflow_training.documents.resolved import RunKey
from airflow_training.state.records import RunRecord

__all__ = ["ClusterConnection", "NewRuns", "refuse_simulated", "resume_of", "trial_name"]


class NewRuns(Protocol):
    """Starts runs."""

    document_source: Source
    """How far a document is trusted that somebody has written in a page."""

    def refusal(self, run: RunRecord) -> str:
        """Return why the job of this run cannot be started again here; empty: it can."""

    def key(self, run: RunRecord, digest: str) -> RunKey:
        """Return the key of the new run; the same digest gives the same."""

    async def begin(
        self, request: Request, run: RunRecord, run_id: str, *, resume: Mapping[str, Any] | None
    ) -> None:
        """Begin a run of this id, which there may be already; raises HTTPException.

        `resume`: instead of what the job says in `checkpoint.resume`.
        """

    def document_key(self, run: RunRecord, digest: str) -> RunKey:
        """Return the key of a run of another document, in the place of this one."""

    async def begin_document(
        self, request: Request, run: RunRecord, run_id: str, *, document: str
    ) -> None:
        """Begin a run of a document that was checked; else as `begin`."""

    def new_key(self, job: str, digest: str) -> RunKey:
        """Return the key of a run of a job that has none yet; the same digest gives the same."""

    def trial_key(self, job: str, tuning: str, number: int, trials: int) -> RunKey:
        """Return the key of one trial of a tuning; its run id ends in what `trial_name` gives."""

    async def begin_new(
        self,
        request: Request,
        run_id: str,
        *,
        document: str,
        base_dir: str,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        """Begin a run of a document that was checked; else as `begin`.

        `base_dir`: where its files are; `params`: values of the job's parameters, else their defaults.
        """

    async def connections(self, request: Request) -> Sequence[ClusterConnection]:
        """List the connections that a job may name as its cluster, of those that the user may see."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConnection:
    """How a cluster is reached; never with what is secret about it."""

    name: str
    kind: str


def trial_name(tuning: str, number: int, trials: int) -> str:
    """Return the end of the run id of a trial, by which the runs of a tuning are found, and how many there are to be."""
    return f"tuning-{tuning}-{number:03}of{trials:03}"


def resume_of(run: RunRecord, step: int) -> Mapping[str, Any]:
    """Return `checkpoint.resume` for a new run that goes on from a checkpoint of this one."""
    return {"fromRun": run.uid, "step": step}


def refuse_simulated(run: RunRecord) -> str:
    """Return why a simulated run is not started again: nobody knows its faults any more."""
    return "a simulated run is started again by `airflow-training run --simulate`" * (
        run.runtime == SIMULATED
    )
