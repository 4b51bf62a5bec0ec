"""What a loss tells: not a number, spikes, and that it goes down no more. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from airflow_training.logs.health.ranks import Rank, finding_at, series_of
from airflow_training.logs.model import Finding, Series

if TYPE_CHECKING:
    from airflow_training.logs.model import Bools, Floats

__all__ = ["GRADIENTS", "LOSS", "is_training_loss", "not_finite", "plateaus", "spikes"]

LOSS, GRADIENTS = "loss", "grad_norm"

_LASTING = 3
"""Not-finite values in a row: mixed precision overflows once in a while and skips the step."""
_LOSS = re.compile(r"(?:^|[^a-z])(?:loss|nll|objf)(?:$|[^a-z])|loss$")
_ASIDE = re.compile(r"^(?:eval|valid|val|test|dev)(?:idation)?(?:$|[^a-z])")
_DERIVED = frozenset({"step_time_seconds", "data_time_seconds", "total_steps"})
"""Infinite where a bar has not made a step yet."""
_HISTORY = 100
_FEWEST = 20
_SPIKE_DEVIATIONS = 10.0
"""Twice in a row. Noise of batches has heavy tails: a single report is no spike below the next."""
_LONE_DEVIATIONS = 25.0
_LEAST_RISE = 1.5
_LONE_RISE = 3.0
_MOST_SPIKES = 5
_PLATEAU_REPORTS = 200
_PLATEAU_GAIN = 0.01
"""Of the loss, over half of the run; a power law with the small exponent 0.1 still gains 10 %."""
_PLATEAU_LOSS = 0.05
"""What rises by more does not stay."""
_WARM_UP = 0.1
"""Of the reports: the steep beginning says nothing about spikes."""


def is_training_loss(metric: str) -> bool:
    """Return whether a metric is a loss, or a part of it, that the run trains with."""
    return _LOSS.search(metric) is not None and _ASIDE.search(metric) is None


def not_finite(ranks: Sequence[Rank]) -> list[Finding]:
    """Return where metrics became NaN or infinite: an error where a loss or its gradients stay so."""
    found = []
    for rank in ranks:
        for name, series in rank.metrics.items():
            bad = ~np.isfinite(series.values)
            if name not in _DERIVED and bad.any():
                found += _not_finite(name, series, bad)
    return found


def _not_finite(name: str, series: Series, bad: Bools) -> list[Finding]:
    """Return where a series with values that are `bad` became so."""
    at = _start_of_last_stretch(bad) if bad[-1] else int(np.argmax(bad))
    lasting = bool(bad[-1]) and len(bad) - at >= min(_LASTING, len(bad))
    if name == GRADIENTS and not lasting:
        return []  # an overflow that the loss scaler has dealt with
    value = float(series.values[at])
    message = f"{name} is {value} {'from here on' if bad[-1] else f'{bad.sum()} times'}"
    trained = name == GRADIENTS or bool(_LOSS.search(name))
    never = at == 0 and _ASIDE.search(name)  # of an evaluation that has no samples
    severity = "error" if bad[-1] and trained and not never else "warning"
    return [finding_at(series, at, kind="nan", message=message, severity=severity)]


def _start_of_last_stretch(bad: np.ndarray) -> int:
    good = np.flatnonzero(~bad)
    return int(good[-1]) + 1 if len(good) else 0


def spikes(ranks: Sequence[Rank]) -> list[Finding]:
    """Return where a training loss jumped above its recent past."""
    return [found for series in series_of(ranks, LOSS) for found in _spikes_of(series)]


def _spikes_of(series: Series) -> list[Finding]:
    told = np.flatnonzero(np.isfinite(series.values))
    values = series.values[told]
    if len(values) < 2 * _FEWEST:
        return []
    # relative noise: the logarithm makes the tails of a positive loss tame
    scale = np.log(values) if (values > 0).all() else values
    centre, spread = _recent(scale)
    level, _ = _recent(values)
    deviations = (scale - centre) / spread
    rise = np.where(level > 0, values / np.where(level > 0, level, 1.0), np.inf)
    high = (deviations > _SPIKE_DEVIATIONS) & (rise > _LEAST_RISE)
    pair = high & np.append(high[1:], False)
    lone = (deviations > _LONE_DEVIATIONS) & (rise > _LONE_RISE)
    start = max(_FEWEST, int(_WARM_UP * len(values)))
    found: list[Finding] = []
    quiet_until = start
    for at in map(int, np.flatnonzero(pair | lone)):
        if at < quiet_until:
            continue
        quiet_until = at + _HISTORY  # by then the new level is the usual one
        message = f"loss jumped from {level[at]:.4g} to {values[at]:.4g}"
        found.append(finding_at(series, int(told[at]), kind="loss-spike", message=message))
        if len(found) == _MOST_SPIKES:
            break
    return found


def _recent(values: Floats) -> tuple[Floats, Floats]:
    """Return median and robust deviation of the values before each one."""
    padded = np.concatenate([np.full(_HISTORY, np.nan), values[:-1]])
    before = np.lib.stride_tricks.sliding_window_view(padded, _HISTORY)
    centre = np.zeros(len(values))
    spread = np.full(len(values), np.inf)
    for begin in range(_FEWEST, len(values), 4096):  # blocks: a window of all would be large
        part = before[begin : begin + 4096]
        middle = np.nanmedian(part, axis=1)
        centre[begin : begin + 4096] = middle
        deviation = np.nanmedian(np.abs(part - middle[:, None]), axis=1)
        spread[begin : begin + 4096] = 1.4826 * deviation + 1e-12 + 1e-3 * np.abs(middle)
    return centre, spread


def plateaus(ranks: Sequence[Rank]) -> list[Finding]:
    """Return training losses that gained nothing over the last half of the run."""
    found = []
    for series in series_of(ranks, LOSS):
        told = np.flatnonzero(np.isfinite(series.values))
        half = told[len(told) // 2 :]
        if len(half) < _PLATEAU_REPORTS:
            continue
        earlier, later = np.array_split(series.values[half], 2)
        level = abs(float(earlier.mean()))
        error = float(np.hypot(_error(earlier), _error(later)))
        gain = float(earlier.mean() - later.mean())
        if -_PLATEAU_LOSS * level < gain and gain + 3 * error < _PLATEAU_GAIN * level:
            steps = f"{len(half)} reports"
            message = f"loss stays at {later.mean():.4g} over the last {steps}"
            found.append(
                finding_at(series, int(half[0]), kind="plateau", message=message, severity="info")
            )
    return found


def _error(values: Floats) -> float:
    """Return the standard error of the mean of neighbours that are alike: from block means."""
    blocks = np.array([block.mean() for block in np.array_split(values, 10)])
    return float(blocks.std(ddof=1) / np.sqrt(len(blocks)))
