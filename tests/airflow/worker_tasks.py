"""What a task of a DAG run gets on a worker, without a scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.airflow.triggers.scenes import TaskInstance

POOLED = {
    "roles": [{"name": "first"}, {"name": "second", "dependsOn": [{"role": "first"}]}],
}
"""Two roles, of which one waits for the other."""


def context(*, params: Mapping[str, Any] | None = None, **task_instance: Any) -> Any:
    """Return what Airflow's context holds of use here."""
    ti = TaskInstance("plan", **task_instance)
    return {"ti": ti, "run_id": ti.run_id, "params": dict(params or {}), "outlet_events": {}}
