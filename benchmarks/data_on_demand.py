"""Data on demand: what the hook costs, what is fetched, how soon it is there, how long a laptop's return takes."""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from airflow_training.agent.library import library_path
from airflow_training.agent.package import agent_program, portable_agent
from airflow_training.interception.protocol import PARAMETERS, hook_environment
from airflow_training.remote_data.roots import SharedRoots, share
from airflow_training.remote_data.server import start_server
from airflow_training.remote_data.source_address import http_address
from airflow_training.remote_data.starting import (
    RunningFetcher,
    instance_environment,
    start_fetcher,
)
from benchmarks.report import figure, heading, median

BYTES_PER_SECOND = 100e6 / 8
DELAY_SECONDS = 0.02
FILES = 400
FILE_BYTES = 100_000
LARGE_BYTES = 1 << 30

OPENS = """
import os, time
open("a").close()
best = 1e9
for _ in range(40):
    begin = time.process_time()
    for _ in range(5000): os.close(os.open("a", 0))
    best = min(best, (time.process_time() - begin) / 5000)
print(best)
"""

TRAINING = """
import os, time, numpy
from airflow_training.interception.hook import install
rows = numpy.random.default_rng(0).random((256, 512)).astype("float32")
weights = numpy.zeros((512, 64), "float32")
numpy.save("batch.npy", rows)
def train():
    global weights
    best = 1e9
    for _ in range(40):
        begin = time.process_time()
        for step in range(20):
            batch = numpy.load("batch.npy")
            for _ in range(4):
                weights -= 1e-3 * batch.T @ (numpy.tanh(batch @ weights) - 0.5)
        best = min(best, time.process_time() - begin)
    return best
train()
bare = train()
install({"TRAINING_LOADS_FILE": "loads.jsonl"})
print(train() / bare)
"""

READING = """
import json, sys, time
names = json.loads(sys.argv[1]); pause = float(sys.argv[2])
begin = time.perf_counter(); waited = 0.0; first = 0.0
for epoch in range(int(sys.argv[3])):
    for name in names:
        t = time.perf_counter()
        with open("data/" + name, "rb") as file: file.read()
        waited += time.perf_counter() - t
        first = first or time.perf_counter() - begin
        time.sleep(pause)
print(json.dumps([first, waited, time.perf_counter() - begin]))
"""

RANDOM_READING = """
import json, random, sys, time
size, record, count = map(int, sys.argv[1:])
places = random.Random(3).sample(range(size // record), count)
begin = time.perf_counter()
with open("data/large.bin", "rb") as file:
    for place in places:
        file.seek(place * record)
        assert len(file.read(record)) == record
ends = [(place * record // 262144, (place * record + record - 1) // 262144) for place in places]
ranges = {part for first, last in ends for part in range(first, last + 1)}
print(json.dumps([time.perf_counter() - begin, len(ranges) * 262144]))
"""

WORKERS = """
import multiprocessing, os
def work(number):
    for name in sorted(os.listdir("data")):
        with open("data/" + name, "rb") as file: file.read()
if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(8) as pool: pool.map(work, range(8), chunksize=1)
"""


def run(script: str, folder: Path, environment: Mapping[str, str], *args: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", script, *args],
        cwd=folder,
        env={**os.environ, **environment},
        check=True,
        capture_output=True,
        text=True,
    ).stdout


class SlowRoots(SharedRoots):
    """Answers as by a line of 100 Mbit/s and 20 ms."""

    line = threading.Lock()

    def digests(self, root: str, path: str, part: int | None = None) -> Any:
        time.sleep(DELAY_SECONDS)
        return super().digests(root, path, part)

    def chunk(self, root: str, path: str, index: int, part: int | None = None) -> bytes:
        data = super().chunk(root, path, index, part)
        time.sleep(DELAY_SECONDS)
        with self.line:
            time.sleep(len(data) / BYTES_PER_SECOND)
        return data


