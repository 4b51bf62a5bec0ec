"""Logs of running jobs, scanned piece by piece. Keeps nothing and knows no store."""
