"""Fit the constants of the memory model on the shipped rows, and say how well they carry over.

    python -m benchmarks.fit_memory            # what would be fitted, and every error
    python -m benchmarks.fit_memory --write    # into planning/data

One number is fitted on the rows whose peak was measured: the share that the allocator wastes. For FSDP,
whose rows have no measured peak but fill their devices, it is the largest with which all of them fit.
"""

from __future__ import annotations

import argparse
import importlib.resources
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from airflow_training.planning.cost.memory import TrainingSettings, stage_memory
from airflow_training.planning.cost.memory_constants import FROZEN
from airflow_training.planning.cost.step import kinds_of_stages
from airflow_training.planning.cost.tables import as_table
from airflow_training.planning.sources.documents import parse_row
from airflow_training.planning.view.lowering import lower
from airflow_training.planning.view.program import Sharding
from airflow_training.planning.view.transformer import computation

DATA = Path(str(importlib.resources.files("airflow_training.planning"))) / "data"

OVERHEADS = np.arange(0.0, 0.301, 0.01)

EXACT = replace(
    FROZEN,
    base_bytes=0.0,
    overhead=0.0,
    runtimes={name: replace(each, overhead=None) for name, each in FROZEN.runtimes.items()},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the measurements: bytes by stage."""

    id: str
    cluster: str
    runtime: str
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
    training = TrainingSettings(
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
        runtime=row.runtime,
        used=np.sum(list(parts.values()), axis=0)[:, 0],
        limits=np.array([device.memory_bytes for device in devices]),
        peak=measured.get("peak_memory_bytes"),
        ran=not measured.get("oom", False),
    )


def errors(measured: Sequence[Row], overhead: float) -> npt.NDArray[np.float64]:
    """Return predicted over measured peak, less one."""
    predicted = np.array([row.used.max() for row in measured]) * (1 + overhead) + FROZEN.base_bytes
    peaks = np.array([row.peak for row in measured], dtype=np.float64)
    relative: npt.NDArray[np.float64] = predicted / peaks - 1.0
    return relative


def fit(measured: Sequence[Row]) -> float:
    """Return the overhead with the least mean error."""
    return float(min(OVERHEADS, key=lambda share: np.abs(errors(measured, share)).mean()))


def fit_filled(ran: Sequence[Row]) -> float:
    """Return the largest overhead with which all of these rows fit."""
    return float(max(share for share in OVERHEADS if all(fits(row, share) for row in ran)))


def fits(row: Row, overhead: float) -> bool:
    return bool(np.all(row.used * (1 + overhead) + FROZEN.base_bytes <= row.limits))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the constants into planning/data")
    arguments = parser.parse_args()

    measured = rows("memory_rows")
    every = [*rows("rows", "heterogeneous_rows"), *measured]
    common = fit(measured)
    fsdp = fit_filled([row for row in every if row.runtime == "fsdp" and row.ran])
    print(f"overhead {common:.2f}, of FSDP {fsdp:.2f}")
    for row, error in zip(measured, errors(measured, common), strict=True):
        print(f"  {row.id:24} {error:+7.1%}")
    print(f"fitted on all      MAPE {np.abs(errors(measured, common)).mean():.1%}")
    for cluster in sorted({row.cluster for row in measured}):
        held_out = [row for row in measured if row.cluster == cluster]
        other = fit([row for row in measured if row.cluster != cluster])
        found = np.abs(errors(held_out, other))
        print(f"held out {cluster:10} MAPE {found.mean():.1%}, worst {found.max():.1%}")
    refused = [row for row in every if not fits(row, fsdp if row.runtime == "fsdp" else common)]
    for ran, what in ((True, "ran"), (False, "ran out of memory")):
        names = [row.id for row in refused if row.ran == ran]
        print(f"{what}: {sum(row.ran == ran for row in every)}, of these refused: {names}")
    if arguments.write:
        path = DATA / "memory.json"
        document = json.loads(path.read_text("utf-8"))
        document["overhead"] = round(common, 2)
        document["runtimes"]["fsdp"]["overhead"] = round(fsdp, 2)
        path.write_text(json.dumps(document, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