@contextlib.contextmanager
def node(folder: Path, laptop: Path, *, slow: bool = False) -> Iterator[RunningFetcher]:
    shared = share([laptop])
    if slow:
        shared = SlowRoots(shared.manifest)
    server = start_server(shared)
    fetcher = start_fetcher(
        shared.manifest,
        places={"data0": folder / "data"},
        state=folder / "state",
        source=http_address(server.url, server.token),
        cache=str(folder / "cache"),
    )
    try:
        yield fetcher
    finally:
        fetcher.finish()
        server.close()


def told(fetcher: RunningFetcher) -> Mapping[str, str]:
    return instance_environment(fetcher, python_path=os.environ.get("PYTHONPATH", ""))


def measure_hook(folder: Path) -> None:
    (folder / "a").touch()
    hook = hook_environment(
        loads_file=str(folder / "loads.jsonl"), code_roots=[str(folder)],
        python_path=os.environ.get("PYTHONPATH", ""),
    )  # fmt: skip
    pairs = [(float(run(OPENS, folder, {})), float(run(OPENS, folder, hook))) for _ in range(3)]
    bare, hooked = (min(each) for each in zip(*pairs, strict=True))
    figure("one open more, the path known", (hooked - bare) * 1e6, "us", target="at most 1 us")
    shares = [float(run(TRAINING, folder, {"OPENBLAS_NUM_THREADS": "1"})) for _ in range(3)]
    figure("CPU of a training loop", (median(shares) - 1) * 100, "%", target="at most 0.5 % more")
    measure_starts(folder, hook)


def measure_starts(folder: Path, hook: Mapping[str, str]) -> None:
    """CPU of the starts of Python processes, in turn."""
    sources = folder / "sources.pyz"
    sources.write_bytes(portable_agent())
    progress = {PARAMETERS: "tell", "TRAINING_PROGRESS_FILE": str(folder / "progress.jsonl")}
    cases: dict[str, Mapping[str, str]] = {"": {"PYTHONPATH": ""}, "that says what is opened": hook}
    for name, program in (("byte code", agent_program(folder)), ("sources", sources)):
        path = {"PYTHONPATH": library_path(str(program), progress)}
        cases[f"for parameters, from an agent of {name}"] = {**progress, **path}
    for script in ("pass", "import argparse"):
        times = [[_start_seconds(script, each) for each in cases.values()] for _ in range(40)]
        figure(f"start of Python, `{script}`", median([each[0] for each in times]) * 1e3, "ms")
        for number, name in enumerate(cases):
            more = median([each[number] - each[0] for each in times]) * 1e3
            if number:
                figure(f"more by the hook {name}", more, "ms", target="at most 20 ms")


def _start_seconds(script: str, environment: Mapping[str, str]) -> float:
    words = [sys.executable, "-c", script]
    pid = os.posix_spawn(sys.executable, words, {**os.environ, **environment})
    used = os.wait4(pid, 0)[2]
    return used.ru_utime + used.ru_stime


