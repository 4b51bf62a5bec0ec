"""What a local training script needs elsewhere, found without running it. No network, no Airflow."""
