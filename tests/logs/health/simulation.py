"""Trainings as logs tell of them: noise, warm-up, pauses, schedules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from airflow_training.logs.model import Series

START = 1_700_000_000.0


def a_series(metric: str, values: Sequence[float] | np.ndarray, **fields: Any) -> Series:
    """Return a series with a step, a second and a line of 100 bytes for each value."""
    count = len(values)
    numbers = np.arange(count)
    fields.setdefault("steps", numbers.astype(np.float64))
    fields.setdefault("times", START + numbers.astype(np.float64))
    fields.setdefault("rank", 0)
    fields.setdefault("file", f"rank{fields['rank']}.log")
    return Series(
        metric=metric,
        values=np.asarray(values, dtype=np.float64),
        offsets=100 * numbers,
        lines=numbers + 1,
        total=count,
        **fields,
    )


def a_training(
    *,
    seed: int,
    ranks: int = 4,
    reports: int = 600,
    steps_per_report: int = 10,
    step_seconds: float = 0.5,
    noise: float = 0.05,
    jitter: float = 0.05,
    evaluate_every: int = 97,
    evaluate_seconds: float = 60.0,
    checkpoint_every: int = 150,
) -> list[Series]:
    """Return the series of a healthy run.

    The loss is a power law with lognormal noise, and steeper where the learning rate decays; rank 0
    evaluates and writes checkpoints while the others wait for it.
    """
    dice = np.random.default_rng(seed)
    number = np.arange(reports)
    pace = step_seconds * np.exp(jitter * dice.standard_normal(reports))
    pace[:3] *= 8  # compilation
    pauses = np.where((number > 0) & (number % evaluate_every == 0), evaluate_seconds, 0.0)
    pauses += np.where((number > 0) & (number % checkpoint_every == 0), evaluate_seconds / 2, 0.0)
    times = START + np.cumsum(pace * steps_per_report + pauses)
    steps = (number + 1.0) * steps_per_report
    loss = 1.5 + 8 * (number + 2.0) ** -0.4
    loss *= np.where(number > 0.8 * reports, 0.97, 1.0)
    loss *= 1 - 0.01 * ((number // 100) % 2)  # an epoch ends: samples that were seen before
    rate = 3e-4 * np.minimum(number / 50, 0.5 * (1 + np.cos(np.pi * number / reports)))
    found = []
    for rank in range(ranks):
        where: dict[str, Any] = {"rank": rank, "steps": steps, "times": times + 0.01 * rank}

        def rough(by: float) -> np.ndarray:
            return np.exp(by * dice.standard_normal(reports))

        own = pace * rough(jitter / 5)
        found += [
            a_series("loss", loss * rough(noise), **where),
            a_series("grad_norm", rough(0.4), **where),
            a_series("learning_rate", rate, **where),
            a_series("step_time_seconds", own, **where),
            a_series("tokens_per_second", 4e4 / own, **where),
            a_series("memory_bytes", 3e10 * (1 - np.exp(-number / 5)) + 1e8 * rough(1), **where),
            a_series("total_steps", np.full(reports, reports * steps_per_report), **where),
        ]
    return found
