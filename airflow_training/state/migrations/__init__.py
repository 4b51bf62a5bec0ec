"""Alembic migrations of the store; run by `airflow_training.state.upgrade`, never by hand."""
