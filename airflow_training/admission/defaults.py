"""The defaults of a job with what the caller and the deployment make of them: the answer of `explain`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_training.admission.request import AdmissionRequest
from airflow_training.builtin_runtimes import HERE
from airflow_training.documents.parsing import TrainingJob
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.frameworks.defaults import list_defaults
from airflow_training.frameworks.model import FrameworkSpec

__all__ = ["effective_defaults"]

_DEPLOYMENT = "deployment"


def effective_defaults(
    job: TrainingJob,
    asked: ResolvedJob,
    *,
    framework: FrameworkSpec,
    deadline: float | None,
    request: AdmissionRequest,
) -> Sequence[Mapping[str, Any]]:
    """Return every default with the value that counts; `why` where the deployment decided.

    `deadline` is the effective one of the job; `asked` has its own.
    """
    told = {
        "spec.runtime.name": _runtime(job, request),
        "spec.activeDeadlineSeconds": _deadline(asked.active_deadline_seconds, deadline, request),
    }
    defaults = list_defaults(job, asked, framework=framework)
    return [{**entry, **told.get(entry["field"], {})} for entry in defaults]


def _runtime(job: TrainingJob, request: AdmissionRequest) -> Mapping[str, Any]:
    """Return who named the runtime; a user did only where they named the one that is shown."""
    shown = request.runtime_of(job)
    if shown in (request.runtime, job.spec.runtime.name):
        return {"from": "user"}
    if shown == request.settings.default_runtime != HERE:
        return {"from": _DEPLOYMENT, "why": "[training] default_runtime"}
    return {"from": "airflow-training"}


def _deadline(
    own: float | None, effective: float | None, request: AdmissionRequest
) -> Mapping[str, Any]:
    """Return the deadline under the deployment's ceiling."""
    if own == effective:
        return {}
    ceiling = f"[training] max_run_seconds is {request.settings.max_run_seconds}"
    why = ceiling if own is None else f"{ceiling}, the job asks for {own:g}"
    return {"value": request.settings.max_run_seconds, "from": _DEPLOYMENT, "why": why}
