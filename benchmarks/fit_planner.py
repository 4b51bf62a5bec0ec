"""Fit the constants of the time model on the shipped rows.

    python -m benchmarks.fit_planner            # what would be fitted
    python -m benchmarks.fit_planner --write    # into planning/data

The least robust squared error of the logarithm of step times, and a ridge to priors from data sheets and
published measurements (`prior` in the file). `benchmarks.planner` says how well the result carries over.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from airflow_training.planning.cost import constants
from airflow_training.planning.cost.constants import TimeConstants
from airflow_training.planning.cost.refining import FreeConstant, fit, predicted, value
from benchmarks.planner_rows import DATA, Row, by_set, calibration

FREE = (
    FreeConstant(name="matmul_efficiency", low=0.6, high=1.0, spread=0.1),
    FreeConstant(name="k_half", low=10.0, high=400.0, spread=0.5),
    FreeConstant(name="wave_quantisation", low=0.01, high=1.0, spread=0.5),
    FreeConstant(name="attention.A100", low=0.3, high=0.75, spread=0.15),
    FreeConstant(name="attention.H", low=0.2, high=0.75, spread=0.15),
    FreeConstant(name="attention_backward", low=0.4, high=1.0, spread=0.15),
    FreeConstant(name="bandwidth_efficiency", low=0.4, high=0.95, spread=0.15),
    FreeConstant(name="kernel_seconds", low=1e-6, high=6e-6, spread=0.3),
    FreeConstant(name="overlap_order", low=1.5, high=8.0, spread=0.4),
    FreeConstant(name="optimizer_passes", low=1.0, high=4.0, spread=0.3),
    FreeConstant(name="overlap_contention", low=0.02, high=0.8, spread=0.5),
    FreeConstant(name="network_efficiency", low=0.3, high=1.0, spread=0.2),
    FreeConstant(name="straggling", low=0.002, high=0.06, spread=0.3),
    FreeConstant(name="runtime_host_seconds.megatron-deepspeed", low=1e-6, high=1e-3, spread=1.0),
    FreeConstant(
        name="runtime_handover_seconds.deepspeed-pipeline", low=1e-4, high=0.2, spread=3.0
    ),
    FreeConstant(name="runtime_factors.fsdp", low=0.9, high=1.5, spread=0.2),
    FreeConstant(name="runtime_factors.nanotron", low=0.9, high=1.5, spread=0.2),
)
"""What is fitted: a constant for each runtime, the others physical. `spread` is how well the prior is
known."""


def document() -> dict[str, Any]:
    """Return the file of the constants."""
    read: dict[str, Any] = json.loads(DATA.joinpath("constants.json").read_text("utf-8"))
    return read


def priors() -> TimeConstants:
    """Return the constants as they stand before any row is seen."""
    return constants.read(
        {
            name: {"value": entry["prior"] if name not in ("fitted_devices",) else []}
            for name, entry in document().items()
            if name != "about"
        }
    )


def fitted(rows: Sequence[Row]) -> TimeConstants:
    """Return the constants that the rows give."""
    return fit([row.measured for row in rows], priors(), FREE)


def errors(rows: Sequence[Row], found: TimeConstants) -> npt.NDArray[np.float64]:
    """Return the relative error of each row."""
    seconds = np.array([row.measured.step_seconds for row in rows])
    return np.asarray(predicted([row.measured for row in rows], found) / seconds - 1.0)


def main() -> None:
    """Fit, and say what came out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--write", action="store_true", help="write the constants into planning/data"
    )
    write = parser.parse_args().write
    rows = calibration()
    before, found = priors(), fitted(rows)
    print(f"{'constant':45} {'prior':>10} {'fitted':>10}")
    for each in FREE:
        print(f"{each.name:45} {value(before, each.name):10.3g} {value(found, each.name):10.3g}")
    error = errors(rows, found)
    for kind, places in by_set(rows).items():
        print(
            f"{kind:25} {len(places):4} rows, mean error {np.abs(error[places]).mean():.1%} (fitted)"
        )
    if write:
        file = document()
        for each in FREE:
            name, _, key = each.name.partition(".")
            number = float(f"{value(found, each.name):.4g}")
            if key:
                file[name]["value"][key] = number
            else:
                file[name]["value"] = number
        DATA.joinpath("constants.json").write_text(json.dumps(file, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
