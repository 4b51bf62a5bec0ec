"""What Alembic runs around the migrations: the connection and transaction are the caller's."""

from __future__ import annotations

from alembic import context

from airflow_training.state import (  # noqa: F401 - their tables belong to the metadata
    account_models,
    network_models,
)
from airflow_training.state.models import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    version_table=context.config.attributes["version_table"],
    render_as_batch=True,
)
context.run_migrations()
