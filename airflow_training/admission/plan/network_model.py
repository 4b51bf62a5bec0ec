"""The model of a job that trains a network: what is trained is what is planned for."""

from __future__ import annotations

from airflow_training.documents.parsing import TrainingJob
from airflow_training.documents.plan import Plan
from airflow_training.documents.resolved_blocks import ResolvedTrainer
from airflow_training.errors import Problem

__all__ = ["DATA_ONLY", "data_only_problems", "with_network"]

DATA_ONLY = {"tp": 1, "pp": 1, "cp": 1, "ep": 1, "zero": 0, "recompute": "none"}
"""What plans may not vary for the trainer, which gives each process the whole network and a share of the samples."""


def data_only_problems(plan: Plan) -> list[Problem]:
    """Every constraint of a plan that the trainer cannot carry out."""
    return [
        Problem(
            code="conflict",
            field=f"spec.plan.constraints.{axis}",
            value=plan.constraints[axis],
            message=f"spec.trainer carries out no other than {only}",
            allowed=(only,),
        )
        for axis, only in DATA_ONLY.items()
        if plan.constraints.get(axis, only) != only
    ]


def with_network(job: TrainingJob, trainer: ResolvedTrainer | None) -> TrainingJob:
    """Return the job with the network that it trains as the model of its plan, where it plans and names no other."""
    plan = job.spec.plan
    if trainer is None or plan.model is not None or not plan.model_fields_set:
        return job
    named = plan.model_copy(update={"model": dict(trainer.network.document)})
    return job.model_copy(update={"spec": job.spec.model_copy(update={"plan": named})})
