"""Room: dags."""
