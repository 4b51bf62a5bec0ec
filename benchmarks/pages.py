"""What answers the pages: `airflow-training ui` as a process, asked by its API over a store of its own."""

from __future__ import annotations

import asyncio
import gzip
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from sqlalchemy import insert

from airflow_training.admission.launch import launch
from airflow_training.control.model import ActivePhase, InstanceEntry, Ledger, RoleEntry
from airflow_training.control.reports import ProgressReport
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import ResolvedJob, ResolvedRole, RunKey
from airflow_training.settings import load_settings
from airflow_training.state.models import MetricRow, table_of
from airflow_training.state.store import RunRecord, Store, open_store
from airflow_training.web.reduction import kept_points
from airflow_training.web.series import SeriesMemory
from airflow_training.web.static_files import FOLDER
from benchmarks.report import figure, heading, median, quantile

RANKS, POINTS = 64, 10_000
PAGES = 200
REPORTS = 15
TRIALS = 200
LOG_BYTES = 100 << 30
SERIES = 1000
HELD_BYTES = 16 << 20

PLUGIN = """
import os, time, airflow.plugins_manager, airflow.sdk.configuration
from airflow.sdk import BaseOperatorLink
from pathlib import Path
def used(): return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
before, began = used(), time.perf_counter()
import airflow_training.plugin
print(time.perf_counter() - began, used() - before)
"""


