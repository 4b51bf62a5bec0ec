"""The measured steps that the planner's time model is fitted on and judged by."""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from airflow_training.planning.cost.refining import StepTiming
from airflow_training.planning.sources.documents import parse_row
from airflow_training.planning.view.computation import ComputationView
from airflow_training.planning.view.plan import Workload
from airflow_training.planning.view.strategy import TransformerModel
from airflow_training.planning.view.transformer import computation

DATA = Path(str(importlib.resources.files("airflow_training.planning"))) / "data"

SETS: Mapping[str, tuple[str, Callable[[str], bool]]] = {
    "one node, GPT": ("rows", lambda name: name.startswith("vts")),
    "64 to 512 GPUs, GPT": ("rows", lambda name: name.startswith("vtm")),
    "FSDP on A100 and H100": ("rows", lambda name: name.startswith("mosaic")),
    "nanotron on H100": ("memory_rows", lambda name: "nanotron" in name),
    "mixed V100 and T4": ("heterogeneous_rows", lambda name: name.startswith("amp")),
}
"""Sets of rows: where they stand in the calibration file, and how their names begin."""

WEIGHTS = {"one node, GPT": 1.0, "mixed V100 and T4": 0.5}
"""How much a row of a set counts in a fit; 2 where it is not said, as those sets are small."""


class Row:
    """A measured step, and what folds are made by."""

    def __init__(self, name: str, kind: str, document: Mapping[str, Any], seconds: float) -> None:
        parsed = parse_row(document)
        self.id = name
        self.kind = kind
        self.model = parsed.model
        self.cluster = parsed.cluster.name
        self.measured = StepTiming(
            workload=Workload(
                view=view(parsed.model),
                global_batch=parsed.strategy.global_batch,
                precision=parsed.strategy.precision,
                runtime=parsed.runtime,
            ),
            cluster=parsed.cluster,
            strategy=parsed.strategy,
            step_seconds=seconds,
            weight=WEIGHTS.get(kind, 2.0),
        )


@cache
def view(model: TransformerModel) -> ComputationView:
    """Return the view of a model, one for all rows that train it."""
    return computation(model)


def calibration() -> list[Row]:
    """Return the rows of the calibration file that took a time, set by set."""
    document = json.loads(DATA.joinpath("calibration.json").read_text("utf-8"))
    return [
        Row(row["id"], kind, row, seconds)
        for kind, (place, chosen) in SETS.items()
        for row in document[place]
        if chosen(row["id"]) and (seconds := _seconds(row)) is not None
    ]


def published() -> list[Row]:
    """Return configurations that papers published; nothing is fitted on them."""
    document = json.loads(DATA.joinpath("published.json").read_text("utf-8"))
    return [
        Row(row["id"], row["set"], row, row["measured"]["step_time_s"]) for row in document["rows"]
    ]


def h200() -> list[Row]:
    """Return steps of eager PyTorch on one H200; nothing is fitted on them."""
    document = json.loads(DATA.joinpath("h200.json").read_text("utf-8"))
    sets = {
        "h200": "rows",
        "h200, after choices": "held_out",
        "h200, predicted before": "predicted",
    }
    return [
        Row(row["id"], kind, row, row["measured"]["step_time_s"])
        for kind, place in sets.items()
        for row in document[place]
    ]


def by_set(rows: Sequence[Row]) -> dict[str, list[int]]:
    """Return the places of the rows of each set, in the order of the sets."""
    found: dict[str, list[int]] = {}
    for place, row in enumerate(rows):
        found.setdefault(row.kind, []).append(place)
    return found


def _seconds(row: Mapping[str, Any]) -> float | None:
    measured = row["measured"]
    if "step_time_s" not in measured and row["runtime"] == "nanotron":
        return _seconds_of_utilisation(row)
    seconds: float | None = measured.get("step_time_s")
    return seconds


def _seconds_of_utilisation(row: Mapping[str, Any]) -> float:
    """Return the seconds of a step that nanotron reports as a share of an H100's 989 TFLOP/s.

    It counts a forward pass as two operations per weight of the matrix products and token, and attention
    without a causal mask; a step as three forward passes (nanotron, `get_flops_per_sec`).
    """
    model, strategy = row["model"], row["strategy"]
    hidden, sequence = model["hidden"], model["seq"]
    kv = hidden // model["heads"] * model["kv_heads"]
    layer = 2 * hidden * hidden + 2 * hidden * kv + 3 * hidden * model["ffn"]
    per_token = 2 * (model["layers"] * layer + hidden * model["vocab"])
    per_token += 4 * sequence * hidden * model["layers"]
    tokens = strategy["global_batch"] * sequence
    devices = strategy["tp"] * strategy["pp"] * strategy["dp"] * strategy["cp"]
    rate = row["measured"]["mfu_pct"] / 100 * 989e12 * devices
    return float(3 * per_token * tokens / rate)
