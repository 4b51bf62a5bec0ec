"""How long a read of 64 KB takes, at any offset of a large log. `python -m benchmarks.logs_read [GB]`."""

from __future__ import annotations

import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from airflow_training.logs.reading.local import LocalFile

LIMIT = 64 << 10
READS = 2000


def read_milliseconds(path: Path, *, reads: int = READS, seed: int = 1) -> dict[str, float]:
    """Return median, p95 and maximum of reads at random offsets, in ms."""
    log = LocalFile(path)
    size = log.size()
    dice = random.Random(seed)
    taken = []
    for _ in range(reads):
        offset = dice.randrange(max(1, size - LIMIT))
        begin = time.perf_counter()
        part = log.read(offset, LIMIT)
        taken.append((time.perf_counter() - begin) * 1e3)
        assert len(part.data) == min(LIMIT, size - offset)
    log.close()
    taken.sort()
    return {
        "median": statistics.median(taken),
        "p95": taken[int(len(taken) * 0.95)],
        "max": taken[-1],
    }


def make_log(path: Path, *, gigabytes: float) -> None:
    """Write a log of so many GB (10^9 bytes)."""
    block = b"".join(
        b" iteration %8d/ 500000 | lm loss: %.6E |\n" % (step, 1 / (step + 1))
        for step in range(20_000)
    )
    left = int(gigabytes * 1e9)
    with path.open("wb") as file:
        while left > 0:
            left -= file.write(block[:left])
        file.flush()
        os.fsync(file.fileno())


def main() -> None:
    gigabytes = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.log"
        make_log(path, gigabytes=gigabytes)
        found = read_milliseconds(path)
    said = ", ".join(f"{name} {value:.3f} ms" for name, value in found.items())
    print(f"64 KB at any offset of {gigabytes:g} GB: {said}")


if __name__ == "__main__":
    main()
