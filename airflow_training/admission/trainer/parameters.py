"""Parameters of a job that set fields of its trainer: how a sweep tries learning rates without a script. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pydantic import ValidationError

from airflow_training.documents.problems import problems_of
from airflow_training.documents.spelling import did_you_mean
from airflow_training.documents.trainer import Trainer
from airflow_training.errors import Problem

__all__ = ["FIELDS", "with_parameters"]

FIELDS = (
    "epochs",
    "batchSize",
    "updateInterval",
    "threads",
    "seed",
    "optimizer.name",
    "optimizer.learningRate",
    "optimizer.weightDecay",
    "optimizer.momentum",
)
"""Fields that a parameter may set."""
_FIELD = "spec.trainer.fromParams"


def with_parameters(
    trainer: Trainer, values: Mapping[str, Any], *, declared: Collection[str]
) -> tuple[Trainer, list[Problem]]:
    """Return a trainer with the values of the job's parameters in the fields that `fromParams` names.

    Args:
        trainer: as the document has it.
        values: of the parameters, as far as they are known.
        declared: names of all parameters that the job declares.
    """
    problems = [
        problem
        for field, name in trainer.from_params.items()
        for problem in (
            _unknown(field, field, FIELDS, "is no field that a parameter may set"),
            _unknown(field, name, [*declared], "is no parameter that dag.params declares"),
        )
        if problem is not None
    ]
    document = trainer.model_dump(by_alias=True, exclude_unset=True, exclude={"from_params"})
    for field, name in trainer.from_params.items():
        if not problems and values.get(name) is not None:
            *parents, key = field.split(".")
            place = document
            for parent in parents:
                place = place.setdefault(parent, {})
            place[key] = values[name]
    try:
        made = Trainer.__pydantic_validator__.validate_python(
            document, by_alias=True, by_name=False
        )
    except ValidationError as error:
        return trainer, [*problems, *problems_of(error, model=Trainer, prefix=("spec", "trainer"))]
    return made, problems


def _unknown(field: str, value: str, known: Collection[str], message: str) -> Problem | None:
    if value in known:
        return None
    return Problem(
        code="bad_reference",
        field=f"{_FIELD}.{field}",
        value=value,
        message=message,
        allowed=tuple(known),
        hint=did_you_mean(value, [*known]),
    )
