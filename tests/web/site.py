"""`airflow-training ui` over the store of real runs, and a browser that looks at it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.waiting import PATIENCE

CHROMIUM = next(
    (path for path in map(Path, ("/usr/bin/chromium", "/usr/bin/google-chrome")) if path.exists()),
    None,
)
AXE = Path(__file__).parents[2] / "airflow_training/web/pages/node_modules/axe-core/axe.min.js"
FLAGS = [
    "--no-sandbox",  # CI is root in a container
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-sync",
    "--no-first-run",
]

SCRIPT = r"""
import json, math, os, struct, sys, time, zlib
from pathlib import Path

def picture(step):
    # a PNG of rings that grow with the steps
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    def pixel(x, y):
        value = (1 + math.sin(math.hypot(x - 160, y - 60) * 2 / step)) / 2
        return bytes((int(40 + 180 * value), int(80 + 60 * value), int(200 - 120 * value)))

    rows = b"".join(b"\0" + b"".join(pixel(x, y) for x in range(320)) for y in range(120))
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 320, 120, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")

rank, last = int(os.environ["TRAINING_RANK"]), int(sys.argv[1])
for step in range(1, last + 1):
    line = {"step": step, "total_steps": last, "metrics": {"loss": 1 / step + rank}, "time": time.time()}
    line["samples"] = step * (64 - 4 * rank)
    line["files"] = [{"name": f"part-{rank}-<b>0</b>.npz", "read": min(640, 64 * step), "total": 640}]
    line["files"] += [{"name": f"part-{rank}-1.npz", "read": 64 * (step - 10), "total": 6400}] * (step > 10)
    with Path(os.environ["TRAINING_PROGRESS_FILE"]).open("a") as file:
        file.write(json.dumps(line) + "\n")
    if rank == 0 and step % 5 == 0 and step <= 20:
        folder = Path(os.environ["TRAINING_PREDICTIONS_DIR"])
        drawn = [(i % 10, i % 10 if i % 23 < step else i * i % 10) for i in range(400)]
        rows = [f"{label},{prediction},<b>{i}</b>" for i, (label, prediction) in enumerate(drawn)]
        (folder / ".step.tmp").write_text("\n".join(["label,prediction,id", *rows]))
        (folder / ".step.tmp").rename(folder / f"step-{step:06}.csv")
        amounts = [{"label": i / 100, "prediction": i / 100 + (21 - step) * (i % 7 - 3) / 60} for i in range(300)]
        (folder / f"step-{step:06}.values.jsonl").write_text("\n".join(map(json.dumps, amounts)))
        (folder / f"step-{step:06}.png").write_bytes(picture(step))
    print(f"step {step} \x1b[32mgreen\x1b[0m <b>not bold</b>", flush=True)
    time.sleep(0.05)
if "break" in sys.argv:
    raise ValueError("<img src=x onerror=alert(1)> is no learning rate")
"""
JOB = """
apiVersion: airflow-training/v1
kind: TrainingJob
metadata: {{name: {name}}}
spec:
  framework: custom
  command: [python, train.py, "{steps}", {more}]
  restart: {{maxRestarts: 0}}
  roles:
    - {{name: master}}
    - {{name: worker, replicas: 2, dependsOn: [{{role: master}}]}}
"""
PLAN = """
  plan:
    model: {hidden: 4096, layers: 24, heads: 32, seq: 2048, vocab: 51200}
    cluster: {name: one, nodes: [{count: 1, device: A100-SXM4-80GB, devices_per_node: 3}]}
    globalBatch: 48
    constraints: {pp: 3, recompute: none}
    apply: []
"""
"""Shown alone: three processes that count are no such training."""

SAVING = """
from airflow_training.checkpoints import restore, save

state = restore() or {"step": 0}
print("goes on after step", state["step"], flush=True)
for step in range(state["step"] + 1, 31):
    if step % 10 == 0:
        save({"step": step, "weights": bytes(50_000)}, step=step)
"""
SAVED_JOB = """
apiVersion: airflow-training/v1
kind: TrainingJob
metadata: {name: saved}
spec:
  framework: custom
  command: [python, save.py]
  checkpoint: {uri: checkpoints}
  roles: [{name: worker}]
