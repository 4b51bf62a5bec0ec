"""Log insight: metrics, health and the cause of failure, from files, object storage and running jobs."""
