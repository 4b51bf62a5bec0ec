"""A job whose instances run a program of ours: its command, and what follows from its exit codes. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_training.documents.parsing import TrainingJob
from airflow_training.documents.roles import Role

__all__ = ["program_command", "with_program"]

LAUNCHER = "airflow_training.networks.trainer.launching"
"""Starts the several processes of an instance, and ends as the first that failed."""


def program_command(
    job: TrainingJob, module: str, *, python: Sequence[str], elastic: bool = False
) -> list[str]:
    """Return the words that start a module of ours in an instance: by torchrun where it has several ranks, or where ranks come and go."""
    several = elastic or job.spec.parameters.get("nprocPerNode", 1) != 1
    return [*python, *(["-m", LAUNCHER] if several else []), "-m", module]


def with_program(job: TrainingJob, command: Sequence[str]) -> TrainingJob:
    """Return the job with our command.

    A mistake of the user is not tried again, unless the job says so: our exit codes tell it from a lost peer.
    """
    roles = [_patient(role) for role in job.spec.roles]
    spec = job.spec.model_copy(update={"command": [*command], "roles": roles})
    return job.model_copy(update={"spec": spec})


def _patient(role: Role) -> Role:
    """Return a role that trains with the restart policy that fits our exit codes, where it names none."""
    if role.tracked is False or role.restart_policy is not None:
        return role
    changed = role.model_copy(update={"restart_policy": "ExitCode"})
    changed.model_fields_set.discard("restart_policy")  # no user said so
    return changed
