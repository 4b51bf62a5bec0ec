"""A small catalogue of causes, and logs that are written by hand."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from typing import Any

import numpy as np

from airflow_training.logs.diagnosis.catalogue import Catalogue, Cause
from airflow_training.logs.diagnosis.diagnose import diagnose
from airflow_training.logs.diagnosis.scanning import scan_logs
from airflow_training.logs.model import Diagnosis, FileScan, Origin, Series


def cause(cause_id: str, pattern: str = "", **details: Any) -> Cause:
    signature = {"name": "text", "pattern": pattern, "confidence": 0.9, "example": ""}
    signature |= {
        k: details.pop(k)
        for k in ("kind", "confidence", "survivable", "raised", "near", "unless")
        if k in details
    }
    return Cause.model_validate(
        {
            "id": cause_id,
            "meaning": cause_id,
            "category": "infrastructure",
            "retry": "yes",
            "advice": "none",
            "signatures": [signature] if pattern else [],
            **details,
        }
    )


CATALOGUE = Catalogue(
    [
        cause("cuda-out-of-memory", r"CUDA out of memory"),
        cause(
            "host-out-of-memory", r"oom-kill", facts=[{"reason": "OOMKilled", "confidence": 0.9}]
        ),
        cause("nccl-timeout", r"Watchdog caught collective operation timeout", kind="consequence"),
        cause("peer-connection-lost", r"Connection reset by peer", kind="consequence", generic=1),
        cause("dns-resolution-failure", r"could not resolve", survivable=True),
        cause("shape-mismatch", r"shapes cannot be multiplied"),
        cause("near-only", r"bus error", near={"pattern": "shm", "lines": 2}),
        cause("config-error", r"must be set", raised=True, confidence=0.6),
        cause("rendezvous-timeout", r"RendezvousClosedError", kind="consequence", confidence=0.5),
        cause("object-store-credentials", r"HTTP response code 403"),
        cause("checkpoint-corrupt", r"Unsuccessful TensorSliceReader"),
        cause("preempted", r"job is preempted", category="preemption"),
        cause("unschedulable", r"FailedScheduling"),
        cause("python-exception", generic=2),
        cause("collective-mismatch", generic=0, facts=[{"reason": "Mismatch", "confidence": 0.9}]),
        cause("hang", r"watchdog got stuck", kind="consequence", yieldsTo=["nccl-timeout"]),
        cause("unknown", r"exitcode: 1", generic=3, kind="consequence", confidence=0.6),
    ]
)


def log(text: str, *, rank: int | None = None, file: str = "a.log", steps: Any = ()) -> FileScan:
    """Return the scan of a text; `steps`: (line, step, time) of its losses."""
    with tempfile.NamedTemporaryFile() as written:
        written.write(text.encode())
        written.flush()
        (scan,) = scan_logs([(Origin(file=file, rank=rank), written.name)], CATALOGUE)
    lines, numbers, times = zip(*steps, strict=True) if steps else ((), (), ())
    series = Series(
        metric="loss",
        steps=np.array(numbers, dtype=float),
        values=np.ones(len(lines)),
        times=np.array(times, dtype=float),
        offsets=np.zeros(len(lines), dtype=np.int64),
        lines=np.array(lines, dtype=np.int64),
        total=len(lines),
    )
    return replace(scan, series=(series,) if steps else ())


def ask(*scans: FileScan, facts: Any = (), health: Any = ()) -> Diagnosis:
    return diagnose(scans, facts, health, catalogue=CATALOGUE)


def root(found: Diagnosis) -> tuple[str, int | None]:
    return found.causes[0].id, found.causes[0].line


TRACEBACK = """\
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    step()
"""

OOM = f"{TRACEBACK}torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"


def asked_of(catalogue: Catalogue, text: str) -> Diagnosis:
    with tempfile.NamedTemporaryFile() as written:
        written.write(text.encode())
        written.flush()
        scans = scan_logs([(Origin(file="a.log"), written.name)], catalogue)
    return diagnose(scans, catalogue=catalogue)
