"""What a person waits for: the pages in Chromium, served by `airflow-training ui` and inside a real Airflow."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
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

from airflow_training.cli.airflow_stack import AirflowStack
from airflow_training.control.reports import ProgressReport
from airflow_training.documents.instances import InstanceKey
from airflow_training.settings import load_settings
from airflow_training.state.models import MetricRow, table_of
from airflow_training.state.store import RunRecord, Store
from benchmarks.pages import PAGES, Server, a_run, home
from benchmarks.report import figure, heading, median, quantile

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
]
ROUNDS = 20
REPORTS = 15
LINES_A_SECOND, FOLLOWED_LINES = 5_000, 600_000
"""In two minutes five times what a page keeps of a log: more is what an hour would add to it."""
LOGS, LOG_BYTES = 64, 100 << 20
JOB = """
apiVersion: airflow-training/v1
kind: TrainingJob
metadata: {name: watched}
spec:
  framework: custom
  command:
    - sh
    - -c
    - |
      while true; do
        step=$(( ${step:-0} + 1 ))
        echo '{"step": '$step', "metrics": {"loss": '$step'}}' >> $TRAINING_PROGRESS_FILE
        sleep 1
      done
  roles: [{name: worker}]
"""
SHOWN = """
([selector, text]) => [...document.querySelectorAll(selector)].some(
  each => each.textContent.startsWith(text) && each.checkVisibility()
)
"""
SPIKES, SPIKE_POINTS = 24, 10_000
COLOURED = """
canvas => {
  // what all other samples are lies at the bottom; lines of the grid are grey
  const {data} = canvas.getContext("2d").getImageData(0, canvas.height * 0.2, canvas.width, canvas.height * 0.3);
  for (let i = 0; i < data.length; i += 4) {
    const [red, green, blue] = data.slice(i, i + 3);
    if (data[i + 3] > 64 && Math.max(red, green, blue) - Math.min(red, green, blue) > 60) return true;
  }
  return false;
}
"""
FROM_CLICK = f"""
asked => {{
  const shown = {SHOWN.strip()};
  window.taken = new Promise(done => addEventListener("pointerdown", () => {{
    const began = performance.now();
    const look = () => requestAnimationFrame(
      () => shown(asked) ? requestAnimationFrame(() => done(performance.now() - began)) : look()
    );
    look();
  }}, {{capture: true, once: true}}));
}}
"""
TYPED_LINES, TYPED_KEYS = 9_000, 100
FROM_KEY = """
() => {
  window.keys = [];
  addEventListener("keydown", event => {
    // from when the key was pressed, which may be before the page had time for it
    const began = event.timeStamp;
    requestAnimationFrame(() => requestAnimationFrame(() => window.keys.push(performance.now() - began)));
  }, {capture: true});
}
"""


@contextmanager
def a_browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


def milliseconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


def told(what: str, taken: list[float], target: str) -> None:
    figure(f"{what}, median", median(taken), "ms")
    figure(f"{what}, p95", quantile(taken, 0.95), "ms", target=target)


def wait_shown(page: Any, selector: str, text: str = "") -> None:
    """Return when an element is shown; looks at every frame (locators wait up to 500 ms between looks)."""
    page.wait_for_function(SHOWN, arg=[selector, text], polling="raf")


def from_click(page: Any, what: Any, selector: str, text: str = "") -> float:
    """Click; return the milliseconds until an element was painted, as the page itself measures them."""
    page.evaluate(FROM_CLICK, [selector, text])
    what.click()
    return float(page.evaluate("window.taken"))


def points(store: Store, run: RunRecord, ranks: int, each: int) -> None:
    began = time.time() - each
    with store._db.write() as connection:  # as reports would, but at once
        for index in range(ranks):
            rows = [
                {"run": run.uid, "role": "worker", "index": index, "rank": -1, "name": "loss",
                 "at": began + step, "step": step, "value": 1 / (step + 1) + index / 1000}
                for step in range(each)
            ]  # fmt: skip
            connection.execute(insert(table_of(MetricRow)), rows)


def charts(store: Store, base: str, page: Any) -> None:
    for ranks, each, target in ((64, 10_000, "400 ms"), (1024, 1000, "700 ms")):
        run = a_run(store, f"charts-{ranks}", ranks)
        points(store, run, ranks, each)
        what = f"charts of {ranks:,} ranks with {each:,} points each"
        taken = []
        for _ in range(5):
            page.goto(f"{base}/runs/{run.uid}")
            tab = page.get_by_role("tab", name="Charts")
            tab.wait_for()
            page.wait_for_timeout(500)
            taken.append(from_click(page, tab, "figure canvas"))
        figure(f"{what}: drawn the first time", taken[0], "ms", note="the server reads all points")
        figure(f"{what}: drawn again", median(taken[1:]), "ms", target=target)
        page.evaluate(
            "window.longest = 0; new PerformanceObserver(list => {"
            " for (const each of list.getEntries()) window.longest = Math.max(window.longest, each.duration)"
            "}).observe({type: 'longtask'})"
        )
        # of a run that nobody drives, a page asks for no new points
        assert store.acquire(run.uid, owner="d/e/1/1/f", seconds=60, dead_owners=["a/b/1/1/c"])
        for step in range(each, each + 5):
            lines = {
                InstanceKey("worker", i): ProgressReport(step=step, metrics={"loss": 0.5})
                for i in range(ranks)
            }
            store.progress.save(run.uid, lines)
            with page.expect_response(re.compile(r"/series\?name=loss")):
                pass
        page.wait_for_timeout(1000)
        longest = float(page.evaluate("window.longest"))
        figure(f"{what}: longest task while points arrive", longest, "ms", target="200 ms",
               note="" if longest else "none of 50 ms or more")  # fmt: skip


def heat(store: Store, base: str, page: Any) -> None:
    """A million points as a picture of ranks and steps."""
    run = a_run(store, "heat", 1024)
    points(store, run, 1024, 1000)
    taken = []
    for _ in range(3):
        page.goto(f"{base}/runs/{run.uid}?tab=charts")
        button = page.locator("figure[data-metric=loss]").get_by_role("button", name="Heat map")
        button.wait_for()
        page.wait_for_timeout(500)
        taken.append(from_click(page, button, "figure[data-metric=loss] [role=img]"))
    figure("heat map of 1,024 ranks with 1,000 points each, worst of 3", max(taken), "ms")


def spikes(store: Store, base: str, page: Any) -> None:
    """Charts of series with one sample that stands out: those in which its line is drawn."""
    run = a_run(store, "spikes", 1)
    draw = np.random.default_rng(0)
    began = time.time() - SPIKE_POINTS
    with store._db.write() as connection:  # as reports would, but at once
        for number in range(SPIKES):
            values = draw.random(SPIKE_POINTS)
            values[draw.integers(SPIKE_POINTS)] = 50.0
            rows = [
                {"run": run.uid, "role": "worker", "index": 0, "rank": -1, "name": f"loss{number:02}",
                 "at": began + step, "step": step, "value": float(value)}
                for step, value in enumerate(values)
            ]  # fmt: skip
            connection.execute(insert(table_of(MetricRow)), rows)
    page.goto(f"{base}/runs/{run.uid}?tab=charts")
    drawn = 0
    for number in range(SPIKES):
        chart = page.locator(f"figure[data-metric=loss{number:02}]")
        chart.scroll_into_view_if_needed()
        canvas = chart.locator("canvas")
        canvas.wait_for()
        page.wait_for_timeout(300)
        drawn += bool(canvas.evaluate(COLOURED))
    what = f"charts of {SPIKES} random series of {SPIKE_POINTS:,} points: those that show the spike"
    figure(what, 100 * drawn / SPIKES, "%", target="100 %")


def tabs(store: Store, base: str, page: Any) -> None:
    run = a_run(store, "tabs", ranks=8)
    points(store, run, 8, 500)
    address = f"{base}/runs/{run.uid}"

    def visit() -> None:
        page.goto(address)
        wait_shown(page, "h2", "bench")

    taken = [milliseconds(visit) for _ in range(ROUNDS)]
    told("a run's page without Airflow, until its first content", taken, "700 ms")
    switched = []
    for _ in range(ROUNDS):
        for name in ("Charts", "Logs", "Checkpoints", "Configuration", "Overview"):
            tab = page.get_by_role("tab", name=name)
            panel = f"[role=tabpanel][aria-labelledby$={name.lower()}] > *"
            switched.append(from_click(page, tab, panel))
    told("another tab", switched, "300 ms")


def pixels(store: Store, server: Server, base: str, page: Any) -> None:
    """From a report to the text on a page, while 199 others are open on the same run."""
    run = a_run(store, "pixels", ranks=64)
    stop, ready = threading.Event(), threading.Event()

    async def follow(client: httpx.AsyncClient) -> None:
        url = f"{server.url}/dags/~/trainings/{run.uid}/live"
        async with client.stream("GET", url) as answer:
            async for _ in answer.aiter_bytes():
                if stop.is_set():
                    return

    async def others() -> None:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(headers=server.headers, timeout=None, limits=limits) as client:
            pages = [asyncio.create_task(follow(client)) for _ in range(PAGES - 1)]
            await asyncio.sleep(5)
            ready.set()
            await asyncio.gather(*pages, return_exceptions=True)

    thread = threading.Thread(target=asyncio.run, args=(others(),))
    thread.start()
    ready.wait()
    page.goto(f"{base}/runs/{run.uid}")
    page.get_by_role("row", name="worker-0").wait_for()
    taken = []
    for step in range(1001, 1001 + REPORTS):
        lines: dict[InstanceKey, ProgressReport] = {
            InstanceKey("worker", i): ProgressReport(step=step) for i in range(64)
        }
        store.progress.save(run.uid, lines)
        began = time.perf_counter()
        wait_shown(page, "td", f"{step:,}")
        taken.append((time.perf_counter() - began) * 1000)
        time.sleep(0.3 + step % 7 / 10)
    stop.set()
    store.progress.save(
        run.uid, {InstanceKey("worker", 0): ProgressReport(step=9000)}
    )  # so that all look up and go
    thread.join()
    told(f"a report of 64 ranks until it is on a page, {PAGES} pages open", taken, "1,500 ms")


def following(store: Store, base: str, page: Any) -> None:
    run = a_run(store, "followed", ranks=1)
    folder = load_settings().local_dir / run.uid / "worker-0" / "attempt-0.0.0"
    folder.mkdir(parents=True)
    log = folder / "log"
    log.write_text("begin\n")
    page.goto(f"{base}/runs/{run.uid}?tab=logs")
    page.get_by_role("log").get_by_text("begin").wait_for()
    devtools = page.context.new_cdp_session(page)
    devtools.send("Performance.enable")

    def heap() -> float:
        devtools.send("HeapProfiler.collectGarbage")
        metrics = devtools.send("Performance.getMetrics")["metrics"]
        return float(next(e["value"] for e in metrics if e["name"] == "JSHeapUsedSize")) / 2**20

    before, most = heap(), 0.0
    with log.open("a") as file:
        for number in range(0, FOLLOWED_LINES, LINES_A_SECOND):
            file.writelines(
                f"step {each}: loss 0.1234 accuracy 0.98\n"
                for each in range(number, number + LINES_A_SECOND)
            )
            file.flush()
            page.wait_for_timeout(1000)
            if number % (20 * LINES_A_SECOND) == 0:
                most = max(most, heap())
    page.get_by_text(f"step {FOLLOWED_LINES - 1}:").wait_for()
    what = f"{FOLLOWED_LINES:,} lines of a log followed"
    figure(f"{what}: heap of the browser", max(most, heap()), "MiB", target="100 MiB",
           note=f"{before:.0f} MiB before")  # fmt: skip


def search(store: Store, server: Server) -> None:
    run = a_run(store, "searched", ranks=LOGS)
    first = None
    for index in range(LOGS):
        folder = load_settings().local_dir / run.uid / f"worker-{index}" / "attempt-0.0.0"
        folder.mkdir(parents=True)
        if first is None:
            first = folder / "log"
            line = b"step 12345: loss 0.1234 accuracy 0.98 samples per second 1234.5\n"
            with first.open("wb") as log:
                for _ in range(LOG_BYTES // len(line) // 1000):
                    log.write(line * 1000)
                log.write(b"needle\n")
        else:
            os.link(first, folder / "log")
    url = f"{server.url}/dags/~/trainings/{run.uid}/log/search?pattern=needle"
    taken, ended = [], []
    for _ in range(5):
        began = time.perf_counter()
        with server.client.stream("GET", url) as answer:
            for text in answer.iter_lines():
                if "needle" in text:
                    taken.append((time.perf_counter() - began) * 1000)
                    break
        began = time.perf_counter()
        while True:
            used = server.cpu_seconds()
            time.sleep(0.1)
            if server.cpu_seconds() - used <= 0.02:
                break
        ended.append((time.perf_counter() - began) * 1000 - 100)
    what = f"search over {LOGS} logs of {LOG_BYTES >> 20} MiB, a hit at the end of each"
    figure(f"{what}: the first hit", median(taken), "ms", target="1,000 ms")
    figure(f"{what}: cancelled", median(ended), "ms", target="200 ms")


def in_airflow(browser: Any) -> None:
    with tempfile.TemporaryDirectory(prefix="pages-") as folder:
        (Path(folder) / "jobs").mkdir()
        (Path(folder) / "jobs" / "watched.yaml").write_text(JOB)
        with AirflowStack(home=Path(folder)) as stack:
            stack.migrate()
            stack.start()
            stack.wait_healthy()
            with stack.client() as client:
                stack.wait_dag(client, "watched")
                body: dict[str, Any] = {"logical_date": None, "conf": {}}
                answer = client.post("/dags/watched/dagRuns", json=body).raise_for_status()
                run_id = answer.json()["dag_run_id"]
                page = browser.new_page(base_url=stack.url)
                _watch(stack, page, run_id)
                page.get_by_role("button", name="Kill").click()
                page.get_by_role("dialog").get_by_role("button", name="Kill").click()
                page.get_by_text("stopped", exact=True).first.wait_for()


def _watch(stack: AirflowStack, page: Any, run_id: str) -> None:
    page.set_default_timeout(120_000)
    page.goto(f"/dags/watched/runs/{run_id}")
    link = page.get_by_role("link", name="Training", exact=True)
    steps = page.get_by_role("row", name="worker-0")
    tasks = page.get_by_role("link", name="Task Instances")
    link.click()
    steps.wait_for()
    address = page.url
    taken = []
    for _ in range(ROUNDS):
        tasks.click()
        steps.wait_for(state="detached")
        taken.append(from_click(page, link, "th", "worker-0"))
    told("tab Training of a DAG run in Airflow, from the click", taken, "700 ms")
    page.goto(address)
    steps.wait_for()
    taken = []
    for _ in range(3):
        stack.kill("api-server")
        before = steps.inner_text()
        stack.start("api-server")
        while True:
            try:
                httpx.get(f"{stack.url}/api/v2/version", timeout=1).raise_for_status()
                break
            except httpx.HTTPError:
                time.sleep(0.05)
        began = time.perf_counter()
        while re.sub(r"\D", "", steps.inner_text()) == re.sub(r"\D", "", before):
            page.wait_for_timeout(50)
        taken.append((time.perf_counter() - began) * 1000)
    figure("the page is right again after the API server was killed and answers, worst of 3",
           max(taken), "ms", target="10,000 ms")  # fmt: skip


def long_text(lines: int) -> str:
    """Return a job with a list of that many files."""
    files = "".join(f"      - part-{number:05}.csv\n" for number in range(lines))
    head = "apiVersion: airflow-training/v1\nkind: TrainingJob\nmetadata: {name: long}\n"
    spec = "spec:\n  framework: custom\n  command: [python, train.py]\n  roles: [{name: worker}]\n"
    return f"{head}{spec}  data:\n    uri: s3://data\n    files:\n{files}"


def typing(base: str, page: Any) -> None:
    """Type into the text of a long document, and into a field of its form."""
    page.goto(f"{base}/new")
    file = {"name": "long.yaml", "mimeType": "text/yaml", "buffer": long_text(TYPED_LINES).encode()}
    page.get_by_label("Job file").set_input_files(files=[file])
    page.get_by_text(f"of {TYPED_LINES} are shown").wait_for()
    page.evaluate(FROM_KEY)

    def taken(where: Any, *, pause: float) -> list[float]:
        where.focus()
        page.evaluate("window.keys = []")
        for number in range(TYPED_KEYS):
            page.keyboard.press("x" if number % 10 else "y")
            page.wait_for_timeout(pause)
        page.wait_for_function("most => window.keys.length >= most", arg=TYPED_KEYS)
        return [float(each) for each in page.evaluate("window.keys")]

    page.locator(".cm-content").focus()
    page.keyboard.press("Control+Home")
    page.keyboard.type("# ")
    text = f"a text of {TYPED_LINES:,} lines"
    told(f"{text}: a key in the editor until it is painted", taken(page.locator(".cm-content"), pause=100), "100 ms")  # fmt: skip
    told(f"{text}: a key in a field of the form until it is painted", taken(page.get_by_label("Name", exact=True), pause=100), "100 ms")  # fmt: skip


def main() -> None:
    heading("Pages: the browser")
    with a_browser() as browser:
        with home() as store:
            server = Server()
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            page.set_default_timeout(120_000)
            page.goto(server.address)
            base = server.address.partition("/?")[0]
            tabs(store, base, page)
            typing(base, page)
            charts(store, base, page)
            heat(store, base, page)
            spikes(store, base, page)
            pixels(store, server, base, page)
            following(store, base, page)
            search(store, server)
            server.kill()
        in_airflow(browser)
