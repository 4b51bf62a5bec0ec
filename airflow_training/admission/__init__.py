"""From a job file to a run that may start: parsed, trusted, planned, within its quota. Asks, starts nothing."""
