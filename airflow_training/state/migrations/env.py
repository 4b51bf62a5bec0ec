"""What Alembic runs around the migrations: the connection and transaction are the caller's."""

from __future__ import annotations

from alembic import context

from airflow_training.state import account_models  # noqa: F401 - its tables belong to the metadata
from airflow_training.state.models import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    version_table=context.config.attributes["version_table"],
    render_as_batch=True,
)
context.run_migrations()
