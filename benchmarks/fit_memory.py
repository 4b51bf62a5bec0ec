"""Fit the constants of the memory model on the shipped rows, and say how well they carry over.

    python -m benchmarks.fit_memory            # what would be fitted, and every error
    python -m benchmarks.fit_memory --write    # into planning/data

Two numbers are fitted on the rows whose peak was measured: the bytes taken before the first tensor, and
the share that the allocator wastes. A third, the share it still wastes when memory is short, comes from
the rows that ran and those that ran out of memory. All stay within what is physically plausible.
"""

from __future__ import annotations

import argparse
import importlib.resources
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from airflow_training.planning.cost.memory import Training, stage_memory
from airflow_training.planning.cost.memory_constants import FROZEN
from airflow_training.planning.cost.step import kinds_of_stages
from airflow_training.planning.cost.tables import as_table
from airflow_training.planning.lowering import lower
from airflow_training.planning.program import Sharding
from airflow_training.planning.sources.documents import parse_row
from airflow_training.planning.transformer import computation

DATA = Path(str(importlib.resources.files("airflow_training.planning"))) / "data"

BASES = np.arange(1.0e9, 4.01e9, 0.25e9)
"""A CUDA context takes half a gigabyte; NCCL, libraries and what the driver reserves the rest."""
OVERHEADS = np.arange(0.0, 0.301, 0.01)
TIGHT = np.arange(0.0, 0.101, 0.01)
EXACT = replace(FROZEN, base_bytes=0.0, allocation_overhead=0.0, tight_overhead=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the measurements: bytes by stage."""

    id: str
    cluster: str
    used: npt.NDArray[np.float64]
    """What the model's tensors take, before any constant."""
    limits: npt.NDArray[np.float64]
    peak: float | None
    ran: bool


def rows(*kinds: str) -> list[Row]:
    """Return the rows of some lists of the calibration file."""
    document = json.loads(DATA.joinpath("calibration.json").read_text("utf-8"))
    return [_row(row) for kind in kinds for row in document[kind]]


def _row(document: dict[str, Any]) -> Row:
    row = parse_row(document)
    strategy = row.strategy
    sharding = Sharding(
        micro_batch=strategy.micro_batch,
        tp=strategy.tp,
        cp=strategy.cp,
        ep=strategy.ep,
        sequence_parallel=strategy.sequence_parallel,
        precision=strategy.precision,
    )
    training = Training(
        global_batch=strategy.global_batch,
        precision=strategy.precision,
        runtime=row.runtime,
        schedule=strategy.schedule,
    )
    per_stage = strategy.devices // strategy.pp
    on_stage = kinds_of_stages(row.cluster, strategy.pp, per_stage, strategy.stage_devices)
    kinds = [group.device for group in row.cluster.groups]
    devices = [min((kinds[i] for i in stage), key=lambda d: d.memory_bytes) for stage in on_stage]
    parts = stage_memory(
        lower(computation(row.model), sharding),
        as_table([strategy]),
        training,
        devices=devices,
        stage_layers=strategy.stage_layers,
        constants=EXACT,
    )
    measured = document["measured"]
    return Row(
        id=str(row.id),
        cluster=row.cluster.name,
        used=np.sum(list(parts.values()), axis=0)[:, 0],
        limits=np.array([device.memory_bytes for device in devices]),
        peak=measured.get("peak_memory_bytes"),
        ran=not measured.get("oom", False),
    )


def errors(measured: Sequence[Row], base: float, overhead: float) -> npt.NDArray[np.float64]:
    """Return predicted over measured peak, less one."""
    predicted = np.array([row.used.max() * (1 + overhead) + base for row in measured])
    peaks = np.array([row.peak for row in measured], dtype=np.float64)
    relative: npt.NDArray[np.float64] = predicted / peaks - 1.0
    return relative


def fit(measured: Sequence[Row]) -> tuple[float, float]:
    """Return base bytes and overhead with the least mean error; of equal ones the middle."""
    found = [
        (round(float(np.abs(errors(measured, *pair)).mean()), 3), pair)
        for pair in product(BASES, OVERHEADS)
    ]
    best = [pair for error, pair in found if error == min(found)[0]]
    base, overhead = np.median(np.array(best), axis=0)
    return float(base), float(overhead)


def fit_tight(rows_: Sequence[Row], base: float) -> float:
    """Return the largest share with which every row that ran still fits."""
    ran = [row for row in rows_ if row.ran]
    return float(max((share for share in TIGHT if not refused(ran, base, share)), default=0.0))


def refused(rows_: Sequence[Row], base: float, tight: float) -> list[str]:
    """Return the rows that are said not to fit."""
    return [row.id for row in rows_ if np.any(row.used * (1 + tight) + base > row.limits)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the constants into planning/data")
    arguments = parser.parse_args()

    measured = rows("memory_rows")
    every = rows("rows", "heterogeneous_rows", "memory_rows")
    base, overhead = fit(measured)
    tight = fit_tight(every, base)
    print(f"base {base / 1e9:.2f} GB, overhead {overhead:.3f}, when short {tight:.3f}")
    for row, error in zip(measured, errors(measured, base, overhead), strict=True):
        print(f"  {row.id:24} {error:+7.1%}")
    print(f"fitted on all      MAPE {np.abs(errors(measured, base, overhead)).mean():.1%}")
    for cluster in sorted({row.cluster for row in measured}):
        held_out = [row for row in measured if row.cluster == cluster]
        constants = fit([row for row in measured if row.cluster != cluster])
        found = np.abs(errors(held_out, *constants))
        print(f"held out {cluster:10} MAPE {found.mean():.1%}, worst {found.max():.1%}")
    ran = [row for row in every if row.ran]
    ran_out = [row for row in every if not row.ran]
    print(f"ran: {len(ran)}, refused: {refused(ran, base, tight)}")
    too_big = refused(ran_out, base, tight)
    print(f"ran out of memory: {len(ran_out)}, refused: {too_big}")
    if arguments.write:
        path = DATA / "memory.json"
        document = json.loads(path.read_text("utf-8"))
        document |= {
            "base_bytes": round(base),
            "allocation_overhead": round(overhead, 3),
            "tight_overhead": round(tight, 3),
        }
        path.write_text(json.dumps(document, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
