"""Once an hour: end what no task ends any more, and what outlived its `ttlSecondsAfterFinished`.

Copy or link this file into your DAGs folder.
"""

from datetime import datetime

from airflow.sdk import DAG

from airflow_training.operators.sweep import SweepOperator

with DAG(
    "training_sweep",
    schedule="@hourly",
    start_date=datetime(2026, 1, 1),  # noqa: DTZ001 - Airflow gives it its own time zone
    catchup=False,
    max_active_runs=1,
    tags=["training"],
    doc_md=__doc__,
) as dag:
    SweepOperator(task_id="sweep", retries=1)
