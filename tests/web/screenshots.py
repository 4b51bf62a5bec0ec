"""Makes the pictures of README, docs/pages.md and docs/no-code.md: `make screenshots`."""

from __future__ import annotations

import dataclasses
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from airflow_training.cli.airflow_stack import AirflowStack
from airflow_training.documents.resolved import RunKey
from airflow_training.settings import user_name
from airflow_training.state.store import Store
from tests.airflow.conftest import run_airflow
from tests.airflow.pages import launched, signed_in
from tests.airflow.without_code import train_without_code, write_lists
from tests.state.samples import a_job, a_ledger, take, worker
from tests.web.site import CHROMIUM, FLAGS, JOB, JOBS, SAVING, SCRIPT, Site, serve

IMAGES = Path(__file__).parents[2] / "docs" / "images"
MOST_BYTES = 200_000
"""Of a picture: they are kept with the sources."""
_HIDE_PLACES = """([folders, user]) => {
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        if (texts.currentNode.data === user) texts.currentNode.data = "ann";
        for (const each of folders) if (texts.currentNode.data.includes(each)) texts.currentNode.data = texts.currentNode.data.replaceAll(each, "/home/ann/digits");
    }
}"""
"""Where things are on this machine, and who made the pictures, is nobody's business."""
_SHOP = Path("/tmp/shop")
"""Lists to train on. It is seen as it is: what is hidden in an editor would be typed there."""
_PLAIN = SCRIPT
for _hostile, _usual in (
    (
        "<img src=x onerror=alert(1)> is no learning rate",
        "learning rate must be positive, not -0.1",
    ),
    (
        r"step {step} \x1b[32mgreen\x1b[0m <b>not bold</b>",
        "{datetime.now().isoformat(' ', 'milliseconds')} step {step} loss {loss:.4f}",
    ),
    ("from pathlib import Path", "from datetime import datetime\nfrom pathlib import Path"),
    (
        "    line = {",
        "    loss = step ** (-0.2 if 'slow' in sys.argv else -1) + rank\n    line = {",
    ),
    ('"loss": 1 / step + rank', '"loss": loss'),
    ("<b>0</b>", "0"),
    ("<b>{i}</b>", "{i}"),
):
    assert _hostile in _PLAIN
    _PLAIN = _PLAIN.replace(_hostile, _usual)
_JOBS = {"slow": JOB.format(name="slow", steps=400, more="slow"), **JOBS}
_SCRIPTS = {"train.py": _PLAIN, "save.py": SAVING}
"""What the tests of pages run, without the texts by which these see that text stays text."""
_FOLDERS = [str(IMAGES.parents[1]), str(Path(sys.prefix).parent)]


def main() -> None:
    """Write a picture of each page, some of them dark."""
    with (
        tempfile.TemporaryDirectory() as folder,
        serve(Path(folder), _JOBS, scripts=_SCRIPTS) as site,
    ):
        _FOLDERS.append(folder)
        with site.page(height=520) as page:
            page.get_by_role("img", name="loss from").nth(3).wait_for()
            _save(page, "trainings")
            for run in ("slow", "living"):
                page.get_by_role("row", name=run).locator("label").click()
            page.get_by_role("button", name="Compare").click()
            page.locator("canvas").first.wait_for()
            page.wait_for_timeout(1000)
            _save(page, "compare")
        _of(site, "living", "overview", "run")
        _of(site, "done", "charts", "charts", dark=True)
        _heat_map(site)
        _merged_log(site)
        _dialog(site)
        with site.page(width=360, height=760, dark=True) as page:
            site.open(page, "living")
            page.get_by_text("of 100,000").first.wait_for()
            _save(page, "phone")
        _of(site, "done", "data", "data")
        _of(site, "done", "predictions", "predictions")
        _of(site, "done", "plan", "plan")
        _of(site, "done", "logs", "logs")
        _of(site, "saved", "checkpoints", "checkpoints")
        _of(site, "done", "configuration", "configuration", height=1160)
        _editor(site)
        _new_training(site)
        _of(site, "living", "environment", "environment")
        _of(site, "broken", "overview", "cause")
        add_history(Path(folder))  # last: the list would show it too
        with site.page(height=520) as page:
            page.get_by_role("link", name="Usage").click()
            page.get_by_role("row", name=re.compile("^ann")).wait_for()
            _save(page, "usage")
    _in_airflow()
    _without_code()


def _without_code() -> None:
    """Take the pictures of docs/no-code.md, on the way that a test goes too."""
    with tempfile.TemporaryDirectory() as folder, run_airflow(Path(folder) / "airflow") as airflow:
        airflow.stack.wait_dag(airflow.client, "training_job")
        write_lists(_SHOP)

        def look(page: Any, name: str) -> None:
            page.wait_for_timeout(1500)  # for what moves to come to rest; nothing is asserted here
            _shoot(page, f"no-code-{name}")

        try:
            with launched() as browser, signed_in(browser, airflow, "admin") as page:
                train_without_code(page, airflow.stack.url, lists=_SHOP, to=Path(folder), look=look)
        finally:
            shutil.rmtree(_SHOP)


