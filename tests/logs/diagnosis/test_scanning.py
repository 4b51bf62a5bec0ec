"""Ends of logs: instances that fail together are diagnosed in threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from airflow_training.logs.diagnosis.catalogue import load
from airflow_training.logs.diagnosis.scanning import scan_ends
from airflow_training.logs.model import Origin
from airflow_training.logs.reading.memory import BytesLog

LINES = (
    b"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    b"OSError: [Errno 28] No space left on device",
    b"ModuleNotFoundError: No module named 'apex'",
    b"all is well",
)


def signatures_of(number: int) -> set[str]:
    line = LINES[number % len(LINES)]
    data = b"reading shard 5 of 9\n" * 2000 + line + b"\n"
    (found,) = scan_ends([(Origin(file="x"), BytesLog("x", data))], load())
    return {hit.signature.split("/")[0] for hit in found.hits if not hit.signature.startswith("_")}


def test_ends_in_many_threads_are_not_mixed_up():
    alone = [signatures_of(number) for number in range(len(LINES))]
    assert "cuda-out-of-memory" in alone[0]
    assert "disk-full" in alone[1]
    assert "cuda-out-of-memory" not in alone[1]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(signatures_of, range(64)))
    assert found == alone * 16
