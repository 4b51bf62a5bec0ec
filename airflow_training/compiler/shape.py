"""What a DAG must know of a job when it is parsed: its roles, and who waits for whom.

Cheap on purpose: everything else is checked by `plan`, with the messages of the command line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_training.control.waves import cycle, levels
from airflow_training.errors import InputError, Problem

if TYPE_CHECKING:
    from airflow_training.spec.models import TrainingJob

__all__ = ["RoleShape", "shape_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleShape:
    name: str
    waits_for: tuple[str, ...]
    """Roles it depends on, each once, in the order they are written."""


def shape_of(job: TrainingJob, *, base_dir: str = "") -> tuple[RoleShape, ...]:
    """Return the job's roles with the dependencies of the document, else of the framework.

    Raises InputError where the framework or a role is unknown, or roles wait for each other.
    """
    from airflow_training.frameworks.dependencies import role_dependencies

    graph = {
        name: list(dict.fromkeys(roles))
        for name, roles in role_dependencies(job, base_dir=base_dir).items()
    }
    try:
        levels(graph)
    except ValueError:
        # a document's own cycles are refused before; here defaults of the framework take part
        message = "roles wait for each other: " + " -> ".join(cycle(graph))
        problem = Problem(code="cycle", field="spec.roles", message=message)
        raise InputError(problems=[problem]) from None
    return tuple(RoleShape(name=name, waits_for=tuple(roles)) for name, roles in graph.items())
