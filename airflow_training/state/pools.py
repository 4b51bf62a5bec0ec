"""Airflow's pools as its scheduler last saw them: neither workers nor triggers may read them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from sqlalchemy import Connection, select

from airflow_training.state.database import upsert
from airflow_training.state.models import MetaRow, table_of

__all__ = ["load", "save"]


def load(connection: Connection, controller: str) -> Mapping[str, int]:
    """Return what was saved for a deployment; nothing where nothing was."""
    value = connection.execute(
        select(MetaRow.value).where(MetaRow.name == _name(controller))
    ).scalar()
    return json.loads(value) if value else {}


def save(connection: Connection, controller: str, pools: Mapping[str, int]) -> None:
    """Replace what is known about a deployment's pools."""
    row = {"name": _name(controller), "value": json.dumps(dict(pools), sort_keys=True)}
    upsert(connection, table_of(MetaRow), [row])


def _name(controller: str) -> str:
    # a deployment id may be longer than the column
    return f"pools/{hashlib.sha256(controller.encode()).hexdigest()[:32]}"
