"""What a DAG run is told to start from by whoever triggers it: a checkpoint of another run of its DAG."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_training.documents.resolved import RunKey
from airflow_training.errors import InputError
from airflow_training.state.store import Store

__all__ = ["RESUME_KEY", "resume_overrides"]

RESUME_KEY = "checkpoint.resume"
"""In the `conf` of a DAG run; no parameter of a job is called so."""


def resume_overrides(store: Store, conf: Mapping[str, Any] | None, key: RunKey) -> Sequence[str]:
    """Overrides as `--set` would write them; empty where another group of the DAG run is meant.

    Raises InputError for anything but a run of the same DAG: to trigger a DAG is no right to read
    the checkpoints of others.
    """
    asked = (conf or {}).get(RESUME_KEY)
    if asked is None:
        return ()
    uid = asked.get("fromRun") if isinstance(asked, Mapping) else None
    before = store.run(uid) if isinstance(uid, str) else None
    same_dag = (
        before is not None
        and (before.key.source, before.key.dag_id) == (key.source, key.dag_id)
        and {*asked} <= {"fromRun", "step"}
    )
    if before is None or not same_dag:
        raise InputError.of(
            code="bad_reference",
            field=f"conf.{RESUME_KEY}",
            value=asked,
            message="names no earlier run of this DAG: {fromRun: UID, step: STEP}",
        )
    if (before.key.group_id, before.key.map_index) != (key.group_id, key.map_index):
        return ()
    return (f"spec.checkpoint.resume={json.dumps(asked)}",)
