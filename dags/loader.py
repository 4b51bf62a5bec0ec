"""Every job file under `[training] jobs_folder` becomes a DAG, and `training_job` runs any other.

Copy or link this file into your DAGs folder. With the bundle of `airflow_training.compiler.bundle`
configured, job files have import errors of their own; then leave out the first part.
"""

# The words "airflow" and "dag" above let Airflow's safe mode find this file.

from airflow.sdk import get_parsing_context

from airflow_training.compiler.generic import generic_dag
from airflow_training.compiler.loader import load_folder
from airflow_training.settings import load_settings

globals().update(load_folder(load_settings().jobs_folder))
# While a task of another DAG runs, this one is not needed.
if get_parsing_context().dag_id in (None, "training_job"):
    globals()["training_job"] = generic_dag()
