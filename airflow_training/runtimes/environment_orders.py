"""What agents are told of the environment of a job, and how it is had ready where instances are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow_training.agent.package import environment_program
from airflow_training.documents.resolved_blocks import ResolvedEnvironment
from airflow_training.environments.cache import default_folder
from airflow_training.environments.orders import EnvironmentOrder, builtin_source
from airflow_training.runtimes.port import InstanceSpec

__all__ = ["environment_order", "order_of"]


def environment_order(
    spec: InstanceSpec, programs: Path, *, python: str
) -> Mapping[str, Any] | None:
    """What the agent of an instance of this machine does for its environment; None: it has none.

    `programs`: the folder of packed programs. `python`: the interpreter that runs them.
    """
    if spec.environment is None:
        return None
    return {
        "title": spec.environment.title,
        "program": str(environment_program(programs)),
        "interpreter": python,
        "cache": str(default_folder()),
        "order": order_of(spec.environment).to_json(),
    }


def order_of(found: ResolvedEnvironment) -> EnvironmentOrder:
    """The order for whoever makes an environment; the built-in one is made of the Python that runs us."""
    return EnvironmentOrder(
        name=found.name,
        version=found.version,
        digest=found.digest,
        storage=found.storage,
        python=found.python,
        source=None if found.storage else builtin_source(),
    )
