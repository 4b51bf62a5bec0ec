"""The model of a job that trains a network: what is trained is what is planned for."""

from __future__ import annotations

from airflow_training.documents.parsing import TrainingJob
from airflow_training.documents.resolved_blocks import ResolvedTrainer

__all__ = ["with_network"]


def with_network(job: TrainingJob, trainer: ResolvedTrainer | None) -> TrainingJob:
    """Return the job with the network that it trains as the model of its plan, where it plans and names no other."""
    plan = job.spec.plan
    if trainer is None or plan.model is not None or not plan.model_fields_set:
        return job
    named = plan.model_copy(update={"model": dict(trainer.network.document)})
    return job.model_copy(update={"spec": job.spec.model_copy(update={"plan": named})})
