"""A plan as a picture: where time and memory go, and how the pipeline fills. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_training.cli.picture_files import new_figure, save_figure
from airflow_training.cli.plan_schedule import TimelineBox, timeline
from airflow_training.planning.answers.text import bytes_text, seconds_text, strategy_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw"]

_GIB = 2.0**30
_COLOURS = (
    "#4477aa",
    "#66ccee",
    "#228833",
    "#ccbb44",
    "#ee6677",
    "#aa3377",
    "#bbbbbb",
    "#222255",
    "#999933",
    "#882255",
)
"""Told apart by everybody (Paul Tol's bright scheme, and darker ones after it)."""
_FORWARD, _BACKWARD, _SENT = "#4477aa", "#ee6677", "#222222"
_MOST_STAGES = 16
_MOST_NUMBERS = 500
"""Boxes that are wide enough for the number of their micro-batch."""


def draw(plan: Mapping[str, Any], path: Path) -> None:
    """Draw a plan document into a file; raises InputError where that cannot be done."""
    pipelined = plan["strategy"]["pp"] > 1
    figure = new_figure(path, size=(11, 7.5 if pipelined else 4.6))
    figure.suptitle(strategy_text(plan), fontsize=11, x=0.01, ha="left")
    rows = figure.add_gridspec(2 if pipelined else 1, 1, height_ratios=[2, 3][: 1 + pipelined])
    above = rows[0].subgridspec(1, 2, wspace=0.12)
    _time(figure.add_subplot(above[0]), plan)
    _memory(figure.add_subplot(above[1]), plan)
    if pipelined:
        _pipeline(figure.add_subplot(rows[1]), plan)
    save_figure(figure, path, dpi=144)


def _time(axes: Axes, plan: Mapping[str, Any]) -> None:
    """Draw a bar for each part of a step, the longest above."""
    parts = [each for each in plan["breakdown"]["time_s"] if each["value"] > 0]
    parts.sort(key=lambda each: each["value"])
    parts = parts[-8:]
    names = [each["name"] for each in parts]
    axes.barh(names, [each["value"] for each in parts], color=_COLOURS[0])
    for place, each in enumerate(parts):
        axes.annotate(
            seconds_text(each["value"]),
            (each["value"], place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    spread = f"{seconds_text(plan['p10'])} to {seconds_text(plan['p90'])}"
    axes.set_title(f"a step: {seconds_text(plan['step_time_s'])} ({spread})", fontsize=10)
    axes.set_xlabel("seconds")
    axes.margins(x=0.18)
    _style_axes(axes)


def _memory(axes: Axes, plan: Mapping[str, Any]) -> None:
    """Draw the parts of the fullest device, and the total of the stages beside it."""
    parts = [each for each in plan["breakdown"]["memory_bytes"] if each["value"] > 0]
    stages = plan["stages"] if len(plan["stages"]) > 1 else []
    shown = stages[:_MOST_STAGES]
    left = 0.0
    for place, each in enumerate(parts):
        size = each["value"] / _GIB
        axes.barh(
            "fullest", size, left=left, color=_COLOURS[place % len(_COLOURS)], label=each["name"]
        )
        left += size
    for number, stage in enumerate(shown):
        axes.barh(f"stage {number}", stage["memory_bytes"] / _GIB, color="#c9d6e6")
    limit = min((stage["device_memory_bytes"] for stage in plan["stages"]), default=0.0) / _GIB
    if limit:
        axes.axvline(limit, color=_SENT, linewidth=1, linestyle="--")
        axes.annotate(
            f"{limit:.3g} GiB",
            (limit, 1),
            xycoords=("data", "axes fraction"),
            xytext=(-4, -3),
            textcoords="offset points",
            ha="right",
            va="top",
            fontsize=8,
        )
    axes.invert_yaxis()
    axes.set_title(f"memory of a device: {bytes_text(plan['peak_memory_bytes'])}", fontsize=10)
    axes.set_xlabel("GiB")
    axes.legend(fontsize=7, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.2), frameon=False)
    _style_axes(axes)


def _pipeline(axes: Axes, plan: Mapping[str, Any]) -> None:
    """Draw which micro-batch each stage works on."""
    split = plan["strategy"]
    boxes, drawn, rounds = timeline(plan)
    stages = split["pp"]
    for box in boxes:
        _box(axes, box, numbered=len(boxes) <= _MOST_NUMBERS)
    some = "" if drawn == rounds else f", {drawn} of {rounds} micro-batches"
    bubble = next((e["value"] for e in plan["breakdown"]["time_s"] if e["name"] == "bubble"), 0.0)
    share = bubble / plan["step_time_s"]
    title = f"pipeline{some}: forward blue, backward red; idle {share:.1%} of a step"
    axes.set_title(title, fontsize=10)
    axes.set_ylim(stages - 0.5, -0.5)
    axes.set_xlim(0, max(box.end for box in boxes))
    axes.set_ylabel("stage")
    axes.set_xlabel("seconds")
    if stages <= _MOST_STAGES:
        axes.set_yticks(range(stages))
    _style_axes(axes)


def _box(axes: Axes, box: TimelineBox, *, numbered: bool) -> None:
    colour = _FORWARD if box.forward else _BACKWARD
    shade = 1.0 - 0.35 * (box.chunk % 3) / 2
    width = box.end - box.begin
    axes.barh(
        box.stage,
        width,
        left=box.begin,
        height=0.86,
        color=colour,
        alpha=shade,
        edgecolor="white",
        linewidth=0.4,
    )
    if numbered:
        axes.text(
            box.begin + width / 2,
            box.stage,
            str(box.micro_batch + 1),
            ha="center",
            va="center",
            fontsize=6,
            color="white",
        )


def _style_axes(axes: Axes) -> None:
    axes.tick_params(labelsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
