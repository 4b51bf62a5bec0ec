"""A job file as a DAG: schedule, parameters and tags are in the file itself."""

from pathlib import Path

from airflow_training import job_to_dag  # an airflow dag

dag = job_to_dag(Path(__file__).parent / "digits" / "digits.yaml")
