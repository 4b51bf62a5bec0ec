"""The speed and memory of log insight, as ratios to ripgrep in the same run.

ripgrep counts lines with any of as many literals as there are signatures; we find the signatures and read all values.
The threads with `re` are what a person would write: one for each metric that the log holds, each opens the file, goes
over its lines with one expression and makes floats of what that finds; they read values only, and no signatures.
Measurements are medians of five (those without a target: of three), after the file was read into the page cache. `python -m benchmarks.logs [GB]`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from airflow_training.logs.diagnosis.catalogue import load
from airflow_training.logs.diagnosis.scanning import patterns
from airflow_training.logs.engine import Pattern, scan
from airflow_training.logs.metrics import formats
from airflow_training.logs.model import Origin
from benchmarks.logs_generate import write
from benchmarks.logs_read import read_milliseconds
from benchmarks.report import figure, heading, median

REPEATS = 5
DENSE, SPARSE = 3, 20
SLICE_BYTES = 32 << 20
"""Of the file, for the threads with `re`, whose time is then multiplied: the whole would take minutes."""
LARGE_GIGABYTES = (2.0, 10.0)
_NUMBER = r"([-+\d.eE]+)"
METRICS = {
    "step": r"iteration +(\d+)/",
    "total_steps": r"iteration +\d+/ *(\d+)",
    "epoch": rf"'epoch': {_NUMBER}",
    "loss": rf"loss'?: {_NUMBER}",
    "learning_rate": rf"learning[ _]rate'?: {_NUMBER}",
    "grad_norm": rf"grad[ _]norm'?: {_NUMBER}",
    "loss_scale": rf"loss scale: {_NUMBER}",
    "tflops_per_gpu": rf"throughput per GPU \(TFLOP/s/GPU\): {_NUMBER}",
    "step_time_seconds": rf"elapsed time per iteration \(ms\): {_NUMBER}",
    "consumed_samples": r"consumed samples: +(\d+)",
    "skipped_steps": r"number of skipped iterations: +(\d+)",
    "nan_steps": r"number of nan iterations: +(\d+)",
}
"""What a person would write for each metric of the generated logs; each begins with a fixed text, so that `re` is quick."""


def seconds(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """Return the median time of some runs."""
    taken = []
    for _ in range(repeats):
        begin = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begin)
    return median(taken)


def warm(path: Path) -> None:
    """Read a file into the page cache."""
    with path.open("rb", buffering=0) as file:
        buffer = bytearray(1 << 20)
        while file.readinto(buffer):
            pass


def ripgrep(path: Path, literals: Path) -> Callable[[], object]:
    command = ["rg", "-c", "-F", "-f", str(literals), str(path)]
    return lambda: subprocess.run(command, check=False, stdout=subprocess.DEVNULL)


def ours(path: Path, *, processes: int, metrics: bool = True) -> Callable[[], object]:
    signatures = patterns(load())
    wanted = formats() if metrics else None
    return lambda: scan(
        Origin(file=str(path)), path, signatures=signatures, formats=wanted, processes=processes
    )


def with_threads(path: Path) -> float:
    """Return how long one thread per metric takes, each reading the whole file line by line with its own expression."""

    def read(pattern: re.Pattern[str]) -> list[float]:
        with path.open(errors="replace") as file:
            return [float(found[1]) for line in file if (found := pattern.search(line))]

    compiled = [re.compile(pattern) for pattern in METRICS.values()]
    begin = time.perf_counter()
    with ThreadPoolExecutor(len(compiled)) as pool:
        list(pool.map(read, compiled))
    return time.perf_counter() - begin


def write_literals(signatures: Sequence[Pattern], path: Path) -> int:
    """Write one literal of each signature, the longest, and return how many there are."""
    literals = sorted({max(each.literals, key=len) for each in signatures})
    path.write_bytes(b"\n".join(literals) + b"\n")
    return len(literals)


class Memory:
    """The most memory that a process and its children had, sampled: pages of theirs, shared ones once and each time."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.proportional = 0
        self.resident = 0

    def sample(self) -> None:
        proportional = resident = 0
        for pid in _family(self.pid):
            try:
                text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            except OSError:
                continue
            found = dict(re.findall(r"^(Pss|Rss): +(\d+) kB", text, re.MULTILINE))
            proportional += int(found.get("Pss", 0))
            resident += int(found.get("Rss", 0))
        self.proportional = max(self.proportional, proportional)
        self.resident = max(self.resident, resident)


def _family(pid: int) -> Iterator[int]:
    yield pid
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return
    for child in children:
        yield from _family(int(child))


def peak_megabytes(path: Path, *, processes: int) -> tuple[float, float]:
    """Return the most memory of a scan in a process of its own: shared pages counted once, and for each process."""
    command = [sys.executable, "-m", "benchmarks.logs", "--scan", str(path), str(processes)]
    with subprocess.Popen(command) as process:
        memory = Memory(process.pid)
        while process.poll() is None:
            memory.sample()
            time.sleep(0.02)
    return memory.proportional / 1024, memory.resident / 1024


