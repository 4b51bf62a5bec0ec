"""Checks a document that somebody has written in a page, as the start of a run would. Starts nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from airflow_training.admission.check import check_text
from airflow_training.admission.request import Planner, Source
from airflow_training.documents.dag import Param
from airflow_training.documents.parsing import TrainingJob
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.documents.text import value_text
from airflow_training.errors import Problem
from airflow_training.runtimes.registry import adapter_of_job
from airflow_training.settings import load_settings

__all__ = [
    "MOST_CHARACTERS",
    "CheckAnswer",
    "DocumentCheck",
    "ProblemAnswer",
    "check_document",
    "problem_answer",
]

MOST_CHARACTERS = 256 * 1024
"""Of a document that is written in a page; a longer one is a job file."""


class ProblemAnswer(BaseModel):
    """A mistake or a warning, as `validate` tells it."""

    field: str
    message: str
    line: int | None
    """From 1; None: of the whole document."""
    allowed: list[str]
    hint: str


class CheckAnswer(BaseModel):
    mistakes: list[ProblemAnswer]
    """Empty: the document can run."""
    warnings: list[ProblemAnswer]


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentCheck:
    mistakes: Sequence[Problem]
    warnings: Sequence[Problem]
    job: ResolvedJob | None = None
    """None where there are mistakes."""
    declared: Mapping[str, Param] | None = None
    """Parameters of the job; None where its fields cannot be read."""

    def answer(self) -> CheckAnswer:
        """The check as a page gets it."""
        return CheckAnswer(
            mistakes=[*map(problem_answer, self.mistakes)],
            warnings=[*map(problem_answer, self.warnings)],
        )


def check_document(
    text: str,
    *,
    base_dir: str,
    run_uid: str,
    source: Source,
    user: str,
    planner: Planner | None = None,
    params: Mapping[str, Any] | None = None,
    look_up_age: float = 0.0,
) -> DocumentCheck:
    """Return everything that is to be said about the one job of a text; may raise RuntimeUnavailable.

    `planner`, `params`, `look_up_age`: as of `check_text`. `run_uid`: of any run. With one, the job must be complete, as it begins as it is.
    """
    found = check_text(
        text,
        path="",
        base_dir=base_dir,
        run_uid=run_uid,
        source=source,
        user=user,
        params=params or {},
        planner=planner,
        look_up_age=look_up_age,
    )
    mistakes = [each for checked in found for each in checked.problems]
    if len(found) > 1:
        message = f"holds {len(found)} jobs where one is wanted"
        mistakes.append(Problem(code="conflict", field="", message=message))
    if source == "form":  # it would run inside Airflow, which does not start everything
        settings = load_settings()
        for asked in {adapter_of_job(each.resolved) for each in found if each.resolved}:
            refused = asked.refused_in_airflow(settings)
            mistakes += [refused] if refused else []
    return DocumentCheck(
        mistakes=mistakes,
        warnings=[each for checked in found for each in checked.warnings],
        job=found[0].resolved if found and not mistakes else None,
        declared=_declared(found[0].job) if found else None,
    )


def _declared(job: TrainingJob | None) -> Mapping[str, Param] | None:
    if job is None:
        return None
    return job.spec.dag.params if job.spec.dag else {}


def problem_answer(problem: Problem) -> ProblemAnswer:
    """Return a mistake or a warning as a page gets it."""
    return ProblemAnswer(
        field=problem.field,
        message=problem.message,
        line=problem.line,
        allowed=[value_text(each) for each in problem.allowed],
        hint=problem.hint,
    )
