"""From a workload and a cluster to the answer: what was found, where it lies, why the rest lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from airflow_training.errors import InputError, Problem
from airflow_training.planning import cost
from airflow_training.planning.cluster import ClusterView
from airflow_training.planning.lowering import lower
from airflow_training.planning.plan import Answer, Estimate, Workload
from airflow_training.planning.program import Sharding
from airflow_training.planning.search import bounds, homogeneous, pareto, prices, space, table
from airflow_training.planning.search.constraints import Constraints
from airflow_training.planning.search.contradictions import contradiction
from airflow_training.planning.search.explain import rejected
from airflow_training.planning.search.homogeneous import Evaluate, Question
from airflow_training.planning.search.objectives import Objective, Time
from airflow_training.planning.search.placement import placement
from airflow_training.planning.search.ranking import Ranking
from airflow_training.planning.strategy import Strategy
