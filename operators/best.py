"""`best`: compares the trials of a tuning by a metric, and returns the winner's parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from airflow.sdk import BaseOperator

from airflow_training.operators.failing import failure

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["BestTrialOperator"]


class BestTrialOperator(BaseOperator):
    """Picks the best trial. Part of the group that `airflow_training.tune` makes.

    Args:
        trials: The parameters of each trial, by map index.
        trials_group: The mapped task group of the trials.
        metric: Name of the metric.
        goal: Whether more or less of it is better.

    Raises:
        AirflowFailException: no trial succeeded and reported the metric.

    >>> BestTrialOperator(
    ...     task_id="best",
    ...     trials=[{"lr": 0.1}, {"lr": 0.01}],
    ...     trials_group="digits.trials",
    ...     metric="loss",
    ...     goal="min",
    ... )
    <Task(BestTrialOperator): best>
    """

    template_fields: Sequence[str] = ()
    ui_color = "#e6f4ea"

    def __init__(
        self,
        *,
        trials: Sequence[Mapping[str, Any]],
        trials_group: str,
        metric: str,
        goal: Literal["max", "min"],
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.trials = trials
        self.trials_group = trials_group
        self.metric = metric
        self.goal = goal

    def execute(self, context: Context) -> Mapping[str, Any]:
        """Return the best trial; raises AirflowFailException where no trial counts."""
        from airflow_training.operators.trials import read_trials, winner

        trials = read_trials(
            context["ti"], self.trials, group_id=self.trials_group, metric=self.metric
        )
        for each in trials:
            shown = f"{self.metric}={each.value:g}" if each.value is not None else "no value"
            params = ", ".join(f"{name}={value}" for name, value in each.params.items())
            self.log.info("trial %d: %s: %s, %s", each.number, params, each.state, shown)
        best = winner(trials, goal=self.goal)
        if best is None:
            raise failure(
                f"no trial succeeded and reported '{self.metric}'; the log of `reconcile` in each"
                " trial says how it ended",
                log=self.log,
            )
        self.log.info("best: trial %d with %s=%g", best.number, self.metric, best.value)
        return {
            "params": dict(best.params),
            "metric": self.metric,
            "value": best.value,
            "trial": best.number,
            "run": best.run,
            "output": best.output,
            "tried": len(trials),
            "succeeded": sum(each.counts for each in trials),
        }
