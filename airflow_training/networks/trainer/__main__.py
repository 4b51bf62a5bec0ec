"""`python -m airflow_training.networks.trainer`."""

from airflow_training.networks.trainer.program import main

if __name__ == "__main__":
    main()