"""


@dataclass
class Site:
    """A running `airflow-training ui`, and a browser."""

    address: str
    """With the token."""
    uids: dict[str, str]
    browser: Any

    @property
    def base(self) -> str:
        return self.address.partition("/?")[0]

    @contextlib.contextmanager
    def page(
        self, *, width: int = 1440, height: int = 900, dark: bool = False, refused: str = "never"
    ) -> Iterator[Any]:
        """Give a page that has the cookie; afterwards nothing may have gone wrong in it.

        `refused`: what is in the browser's words for a request that the test means to fail.
        """
        scheme = "dark" if dark else "light"
        context = self.browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, accept_downloads=True
        )
        problems: list[str] = []
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on(
            "console",
            lambda each: problems.extend(
                [each.text] * (each.type == "error" and refused not in each.text)
            ),
        )
        page.on("pageerror", lambda each: problems.append(str(each)))
        page.on("dialog", lambda each: problems.append(f"a dialog: {each.message}"))
        page.goto(self.address)
        try:
            yield page
            assert problems == []
        finally:
            page.unroute_all(behavior="ignoreErrors")  # what a page asks for as it is closed
            context.close()

    def open(self, page: Any, run: str, tab: str = "overview") -> None:
        page.goto(f"{self.base}/runs/{self.uids[run]}?tab={tab}")
        page.get_by_role("heading", name=run, exact=True).wait_for()


JOBS = {
    "done": JOB.format(name="done", steps=20, more="") + PLAN,
    "broken": JOB.format(name="broken", steps=5, more="break"),
    "saved": SAVED_JOB,
    "living": JOB.format(name="living", steps=100_000, more=""),
}
LASTING = "living"
"""The one that is not waited for."""
SCRIPTS = {"train.py": SCRIPT, "save.py": SAVING}


@contextlib.contextmanager
def serve(
    folder: Path,
    jobs: Mapping[str, str] = JOBS,
    scripts: Mapping[str, str] = SCRIPTS,
    prepare: Callable[[Path], None] = lambda _: None,
) -> Iterator[Site]:
    """Run jobs to their ends but for `living`, which goes on, and serve their pages; `prepare`: done before that."""
    from playwright.sync_api import sync_playwright

    for name, text in scripts.items():
        (folder / name).write_text(text)
    environment = {**os.environ, "AIRFLOW_HOME": str(folder)}
    command = [sys.executable, "-m", "airflow_training.cli"]
    running: dict[str, subprocess.Popen[Any]] = {}
    for name, document in jobs.items():
        (folder / f"{name}.yaml").write_text(document)
        running[name] = subprocess.Popen(
            [*command, "run", f"{name}.yaml", "--run-id", name],
            cwd=folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    for name, process in running.items():
        if name != LASTING:
            process.wait(timeout=PATIENCE)
    prepare(folder)
    server = subprocess.Popen(
        [*command, "ui", "--no-browser"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    running["the server"] = server
    assert server.stdout is not None
    try:
        address = next(
            found.group() for line in server.stdout if (found := re.search(r"http://\S+", line))
        )
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
            yield Site(address, _uids(folder), browser)
            browser.close()
    finally:
        for process in running.values():
            process.send_signal(signal.SIGINT)
        for process in running.values():
            process.wait(timeout=PATIENCE)
        server.stdout.close()


def _uids(folder: Path) -> dict[str, str]:
    from airflow_training.state.store import Store

    store = Store(f"sqlite:///{folder / 'airflow_training.db'}")
    try:
        return {each.key.run_id: each.uid for each in store.runs(limit=10)}
    finally:
        store.close()


_REST = """async () => {
    const running = () => document.getAnimations().filter(
        each => each.playState === "running" && each.effect?.getComputedTiming().iterations !== Infinity)
    while (running().length)  // one may begin while another ends
        await Promise.all(running().map(each => each.finished.catch(() => null)))
}"""
"""What fades in has too little contrast until it is there."""


def check_page(page: Any, where: str, *, within: str = "html") -> None:
    """Nothing hangs over the edge, and axe finds nothing serious; `within`: selects the part that it looks at."""
    wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    assert wide <= 0, f"{where} is {wide} px too wide"
    if not AXE.is_file():
        may_lack = shutil.which("npm") is None and "CI" not in os.environ
        assert may_lack, "axe is not installed: make e2e installs it with npm"
        return
    page.evaluate(_REST)
    page.evaluate(AXE.read_text())
    found = page.evaluate("within => axe.run(within, {resultTypes: ['violations']})", within)
    serious = {
        each["id"]: [node["html"][:200] for node in each["nodes"]]
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    }
    assert serious == {}, f"{where}: {serious}"