def _in_airflow() -> None:
    """Take the pictures of what Airflow's own pages show of a training."""
    from playwright.sync_api import sync_playwright

    with (
        tempfile.TemporaryDirectory() as folder,
        # on a busy machine a triggerer is late, and no picture is to show it as dead
        AirflowStack(
            home=Path(folder),
            environment={"AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "600"},
        ) as stack,
        sync_playwright() as driver,
    ):
        jobs = Path(folder) / "jobs"
        jobs.mkdir()
        (jobs / "train.py").write_text(_PLAIN)
        job = JOB.format(name="digits", steps=100_000, more="")
        (jobs / "digits.yaml").write_text(
            job.replace("[python, train.py", f"[python, {jobs}/train.py")
        )
        stack.migrate()
        stack.start()
        stack.wait_healthy()
        with stack.client() as client:
            stack.wait_dag(client, "digits")
            body: dict[str, Any] = {"logical_date": None, "conf": {}, "dag_run_id": "nightly"}
            client.post("/dags/digits/dagRuns", json=body).raise_for_status()
            browser = driver.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
            page = browser.new_page(
                base_url=stack.url, viewport={"width": 1440, "height": 820}, color_scheme="dark"
            )
            page.set_default_timeout(120_000)
            page.goto("/dags/digits/runs/nightly")
            page.get_by_role("link", name="Training", exact=True).click()
            page.get_by_role("row", name="worker-1").get_by_text("running").wait_for()
            page.wait_for_timeout(20_000)
            _save(page, "airflow")
            page.set_viewport_size({"width": 1440, "height": 960})
            page.goto("/dags/digits/runs/nightly/tasks/worker.run/plugin/training-task")
            page.get_by_role("log").get_by_text("loss").nth(5).wait_for()
            page.wait_for_timeout(3000)
            _save(page, "task")
            page.set_viewport_size({"width": 1440, "height": 820})
            page.goto("/")
            page.get_by_text("Failed in 24 hours").wait_for()
            page.wait_for_timeout(3000)
            _save(page, "card")
            page.goto("/dags/digits/runs/nightly/plugin/training-run")
            page.get_by_role("button", name="Kill").click()
            page.get_by_role("dialog").get_by_role("button", name="Kill").click()
            page.get_by_text("stopped", exact=True).first.wait_for()
            browser.close()


def add_history(folder: Path) -> None:
    """Add runs of three users in the last week to the store of the site."""
    store = Store(f"sqlite:///{folder / 'airflow_training.db'}")
    for number, (user, gpus) in enumerate((("ann", 8), ("bob", 2), ("ann", 4), ("eve", 1))):
        key = RunKey(source="cli", dag_id="", run_id=f"night-{number}")
        uid = store.create_run(
            key, a_job(), a_ledger(), controller="here", queue=False, submitted_by=user
        ).uid
        old, first = store.ledger(uid), store.now() - (number + 1) * 86_400
        workers = [
            worker(each, state="succeeded", started_at=first, finished_at=first + 7_000 * gpus)
            for each in range(4)
        ]
        new = dataclasses.replace(old, instances={each.key: each for each in workers})
        asked = {"cpu": "6", "memory": "48Gi", "nvidia.com/gpu": str(gpus)}
        lease = take(store, uid, "loop")
        store.commit(uid, lease=lease, old=old, new=new, events=[], resources={"worker": asked})
    store.close()


def _of(
    site: Site, run: str, tab: str, name: str, *, dark: bool = False, height: int = 760
) -> None:
    with site.page(dark=dark, height=height) as page:
        site.open(page, run, tab)
        ready = {"charts": "canvas", "logs": "[role=log] button", "configuration": "pre"}.get(
            tab, "tbody tr"
        )
        page.locator(ready).first.wait_for()
        page.wait_for_timeout(1500)  # for what moves to come to rest; nothing is asserted here
        _save(page, name)


def _heat_map(site: Site) -> None:
    with site.page(height=940) as page:
        site.open(page, "done", "charts")
        page.locator("canvas").first.wait_for()
        page.get_by_role("button", name="Heat map").nth(1).click()
        page.get_by_role("img", name="rows of ranks").scroll_into_view_if_needed()
        page.wait_for_timeout(1000)
        _save(page, "heatmap")


def _merged_log(site: Site) -> None:
    with site.page(height=620) as page:
        site.open(page, "living", "logs")
        page.get_by_label("Instance").select_option("All, by time")
        page.get_by_role("log").get_by_text("loss").nth(20).wait_for()
        page.wait_for_timeout(500)
        _save(page, "merged")


def _dialog(site: Site) -> None:
    with site.page(height=620) as page:
        site.open(page, "living")
        page.get_by_role("row", name="worker-1").get_by_text("running").wait_for()
        page.get_by_role("button", name="Stop").click()
        page.get_by_role("dialog").get_by_label("Reason").fill("wrong data")
        page.wait_for_timeout(500)
        _save(page, "dialog")


def _editor(site: Site) -> None:
    with site.page(height=760) as page:
        site.open(page, "done", "configuration")
        page.get_by_role("button", name="Edit and run").click()
        page.get_by_text("replicas: 2").click()
        page.keyboard.press("End")
        page.keyboard.type("x")
        page.get_by_label("Mistakes").get_by_text("1 mistake").wait_for()
        _save(page, "editor")


def _new_training(site: Site) -> None:
    with site.page(height=640) as page:
        page.get_by_role("link", name="New training").first.click()
        page.get_by_role("link", name="Your own image").wait_for()
        page.wait_for_timeout(500)
        _save(page, "presets")
    with site.page(dark=True) as page:
        page.goto(f"{site.base}/new?preset=own-image")
        page.get_by_label("Replicas").fill("four")
        page.get_by_label("Mistakes").get_by_text("whole number").wait_for()
        page.get_by_label("Target").scroll_into_view_if_needed()
        page.wait_for_timeout(1000)
        _save(page, "new-training")


def _save(page: Any, name: str) -> None:
    page.evaluate(_HIDE_PLACES, [_FOLDERS, user_name()])
    _shoot(page, f"page-{name}")


def _shoot(page: Any, name: str) -> None:
    path = IMAGES / f"{name}.png"
    page.screenshot(path=path)
    assert path.stat().st_size <= MOST_BYTES, path


if __name__ == "__main__":
    main()
