"""Decisions: waves, reconcile, policies, rollup. Pure: no Airflow, no I/O, no clock."""
