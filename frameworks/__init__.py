"""Room `frameworks`: what a framework is (data), where it comes from, and what it makes of a job.

No Airflow, no runtimes, no decisions: `runtimes.rendering` turns the answers into instances.
"""
