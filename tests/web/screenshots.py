"""Makes the pictures of docs/pages.md: `make screenshots`."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

from airflow_training.cli.airflow_stack import AirflowStack
from airflow_training.documents.resolved import RunKey
from airflow_training.state.store import Store
from tests.state.samples import a_job, a_ledger, take, worker
from tests.web.site import CHROMIUM, FLAGS, JOB, SCRIPT, Site, serve

IMAGES = Path(__file__).parents[2] / "docs" / "images"
_HIDE_FOLDER = """folder => document.querySelectorAll("code").forEach(
    each => { each.textContent = each.textContent.replace(folder, "/home/ann/digits") })"""
"""Where the project is on this machine is nobody's business."""


def main() -> None:
    """Write a picture of each page, some of them dark."""
    with tempfile.TemporaryDirectory() as folder, serve(Path(folder)) as site:
        with site.page(height=520) as page:
            page.get_by_role("img", name="loss from").nth(2).wait_for()
            _save(page, "trainings")
            for run in ("done", "living"):
                page.get_by_role("row", name=run).locator("label").click()
            page.get_by_role("button", name="Compare").click()
            page.locator("canvas").first.wait_for()
            page.wait_for_timeout(1000)
            _save(page, "compare")
        _of(site, "living", "overview", "run")
        _of(site, "done", "charts", "charts", dark=True)
        _of(site, "done", "data", "data")
        _of(site, "done", "predictions", "predictions")
        _of(site, "done", "plan", "plan")
        _of(site, "done", "logs", "logs")
        _of(site, "saved", "checkpoints", "checkpoints")
        _of(site, "done", "configuration", "configuration", height=1160)
        _editor(site)
        _of(site, "living", "environment", "environment")
        _of(site, "broken", "overview", "cause")
        _add_history(Path(folder))  # last: the list would show it too
        with site.page(height=520) as page:
            page.get_by_role("link", name="Usage").click()
            page.get_by_role("row", name="ann").wait_for()
            _save(page, "usage")
    _in_airflow()


def _in_airflow() -> None:
    """Take the pictures of what Airflow's own pages show of a training."""
    from playwright.sync_api import sync_playwright

    with (
        tempfile.TemporaryDirectory() as folder,
        AirflowStack(home=Path(folder)) as stack,
        sync_playwright() as driver,
    ):
        jobs = Path(folder) / "jobs"
        jobs.mkdir()
        (jobs / "train.py").write_text(SCRIPT)
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
            page.goto("/")
            page.get_by_text("Failed in 24 hours").wait_for()
            page.wait_for_timeout(3000)
            _save(page, "card")
            page.goto("/dags/digits/runs/nightly/plugin/training-run")
            page.get_by_role("button", name="Kill").click()
            page.get_by_role("dialog").get_by_role("button", name="Kill").click()
            page.get_by_text("stopped", exact=True).first.wait_for()
            browser.close()


def _add_history(folder: Path) -> None:
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
        if tab == "charts":
            page.get_by_role("button", name="Heat map").first.click()
        page.evaluate(_HIDE_FOLDER, str(IMAGES.parents[1]))
        page.wait_for_timeout(1500)  # for what moves to come to rest; nothing is asserted here
        _save(page, name)


def _editor(site: Site) -> None:
    with site.page(height=760) as page:
        site.open(page, "done", "configuration")
        page.get_by_role("button", name="Edit and run").click()
        page.get_by_text("replicas: 2").click()
        page.keyboard.press("End")
        page.keyboard.type("x")
        page.get_by_label("Mistakes").get_by_text("1 mistake").wait_for()
        _save(page, "editor")


def _save(page: Any, name: str) -> None:
    page.screenshot(path=IMAGES / f"page-{name}.png")


if __name__ == "__main__":
    main()
