"""Tries six learning rates on the digits, and trains longer with the one that did best."""

from airflow.sdk import DAG, task

from airflow_training import Range, training, tune

with DAG("tune_digits", schedule=None, tags=["training", "example"]) as dag:

    @task
    def longer(best: dict) -> dict:
        """Return the winner's parameters for a training of its own."""
        return {**best["params"], "epochs": 20}

    best = tune(
        "digits/digits.yaml",
        space={"lr": Range(0.01, 1.0, log=True), "epochs": [4]},
        trials=6,
        metric="accuracy",
        group_id="search",
    )
    training("digits/digits.yaml", params=longer(best), group_id="train")
