"""Answers of the planner as lines for people; a job's plan has its own in `planning.answers.text`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_training.cli.output import table_lines, terminal_width
from airflow_training.documents.text import counted
from airflow_training.planning.answers.text import (
    bytes_text,
    correction_text,
    seconds_text,
    strategy_text,
    why_text,
)

__all__ = ["calibrated_lines", "explained_lines", "search_lines"]

Document = Mapping[str, Any]


def search_lines(found: Document) -> list[str]:
    """Return the plans of a search, best first."""
    return [
        *_plans(found["plans"]),
        "",
        f"{found['evaluated']:,} candidates in {found['seconds']:.2f} s",
        *_calibrated(found["measurements"]),
        *(f"warning: {each}" for each in found["warnings"]),
    ]


def explained_lines(found: Document) -> list[str]:
    """Return where the time and the memory of a plan go, and why others lost against the best."""
    plan = found["plan"]
    lines = [strategy_text(plan), ""]
    for title, kind, text in (
        ("time", "time_s", seconds_text),
        ("memory of the fullest device", "memory_bytes", bytes_text),
    ):
        parts = plan["breakdown"][kind]
        whole = sum(each["value"] for each in parts) or 1.0
        rows = [
            [each["name"], text(each["value"]), f"{each['value'] / whole:.1%}", each["origin"]]
            for each in parts
            if each["value"]
        ]
        rows.append(["in all", text(whole), "", ""])
        lines += [*table_lines([title, "value", "share", "from"], rows, width=terminal_width()), ""]
    if not plan["fits"]:
        lines += ["it does not fit into the memory of the devices", ""]
    if found["slower_than_best"] is not None:
        lines += [
            f"the best plan: {strategy_text(found['best'])}:"
            f" {seconds_text(found['best']['step_time_s'])} a step"
            f" (this one {found['slower_than_best']:+.1%})",
            "",
        ]
    if learned := _calibrated(found["measurements"]):
        lines += [*learned, ""]
    if found["rejected"]:
        lines += ["against the best, with the best of all else", *_families(found["rejected"]), ""]
    if found["front"]:
        lines += ["time against money", *_plans(found["front"]), ""]
    return lines[:-1]


def calibrated_lines(
    moved: Sequence[tuple[str, Any, Any]], before: float, after: float, *, rows: int
) -> list[str]:
    """Return which constants moved, and the mean error on the rows before and after."""
    return [
        *table_lines(["constant", "before", "after"], moved, width=terminal_width()),
        "",
        f"mean error on these {counted(rows, 'row')}: {before:.1%} before, {after:.1%} after",
    ]


def _calibrated(measurements: Document) -> list[str]:
    """Return what runs of the same model on such nodes measured, where they did."""
    return [f"measured {correction_text(measurements)}"] if "factor" in measurements else []


def _families(rejected: Sequence[Document]) -> list[str]:
    """Return a line for each dimension: what every other value of it costs."""
    lines: dict[str, list[str]] = {}
    for each in rejected:
        key = ", ".join(each["family"])
        value = ", ".join(str(value) for value in each["family"].values())
        lines.setdefault(key, []).append(f"{value}: {why_text(each)}")
    width = max(map(len, lines))
    return [f"  {key.ljust(width)}   {'; '.join(values)}" for key, values in lines.items()]


def _plans(plans: Sequence[Document]) -> list[str]:
    priced = any(each["price_per_step"] is not None for each in plans)
    columns = ["#", "step", "p10 to p90", "memory", *(["price"] if priced else []), "plan"]
    rows = []
    for place, plan in enumerate(plans, start=1):
        price = plan["price_per_step"]
        rows.append(
            [
                place,
                seconds_text(plan["step_time_s"]),
                f"{seconds_text(plan['p10'])} to {seconds_text(plan['p90'])}",
                bytes_text(plan["peak_memory_bytes"]),
                *([f"{price:.4g}" if price is not None else ""] if priced else []),
                strategy_text(plan),
            ]
        )
    return table_lines(columns, rows, width=terminal_width())
