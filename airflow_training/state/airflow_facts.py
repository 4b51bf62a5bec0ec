"""What Airflow's scheduler and triggerers tell of themselves: neither workers nor triggers may ask."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal

from sqlalchemy import Connection, select

from airflow_training.state.database import upsert
from airflow_training.state.models import MetaRow, table_of

__all__ = ["STOP_SECONDS", "Fact", "load", "save", "stop_key"]

Fact = Literal["pools", "triggerers", "places", "stopped"]
STOP_SECONDS = 30 * 86400.0
"""How long it is known that a DAG run was stopped: nothing of it begins by itself after that."""


def load(connection: Connection, controller: str, fact: Fact) -> Mapping[str, Any]:
    """Return what was saved for a deployment; nothing where nothing was."""
    question = select(MetaRow.value).where(MetaRow.name == _name(controller, fact))
    value = connection.execute(question).scalar()
    return json.loads(value) if value else {}


def save(connection: Connection, controller: str, fact: Fact, told: Mapping[str, Any]) -> None:
    """Replace what is known about a deployment."""
    row = {"name": _name(controller, fact), "value": json.dumps(dict(told), sort_keys=True)}
    upsert(connection, table_of(MetaRow), [row])


def stop_key(dag_id: str, run_id: str) -> str:
    """Return the name under which it is kept that a DAG run was stopped."""
    return hashlib.sha256(f"{dag_id}\x1f{run_id}".encode()).hexdigest()[:32]


def _name(controller: str, fact: Fact) -> str:
    # a deployment id may be longer than the column
    return f"{fact}/{hashlib.sha256(controller.encode()).hexdigest()[:32]}"
