"""Why the strategies that were not chosen lost."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from airflow_training.planning.search import table
from airflow_training.planning.search.objectives import MoneyObjective, Objective
from airflow_training.planning.search.ranking import StrategyFamily
from airflow_training.planning.view.plan import RejectedStrategy


def rejected(
    families: Mapping[tuple[str, int], StrategyFamily],
    *,
    best: Mapping[str, int | str | bool],
    best_score: float,
    objective: Objective,
) -> list[RejectedStrategy]:
    """Return a line per value of a dimension that the best plan does not have, nearest first.

    Args:
        families: what the search knows of every value of every dimension.
        best: the best plan's value of every dimension.
        best_score: its score.
        objective: what the score counts.
    """
    found = []
    for (name, code), family in families.items():
        value = _text(name, code)
        if value != best[name] and family.candidates:
            found.append(_line({name: value}, family, best_score, objective))
    order = ("time", "money", "memory", "divides")
    return sorted(found, key=lambda line: (order.index(line.reason), line.by))


def _line(
    label: Mapping[str, int | str | bool],
    family: StrategyFamily,
    best_score: float,
    objective: Objective,
) -> RejectedStrategy:
    score = min(family.best, family.floor)
    if np.isfinite(score):
        return RejectedStrategy(
            family=label,
            candidates=family.candidates,
            reason="money" if isinstance(objective, MoneyObjective) else "time",
            by=max(score / best_score - 1.0, 0.0),
            at_least=family.floor < family.best,
        )
    if np.isfinite(family.over_budget):
        return RejectedStrategy(
            family=label, candidates=family.candidates, reason="money", by=family.over_budget
        )
    return RejectedStrategy(
        family=label, candidates=family.candidates, reason="memory", by=family.excess_bytes
    )


def _text(name: str, code: int) -> int | str | bool:
    if name in table.TEXTS:
        return table.TEXTS[name][code]
    return bool(code) if name == "sequence_parallel" else code
