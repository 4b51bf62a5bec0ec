"""Finding the cheapest feasible plan: `search` answers, the other modules each do one part of it."""

from airflow_training.planning.search.searching import search

__all__ = ["search"]
