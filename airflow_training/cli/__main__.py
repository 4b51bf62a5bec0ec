"""`python -m airflow_training.cli`: the same as the command `airflow-training`."""

from airflow_training.cli.main import main

if __name__ == "__main__":
    main()
