"""Programs and tables of strategies made by hand, for tests of what cost makes of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from airflow_training.planning.view.cluster import Device
from airflow_training.planning.view.plan import StrategyTable
from airflow_training.planning.view.program import Parameters, Program, ProgramPiece, Sharding

__all__ = ["candidates", "device", "piece", "program"]


def device(memory_bytes: float = 1e12, **values: Any) -> Device:
    """Return a device of which only the memory matters."""
    return Device(
        name="made up",
        memory_bytes=memory_bytes,
        memory_bandwidth=1e12,
        peak_flops={"bf16": 1e14},
        matmul_efficiency=1.0,
        **values,
    )


def piece(
    name: str,
    *,
    repeat: int = 1,
    elements: float = 10.0,
    saved: float = 100.0,
    working: float = 0.0,
    boundary: float = 0.0,
    shared_with: str = "",
) -> ProgramPiece:
    """Return a piece without work; it keeps half in selective mode and a tenth in full mode."""
    return ProgramPiece(
        name=name,
        repeat=repeat,
        work=(),
        parameters=(Parameters(elements=elements, shared_with=shared_with),),
        saved_bytes={"none": saved, "selective": saved / 2, "full": saved / 10},
        working_bytes=working,
        boundary_bytes=boundary,
    )


def program(*pieces: ProgramPiece) -> Program:
    return Program(name="by hand", sharding=Sharding(), pieces=pieces)


def candidates(**columns: Any) -> StrategyTable:
    """Return a table; a column that is not given holds 1 (or nothing) everywhere."""
    every: dict[str, Any] = {
        **dict.fromkeys(("tp", "pp", "dp", "cp", "ep", "virtual_stages", "micro_batch"), 1),
        **dict.fromkeys(("zero", "recompute", "overlap"), 0),
        "sequence_parallel": False,
        **columns,
    }
    arrays = np.broadcast_arrays(*(np.atleast_1d(column) for column in every.values()))
    return StrategyTable(**dict(zip(every, arrays, strict=True)))
