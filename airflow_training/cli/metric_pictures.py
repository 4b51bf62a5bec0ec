"""Series of metrics as a picture, a small chart each. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_training.cli.output import fail
from airflow_training.cli.picture_files import new_figure, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from airflow_training.logs.model import Series

__all__ = ["draw"]

_MOST_CHARTS = 24
_MOST_LINES = 16
"""Ranks of one chart."""
_POINTS = 2000
"""Of a line; more than a chart has pixels, and no peak is left out."""
_FIRST = (
    "loss",
    "eval_loss",
    "accuracy",
    "eval_accuracy",
    "learning_rate",
    "grad_norm",
    "step_time_seconds",
)
"""What most people look for; the others follow as the log has them."""
_UNITS = {"_per_second": "1/s", "_seconds": "s", "_bytes": "bytes", "_per_gpu": "per GPU"}


def draw(series: Sequence[Series], path: Path) -> None:
    """Draw a chart for each metric into a file, a line for each rank; raises InputError where that cannot be done."""
    by_metric: dict[str, list[Series]] = {}
    for each in series:
        if each.metric not in ("step", "total_steps"):
            by_metric.setdefault(each.metric, []).append(each)
    if not by_metric:
        raise fail("--plot", "the logs hold no metric to draw", value=str(path))
    names = sorted(
        by_metric, key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST)
    )
    names = names[:_MOST_CHARTS]
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    figure = new_figure(path, size=(4.5 * columns, 2.6 * rows))
    for number, name in enumerate(names, start=1):
        _chart(figure.add_subplot(rows, columns, number), name, by_metric[name][:_MOST_LINES])
    save_figure(figure, path)


def _chart(axes: Axes, name: str, lines: Sequence[Series]) -> None:
    import numpy as np

    from airflow_training.logs.metrics.thinning import chart_points

    by_step = True
    for each in lines:
        which = chart_points(each.values, _POINTS)
        counted = not np.isnan(each.steps).any() and bool((np.diff(each.steps) >= 0).all())
        by_step = by_step and counted
        across = each.steps if counted else np.arange(each.values.size)
        label = None if each.rank is None else f"rank {each.rank}"
        alone = int(np.isfinite(each.values).sum()) == 1  # a line needs two
        marker = "o" if alone else None
        axes.plot(
            across[which], each.values[which], linewidth=0.9, marker=marker, ms=4, label=label
        )
    axes.set_title(name, fontsize=9, loc="left")
    axes.set_xlabel("step" if by_step else "line of the log with it", fontsize=7)
    axes.set_ylabel(_with_unit(name), fontsize=7)
    axes.tick_params(labelsize=7)
    axes.grid(alpha=0.25)
    if len(lines) > 1 and any(each.rank is not None for each in lines):
        axes.legend(fontsize=6)


def _with_unit(metric: str) -> str:
    """Return `step time (s)` for `step_time_seconds`: our names end in their unit."""
    for ending, unit in _UNITS.items():
        if metric.endswith(ending):
            return f"{metric.removesuffix(ending).replace('_', ' ')} ({unit})"
    return metric.replace("_", " ")
