"""Trains again whenever the data changes; the model is an asset that other DAGs can wait for.

Each event of the model's asset carries `uri`, `metrics` and `run`.
"""

from airflow.sdk import DAG, Asset

from airflow_training import training

DATA = Asset("x-data://digits")
MODEL = Asset("x-models://digits")

with DAG(
    "retrain_on_new_data", schedule=[DATA], tags=["training", "example"], max_active_runs=1
) as dag:
    training("digits/digits.yaml", group_id="train", outlets=[MODEL])