@contextmanager
def private_cache(folder: Path) -> Iterator[None]:
    """Keep indexes where they go with the benchmark."""
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["XDG_CACHE_HOME"]
        else:
            os.environ["XDG_CACHE_HOME"] = before


class Taken(NamedTuple):
    """Seconds of something that this process and its children did."""

    wall: float
    cpu: float


def looking_again(path: Path) -> tuple[Taken, Taken]:
    """Return what the first scan takes, and one after 1 % was appended."""
    signatures = patterns(load())
    size = path.stat().st_size

    def look() -> Taken:
        begin, used = time.perf_counter(), sum(os.times()[:4])
        scan(Origin(file=str(path)), path, signatures=signatures, formats=formats(), remember=True)
        return Taken(time.perf_counter() - begin, sum(os.times()[:4]) - used)

    firsts, agains = [], []
    with tempfile.TemporaryDirectory() as folder, private_cache(Path(folder)):
        look()
        with path.open("rb") as file:
            more = file.read(size // 100)
        more = more[: more.rfind(b"\n") + 1]
        for _ in range(3):
            for kept in Path(folder).glob("*/log-*"):
                kept.unlink()
            firsts.append(look())
            with path.open("ab") as growing:
                growing.write(more)
            agains.append(look())
            os.truncate(path, size)
    return _middle(firsts), _middle(agains)


def _middle(taken: Sequence[Taken]) -> Taken:
    return Taken(median([each.wall for each in taken]), median([each.cpu for each in taken]))


def main(gigabytes: float = 4.0) -> None:
    heading(f"Logs: ratios to ripgrep on {gigabytes:g} GB")
    if shutil.which("rg") is None:
        print(
            "rg is not installed: nothing to compare with (package `ripgrep`: apt install ripgrep)"
        )
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        literals = folder / "literals"
        signatures = patterns(load())
        count = write_literals(signatures, literals)
        note = f"{len(signatures)} signatures, {count} literals"
        size = int(gigabytes * 1e9)
        path = folder / "log"
        base = 0.0
        for kind, every, target in (("dense", DENSE, 1.25), ("sparse", SPARSE, 0.6)):
            write(path, size, every=every)
            warm(path)
            base = seconds(ripgrep(path, literals))
            figure(f"rg, {kind}", base, "s", note=note)
            two = seconds(ours(path, processes=2))
            figure(f"everything, {kind}, two processes", two / base, "rg", target=f"<= {target}")
            if every == DENSE:
                _dense_only(path, base, two)
        figure(
            "signatures only, two processes",
            seconds(ours(path, processes=2, metrics=False)) / base,
            "rg",
            target="<= 0.65",
        )
        figure(
            "signatures only, one process",
            seconds(ours(path, processes=1, metrics=False), 3) / base,
            "rg",
        )
        path.unlink()
        _large(folder / "large")


def _dense_only(path: Path, base: float, two: float) -> None:
    one = seconds(ours(path, processes=1), 3)
    figure("everything, dense, one process", one / base, "rg")
    figure("second process", one / two, "times faster", target=">= 1.85")
    threads = _threads_on_all(path)
    figure("a thread per metric with `re`", threads / two, "times slower", target=">= 40")
    first, again = looking_again(path)
    figure("again after 1 % was appended", 100 * again.wall / first.wall, "%", target="<= 2")
    figure("the same in CPU time", 100 * again.cpu / first.cpu, "%")


def _threads_on_all(path: Path) -> float:
    """Return how long the threads with `re` would take for a file, from a slice of it."""
    part = path.with_name("slice")
    with path.open("rb") as file:
        part.write_bytes(file.read(SLICE_BYTES))
    taken = with_threads(part) * path.stat().st_size / part.stat().st_size
    part.unlink()
    return taken


def _large(path: Path) -> None:
    for gigabytes in LARGE_GIGABYTES:
        write(path, int(gigabytes * 1e9), every=DENSE)
        own, resident = peak_megabytes(path, processes=2)
        figure(
            f"memory of all processes, {gigabytes:g} GB",
            own,
            "MB",
            target="<= 256",
            note=f"shared pages counted once; {resident:.0f} MB with each process's own count",
        )
    figure("64 KB at any offset, p95", read_milliseconds(path)["p95"], "ms", target="<= 1")


def _scan_only(path: str, processes: int) -> None:
    """Be the process whose memory is looked at."""
    ours(Path(path), processes=processes)()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--scan"]:
        _scan_only(sys.argv[2], int(sys.argv[3]))
    else:
        main(float(sys.argv[1]) if len(sys.argv) > 1 else 4.0)