class Server:
    """`airflow-training ui` as a process, and a client that has its token."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "airflow_training.cli", "ui", "--no-browser"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        address = httpx.URL(self.address)
        self.url = str(address.copy_with(path="/training/api", query=None))
        self.headers = {"Authorization": f"Bearer {address.params['token']}"}
        self.client = httpx.Client(headers=self.headers, timeout=120)
        self.client.get(f"{self.url}/me").raise_for_status()

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.client.close()


@contextmanager
def home() -> Iterator[Store]:
    """Give the store of a new Airflow home, which child processes have too."""
    with tempfile.TemporaryDirectory(prefix="pages-") as folder:
        os.environ["AIRFLOW_HOME"] = folder
        yield open_store()


def a_run(store: Store, name: str, ranks: int = RANKS) -> RunRecord:
    """Add a run whose instances run, though nobody drives it."""
    job = ResolvedJob(name="bench", roles=(ResolvedRole(name="worker", replicas=ranks),))
    record = launch(
        job, key=RunKey(source="cli", run_id=name), store=store, controller="bench", activate_all=True
    )  # fmt: skip
    lease = store.acquire(record.uid, owner="a/b/1/1/c")
    assert lease is not None
    old = store.ledger(record.uid)
    now = time.time()
    entries = [
        InstanceEntry(
            key=InstanceKey("worker", index), phase=ActivePhase(), state="running", started_at=now
        )
        for index in range(ranks)
    ]
    new = Ledger(
        job=old.job,
        roles={"worker": RoleEntry(role="worker", replicas=ranks)},
        instances={each.key: each for each in entries},
    )
    store.commit(record.uid, lease=lease, old=old, new=new, events=())
    return record


def seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def charts(store: Store) -> None:
    values = np.random.default_rng(0).random(10_000_000)
    best = min(seconds(lambda: kept_points(values, 2000)) for _ in range(3))
    figure("10 million points reduced to 2,000", best * 1000, "ms", target="300 ms")
    run = a_run(store, "charts")
    with store._db.write() as connection:  # as reports would, but at once
        for index in range(RANKS):
            rows = [
                {"run": run.uid, "role": "worker", "index": index, "rank": -1, "name": "loss",
                 "at": float(step), "step": step, "value": 1 / (step + 1)}
                for step in range(POINTS)
            ]  # fmt: skip
            connection.execute(insert(table_of(MetricRow)), rows)
    memory, newest = SeriesMemory(store), store.metrics.newest_points(run.uid)
    what = f"series of {RANKS} ranks x {POINTS:,} points read"
    figure(f"{what}, the first time", seconds(lambda: memory.of(run.uid, newest)) * 1000, "ms")
    figure(f"{what}, again", seconds(lambda: memory.of(run.uid, newest)) * 1000, "ms")


def logs(store: Store, server: Server) -> None:
    run = a_run(store, "logs", ranks=1)
    folder = load_settings().local_dir / run.uid / "worker-0" / "attempt-0.0.0"
    folder.mkdir(parents=True)
    line = b"step 12345: loss 0.1234\n"
    with (folder / "log").open("wb") as log:
        log.write(line * 20_000)
        log.truncate(LOG_BYTES)
        log.seek(LOG_BYTES)
        log.write(b"\n" + line * 20_000)
    url = f"{server.url}/dags/~/trainings/{run.uid}/log?role=worker&index=0"
    for name, offset, target in (
        ("first page", 0, "300 ms"),
        ("its end", -65_536, "500 ms"),
        ("from byte 50,000,000,000", 50_000_000_000, "500 ms"),
    ):
        taken = []
        for _ in range(5):
            began = time.perf_counter()
            answer = server.client.get(f"{url}&offset={offset}&size=65536")
            answer.raise_for_status()
            assert answer.json()["text"], name
            taken.append(time.perf_counter() - began)
        figure(f"log of 100 GB: {name}", median(taken) * 1000, "ms", target=target)


def lines(store: Store, server: Server) -> None:
    """Line n of 100 GB: what counting up to it costs once, and what going there costs from then on."""
    run = a_run(store, "lines", ranks=1)
    folder = load_settings().local_dir / run.uid / "worker-0" / "attempt-0.0.0"
    folder.mkdir(parents=True)
    block, every = b"step 12345: loss 0.1234\n" * 20_000, LOG_BYTES // 100
    with (folder / "log").open("wb") as log:
        for place in range(0, LOG_BYTES, every):
            log.seek(place)  # what lies between is read as one very long line
            log.write(block)
    url = f"{server.url}/dags/~/trainings/{run.uid}/log/line?role=worker&index=0"
    wanted = 20_000 * 100 - 5  # near the end
    began = time.perf_counter()
    while server.client.get(f"{url}&number={wanted}").raise_for_status().json()["offset"] is None:
        pass
    took = time.perf_counter() - began
    figure(
        "log of 100 GB: lines counted, once", took, "s", note=f"{LOG_BYTES / took / 1e9:.1f} GB/s"
    )
    dice = random.Random(0)
    taken = []
    for _ in range(20):
        number = dice.randrange(1, wanted)
        began = time.perf_counter()
        place = server.client.get(f"{url}&number={number}").raise_for_status().json()["offset"]
        page = f"{url.removesuffix('/line?role=worker&index=0')}?role=worker&index=0"
        answer = server.client.get(f"{page}&offset={place}&size=65536").raise_for_status()
        assert answer.json()["text"].startswith("step"), number
        taken.append(time.perf_counter() - began)
    figure("log of 100 GB: line n and its page, once counted, worst of 20", max(taken) * 1000, "ms",
           target="500 ms")  # fmt: skip


def spikes() -> None:
    """Series of any length, each with one sample that stands out: those in which it is still there."""
    draw = np.random.default_rng(0)
    kept = 0
    for _ in range(SERIES):
        values = draw.random(int(draw.integers(10, 200_000)))
        at = int(draw.integers(len(values)))
        values[at] = draw.choice([7.0, -7.0])
        kept += at in kept_points(values, 2000)
    what = f"{SERIES:,} random series reduced to 2,000 points: spikes of one sample that are kept"
    figure(what, 100 * kept / SERIES, "%", target="100 %")


def memory(store: Store, server: Server) -> None:
    """What the server holds more than before, at most, while it answers one request after the other."""
    run = a_run(store, "held", ranks=8)
    line = b"2026-11-26 12:00:00 step 12345: loss 0.1234 accuracy 0.98\n"
    for index in range(8):
        folder = load_settings().local_dir / run.uid / f"worker-{index}" / "attempt-0.0.0"
        folder.mkdir(parents=True)
        (folder / "log").write_bytes(line * (HELD_BYTES // len(line)))
    base = f"{server.url}/dags/~/trainings/{run.uid}/log"
    draw = random.Random(0)

    def requests(count: int) -> Iterator[str]:
        for number in range(count):
            offset = draw.randrange(HELD_BYTES)
            if number % 20 == 0:
                yield f"{base}/search?pattern=needle"
            elif number % 4 == 0:
                yield f"{base}/lines"
            else:
                yield f"{base}?role=worker&index={number % 8}&offset={offset}&size={1 << 20}"

    for each in requests(40):  # what is imported and kept for good
        server.client.get(each).raise_for_status()
    process = Path(f"/proc/{server.process.pid}")
    (process / "clear_refs").write_text("5")  # the peak begins anew
    before = _held(process, "VmRSS")
    for each in requests(200):
        server.client.get(each).raise_for_status()
    grown = (_held(process, "VmHWM") - before) / 1024
    figure(
        "200 requests for logs, merged logs and searches: memory at its peak",
        grown,
        "MiB",
        target="4 MiB",
    )


def _held(process: Path, name: str) -> int:
    """Return a number of `/proc/PID/status`, in KiB."""
    for line in (process / "status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise LookupError(name)


def sizes() -> None:
    """What a browser loads, compressed as the server does it."""
    loaded = {
        path.name: len(gzip.compress(path.read_bytes(), mtime=0))
        for path in FOLDER.glob("*.js")
        if not path.name.startswith("shell.")  # Airflow has those libraries itself
    }
    entry = sum(size for name, size in loaded.items() if name.startswith("pages."))
    figure("entry of the pages, compressed", entry / 1024, "KiB", target="90 KiB")
    figure("all of the pages, compressed", sum(loaded.values()) / 1024, "KiB", target="350 KiB")


async def followers(store: Store, server: Server) -> None:
    run = a_run(store, "live")
    arrived: dict[int, list[float]] = {}
    ready = asyncio.Event()
    open_pages = 0

    async def page(client: httpx.AsyncClient) -> None:
        nonlocal open_pages
        url = f"{server.url}/dags/~/trainings/{run.uid}/live"
        async with client.stream("GET", url) as answer:
            open_pages += 1
            if open_pages == PAGES:
                ready.set()
            async for text in answer.aiter_lines():
                step = text.partition('"progress":{"step":')[2].partition(",")[0]
                if text.startswith("data: ") and step.isdigit():
                    arrived.setdefault(int(step), []).append(time.perf_counter())

    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(headers=server.headers, timeout=None, limits=limits) as client:
        pages = [asyncio.create_task(page(client)) for _ in range(PAGES)]
        await ready.wait()
        reported: dict[int, float] = {}
        before, began = server.cpu_seconds(), time.perf_counter()
        dice = random.Random(0)
        for step in range(1, REPORTS + 1):
            lines = {
                InstanceKey("worker", index): ProgressReport(step=step) for index in range(RANKS)
            }
            await asyncio.to_thread(store.progress.save, run.uid, lines)
            reported[step] = time.perf_counter()
            await asyncio.sleep(1.2 + dice.random())
        share = (server.cpu_seconds() - before) / (time.perf_counter() - began)
        for each in pages:
            each.cancel()
        await asyncio.gather(*pages, return_exceptions=True)
    late = [at - reported[step] for step, times in arrived.items() for at in times]
    assert len(late) >= PAGES * REPORTS * 0.99
    what = f"a report of {RANKS} ranks in {PAGES} open pages"
    figure(f"{what}, median", median(late) * 1000, "ms")
    figure(f"{what}, p95", quantile(late, 0.95) * 1000, "ms", target="1,500 ms to the pixel")
    figure(f"{PAGES} open pages on one run", share * 100, "% of a core", target="5 %")


def buttons(store: Store) -> None:
    run = a_run(store, "buttons", ranks=1)
    dice = random.Random(1)
    server = Server()
    killed = 0
    for trial in range(TRIALS):
        seen = store.overviews([run.uid])[run.uid].mark
        body = {"action": "pause", "seen": f"{seen.epoch}.{seen.request}"}

        def click(user: int, server: Server = server, body: Any = body, trial: int = trial) -> None:
            headers = {"Idempotency-Key": f"{trial}-{user}"}
            url = f"{server.url}/dags/~/trainings/{run.uid}/actions"
            try:
                server.client.post(url, json=body, headers=headers)
            except httpx.HTTPError:
                return

        # two users, each of whom clicks twice
        clicks = [threading.Thread(target=click, args=(user,)) for user in (0, 0, 1, 1)]
        for each in clicks:
            each.start()
        if trial % 20 == 19:
            time.sleep(dice.random() * 0.02)
            server.kill()
            killed += 1
            for each in clicks:
                each.join()
            server = Server()
            click(0, server)
        for each in clicks:
            each.join()
    server.kill()
    done = sum(each.kind == "pause" for each in store.requests(run.uid))
    figure(
        f"actions of {TRIALS} buttons, each pressed twice by two users, {killed} times in a server that is killed",
        done,
        "",
        target=f"{TRIALS}",
    )


def plugin() -> None:
    found = [
        subprocess.run(
            [sys.executable, "-c", PLUGIN], check=True, capture_output=True, text=True
        ).stdout.split()[-2:]
        for _ in range(5)
    ]
    figure(
        "import of the plugin", median([float(s) for s, _ in found]) * 1000, "ms", target="50 ms"
    )
    grown = median([int(b) for _, b in found]) / 2**20
    figure("memory of the plugin before the first request", grown, "MiB", target="15 MiB")


def main() -> None:
    heading("Pages: the server")
    with home() as store:
        charts(store)
        spikes()
        server = Server()
        logs(store, server)
        lines(store, server)
        memory(store, server)
        asyncio.run(followers(store, server))
        server.kill()
        buttons(store)
    plugin()
    sizes()
