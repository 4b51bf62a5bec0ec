"""A training group between a data task and a deploy task of one DAG."""

from airflow.sdk import DAG, task

from airflow_training import training

with DAG("data_train_deploy", schedule=None, tags=["training", "example"]) as dag:

    @task
    def choose() -> dict:
        """Return the job's parameters; `plan` resolves them when the run starts."""
        return {"lr": 0.05, "epochs": 5}

    @task
    def deploy(result: dict) -> None:
        """Use the result of the training: output, metrics and run."""
        print(f"deploying {result['output']} with accuracy {result['metrics'].get('accuracy')}")

    train = training("digits/digits.yaml", params=choose(), group_id="train")
    # `deploy` starts only when the job succeeded; the result is what `rollup` returned
    train >> deploy(train.children["train.rollup"].output)
