"""What the store knows of the trials of a tuning, as a task on a worker sees it. No Airflow classes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from airflow_training.documents.instances import InstanceKey
from airflow_training.state.store import RunState, Store
from airflow_training.triggers.access import open_store, run_key

__all__ = ["Goal", "Trial", "read_trials", "trial_of", "winner"]

Goal = Literal["max", "min"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """How one run of a tuning ended."""

    number: int
    params: Mapping[str, Any]
    run: str
    state: str
    """Of the job; `refused` where `plan` made no run of it."""
    value: float | None
    """Newest value of the metric; None where it was never reported."""
    output: str | None = None

    @property
    def counts(self) -> bool:
        """Return whether it may win: a run that succeeded with a number to show."""
        return self.state == "Succeeded" and self.value is not None and not math.isnan(self.value)


def winner(trials: Sequence[Trial], *, goal: Goal) -> Trial | None:
    """Return the trial with the best value, the first of equal ones; None where none counts."""
    sign = 1 if goal == "max" else -1
    return max(
        (each for each in trials if each.counts),
        key=lambda each: sign * (each.value or 0.0),
        default=None,
    )


def read_trials(
    ti: Any, trials: Sequence[Mapping[str, Any]], *, group_id: str, metric: str
) -> list[Trial]:
    """Return how each trial ended, by its map index. Blocks on the store."""
    store = open_store()
    uids = [
        run_key(store, ti, group_id=group_id, map_index=number).uid for number in range(len(trials))
    ]
    states = store.read(uids)
    return [
        trial_of(store, states.get(uid), number=number, params=params, uid=uid, metric=metric)
        for number, (uid, params) in enumerate(zip(uids, trials, strict=True))
    ]


def trial_of(
    store: Store,
    state: RunState | None,
    *,
    number: int,
    params: Mapping[str, Any],
    uid: str,
    metric: str,
) -> Trial:
    """Return how the run of a trial ended; `state`: None where there is no such run. Blocks on the store."""
    if state is None:
        return Trial(number=number, params=params, run=uid, state="refused", value=None)
    newest = store.metrics.newest(uid)
    # the instance whose output counts speaks for the job, as in `rollup`
    spoken = newest.get(InstanceKey(state.job.output_role, 0), {})
    others = [metrics for metrics in newest.values() if metric in metrics]
    value = spoken.get(metric, others[0][metric] if others else None)
    output = store.output(uid)
    return Trial(
        number=number,
        params=params,
        run=uid,
        state=state.ledger.job.state,
        value=value,
        output=None if output is None else output.uri,
    )
