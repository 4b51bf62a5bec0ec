"""What the caller of an admission said, and what that means for a document: runtime, framework, values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from airflow_training.documents.params import check_params
from airflow_training.documents.parsing import TrainingJob
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.errors import Problem
from airflow_training.frameworks.registry import LoadedFramework, load_for
from airflow_training.settings import Settings

if TYPE_CHECKING:
    from airflow_training.admission.plan.job_plan import JobPlan

__all__ = ["AdmissionRequest", "Planner", "Source", "parameter_values"]

Planner = Callable[[TrainingJob, ResolvedJob], "JobPlan | None"]
"""Searches the plan of a job that asks for one; None where the run has its plan already."""
Source = Literal["file", "form"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionRequest:
    """What the caller said, the same for all documents."""

    base_dir: str
    params: Mapping[str, Any]
    variables: Mapping[str, Any]
    runtime: str | None
    shown_on: str
    """Whose objects are shown where the caller names no runtime; "": those of where the job goes."""
    fetch: bool
    starts: bool
    looks_up: bool
    """Whether what is kept elsewhere, such as environments and saved networks, may be asked for."""
    look_up_age: float
    """How many seconds ago an environment may have been looked up; 0: it is looked up now."""
    source: Source
    user: str
    settings: Settings
    planner: Planner | None

    def runtime_of(self, job: TrainingJob) -> str:
        """Return the runtime that a job is laid out for; it may be a name that no runtime has."""
        return self.runtime or self.shown_on or self.selected_runtime(job)

    def selected_runtime(self, job: TrainingJob) -> str:
        """Return where a job would run."""
        return self.runtime or job.spec.runtime.name or self.settings.default_runtime

    def framework_of(self, job: TrainingJob) -> LoadedFramework:
        """Return the framework that a job names; raises InputError."""
        return load_for(job, base_dir=self.base_dir, fetch=self.fetch, settings=self.settings)

    def values_for(self, job: TrainingJob) -> tuple[dict[str, Any], list[Problem]]:
        """Return the value of every parameter, and what is wrong with those that were given."""
        values, problems = parameter_values(job, self.params)
        if not self.starts:
            # nobody has been asked yet; wrong defaults were reported with the document
            problems = [problem for problem in problems if problem.code != "missing"]
        return values, problems


def parameter_values(
    job: TrainingJob, given: Mapping[str, Any]
) -> tuple[dict[str, Any], list[Problem]]:
    """Return the value of every parameter of a job that starts, and what is wrong or missing."""
    return check_params(job.spec.dag.params if job.spec.dag else {}, given)
