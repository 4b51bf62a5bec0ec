"""A DAG as plain data, for comparison with golden files: what Airflow keeps after serialization."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from airflow.sdk import DAG
from airflow.serialization.serialized_objects import DagSerialization

GOLDEN = Path(__file__).parent / "golden"


def round_trip(dag: DAG) -> Any:
    """Return the DAG as scheduler and API server see it."""
    data = json.loads(json.dumps(DagSerialization.to_dict(dag)))
    return DagSerialization.from_dict(data)


def shape(dag: DAG) -> dict[str, Any]:
    """Return everything about a DAG's tasks that users and the scheduler notice."""
    serialized = round_trip(dag)
    return {
        "dag_id": dag.dag_id,
        "tags": sorted(dag.tags),
        "params": {name: param.serialize() for name, param in dag.params.items()},
        "max_active_runs": dag.max_active_runs,
        "catchup": dag.catchup,
        "tasks": {
            task.task_id: {
                "type": task.task_type,
                "upstream": sorted(task.upstream_task_ids),
                "retries": task.retries,
                "weight": [str(task.priority_weight), str(dag.get_task(task.task_id).weight_rule)],
                "owner": task.owner,
                "teardown": task.is_teardown,
                "starts_in_triggerer": task.start_from_trigger,
                "outlets": [asset.uri for asset in task.outlets],
            }
            for task in sorted(serialized.tasks, key=lambda each: each.task_id)
        },
    }


def compare(name: str, found: dict[str, Any]) -> None:
    """Compare with a golden file; `UPDATE_GOLDEN=1` writes it anew."""
    path = GOLDEN / f"{name}.json"
    text = json.dumps(found, indent=2, sort_keys=True, default=str) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert json.loads(text) == json.loads(path.read_text())
