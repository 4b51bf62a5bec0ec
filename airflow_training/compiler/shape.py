"""What a DAG must know of a job when it is parsed: its roles, and who waits for whom.

Cheap on purpose: everything else is checked by `plan`, with the messages of the command line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_training.documents.parsing import TrainingJob

__all__ = ["RoleShape", "shape_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleShape:
    name: str
    waits_for: tuple[str, ...]
    """Roles it depends on, each once, in the order they are written."""


def shape_of(job: TrainingJob, *, base_dir: str = "") -> tuple[RoleShape, ...]:
    """Return the job's roles with the dependencies of the document, else of the framework.

    Raises InputError where the framework or a role is unknown. A cycle is refused by `spec`, or,
    where the framework's defaults take part, by Airflow and by `plan`.
    """
    from airflow_training.frameworks.dependencies import role_dependencies

    return tuple(
        RoleShape(name=name, waits_for=tuple(dict.fromkeys(roles)))
        for name, roles in role_dependencies(job, base_dir=base_dir).items()
    )
