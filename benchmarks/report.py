"""How a figure is printed: name, value, the target it is held against, and what it was measured on."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt


def machine() -> str:
    """Return one line about this machine."""
    model = "unknown CPU"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{model}, {os.cpu_count()} cores, {memory:.0f} GiB, Linux {platform.release()},"
        f" Python {platform.python_version()}"
    )


def figure(name: str, value: float, unit: str, *, target: str = "", note: str = "") -> None:
    """Print one figure as a Markdown table row."""
    print(f"| {name} | {value:.3g} {unit} | {target} | {note} |", flush=True)


def heading(title: str) -> None:
    """Print the head of one benchmark's table."""
    print(f"\n### {title}\n\n| what | figure | target | note |\n|---|---|---|---|", flush=True)


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which `share` of the values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def median(values: Sequence[float]) -> float:
    """Return the middle value."""
    return statistics.median(values)


def rank_correlation(one: npt.ArrayLike, other: npt.ArrayLike) -> float:
    """Return Spearman's coefficient of numbers without ties."""
    first, second = (np.argsort(np.argsort(numbers)) for numbers in (one, other))
    return float(np.corrcoef(first, second)[0, 1])