def measure_fetching(folder: Path, laptop: Path) -> None:
    names = sorted(each.name for each in laptop.iterdir())
    with node(folder / "touched", laptop) as fetcher:
        some = random.Random(1).sample(names, 80)
        run(READING, folder / "touched", told(fetcher), json.dumps(some), "0", "1")
        ratio = fetcher.counts()["source_bytes"] / (len(some) * FILE_BYTES)
        figure("fetched to touched, 80 of 400 files in random order", ratio, "", target="1.00")
    with node(folder / "workers", laptop) as fetcher:
        run(WORKERS, folder / "workers", told(fetcher))
        counts = fetcher.counts()
        figure("chunks fetched, 8 workers read all of 400 files", counts["source_chunks"], "", target="400")  # fmt: skip
    with node(folder / "slow", laptop, slow=True) as fetcher:
        pause = 2 * FILE_BYTES / BYTES_PER_SECOND
        out = run(READING, folder / "slow", told(fetcher), json.dumps(names), str(pause), "1")
        first, waited, whole = json.loads(out)
        figure("first file after the script's start, 100 Mbit/s and 20 ms", first, "s", target="at most 2 s")  # fmt: skip
        figure("waiting, the line twice as fast as the script", 100 * waited / whole, "%", target="at most 5 %")  # fmt: skip
        before = fetcher.counts()["source_bytes"]
        run(READING, folder / "slow", told(fetcher), json.dumps(names), "0", "1")
        figure("bytes of a second epoch", fetcher.counts()["source_bytes"] - before, "", target="0")
    with node(folder / "order", laptop, slow=True) as fetcher:
        shuffled = random.Random(2).sample(names, len(names))
        fetcher.expect([f"{folder}/order/data/{name}" for name in shuffled])
        out = run(READING, folder / "order", told(fetcher), json.dumps(shuffled), str(pause), "1")
        first, waited, whole = json.loads(out)
        figure("the same in a random order that was told", 100 * waited / whole, "%", target="at most 5 %")  # fmt: skip


def measure_ranges(folder: Path) -> None:
    """One percent of a file of 1 GB, read at random; of small records each brings its range of 256 KiB."""
    laptop = folder / "laptop"
    laptop.mkdir(parents=True)
    with (laptop / "large.bin").open("wb") as file:
        for _ in range(LARGE_BYTES >> 20):
            file.write(os.urandom(1 << 20))
    for record, slow in ((256 << 10, False), (1 << 20, False), (4 << 10, False), (256 << 10, True)):
        count = LARGE_BYTES // 100 // record if record > 4 << 10 else 40
        place = folder / f"{record}-{slow}"
        with node(place, laptop, slow=slow) as fetcher:
            words = (str(LARGE_BYTES), str(record), str(count))
            seconds, touched = json.loads(run(RANDOM_READING, place, told(fetcher), *words))
            fetched = fetcher.counts()["source_bytes"]
            if slow:
                figure(f"{count} of them by 100 Mbit/s and 20 ms", seconds, "s")
                continue
            name = f"{count} random records of {record >> 10} KiB of 1 GB"
            figure(
                f"{name}: fetched to touched ranges", fetched / touched, "", target="at most 1.05"
            )
            figure(f"{name}: fetched to bytes read", fetched / (count * record), "")


def measure_return(folder: Path, laptop: Path) -> None:
    shared = share([laptop])
    server = start_server(shared)
    port, token = int(server.url.rpartition(":")[2]), server.token
    fetcher = start_fetcher(
        shared.manifest,
        places={"data0": folder / "data"},
        state=folder / "state",
        source=http_address(server.url, token),
        cache=str(folder / "cache"),
    )
    names = sorted(each.name for each in laptop.iterdir())
    seconds = []
    for name in names[:5]:
        server.close()
        reader = subprocess.Popen(
            [sys.executable, "-c", f"open('data/{name}').close()"],
            cwd=folder,
            env={**os.environ, **told(fetcher)},
        )
        time.sleep(6)
        server = start_server(shared, port=port, token=token)
        begin = time.perf_counter()
        reader.wait()
        seconds.append(time.perf_counter() - begin)
    figure("goes on after the laptop's return, the slowest of 5", max(seconds), "s", target="at most 5 s")  # fmt: skip
    fetcher.finish()
    server.close()


def main() -> None:
    heading("Data on demand")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        laptop = folder / "laptop"
        laptop.mkdir()
        dice = random.Random(0)
        for number in range(FILES):
            (laptop / f"{number:04}.bin").write_bytes(dice.randbytes(FILE_BYTES))
        measure_hook(folder)
        measure_fetching(folder, laptop)
        measure_return(folder / "away", laptop)
        measure_ranges(folder / "ranges")
