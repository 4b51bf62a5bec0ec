"""Every page at each of its places in Airflow's UI, which a proxy serves below a path, under a strict policy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_training.runtimes.local.node import this_node
from tests.airflow.conftest import run_airflow
from tests.airflow.pages import OURS, launched, open_training, signed_in, wait_phrase
from tests.airflow.stack import Airflow
from tests.web.site import CHROMIUM, JOB, PLAN, SAVED_JOB, SAVING, SCRIPT, check_page

pytest.importorskip("playwright.sync_api")
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(900),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]
TABS = {
    "overview": "tbody tr",
    "charts": "figure canvas",
    "data": "tbody tr",
    "predictions": "table",
    "logs": "[role=log] button",
    "checkpoints": "text=No checkpoint",
    "plan": "tbody tr",
    "environment": "tbody tr",
    "configuration": "pre",
}
"""And what is there once a tab has been filled."""
MAPPED = '''
"""A job for each of two parameters (airflow dag)."""
from airflow.sdk import DAG
from airflow_training import training

with DAG("mapped", schedule=None):
    training.partial("../jobs-of-python/lasting.yaml", group_id="each").expand(
        params=[{"n": 1}, {"n": 2}]
    )
'''


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Airflow]:
    """One of its own: where it is served is set as it starts."""
    with run_airflow(tmp_path_factory.mktemp("below"), path="/airflow") as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as opened:
        yield opened


@pytest.fixture(scope="module")
def runs(airflow: Airflow) -> Mapping[str, str]:
    """DAG id -> the id of a run that is over, of jobs that have something for every page."""
    folder = airflow.stack.home / "jobs"
    (folder / "train.py").write_text(SCRIPT)
    (folder / "save.py").write_text(SAVING)
    jobs = {
        "done": JOB.format(name="done", steps=20, more="") + PLAN,
        "broken": JOB.format(name="broken", steps=5, more="break"),
        "saved": SAVED_JOB.replace("uri: checkpoints", f"uri: {airflow.stack.home}/checkpoints"),
    }
    for text in jobs.values():
        document = yaml.safe_load(text)
        command = document["spec"]["command"]
        command[1] = str(folder / command[1])  # an Airflow task does not begin in that folder
        airflow.write(document)
    started = {name: airflow.trigger(name) for name in jobs}
    for name, run_id in started.items():
        airflow.wait_run(name, run_id)
    return started


@pytest.mark.parametrize(
    ("width", "dark"),
    [pytest.param(360, True, id="narrow-dark"), pytest.param(1440, False, id="wide-light")],
)
def test_every_page_fits_is_accessible_and_obeys_a_strict_policy(
    airflow: Airflow, browser: Any, runs: Mapping[str, str], width: int, dark: bool
):
    url = airflow.stack.url
    with signed_in(browser, airflow, "admin", width=width, dark=dark) as page:
        page.goto(f"{url}/")
        page.get_by_text("Failed in 24 hours").wait_for()
        check_page(page, "card", within=OURS)
        page.goto(f"{url}/plugin/training-usage")
        page.get_by_role("row", name="All").wait_for()
        check_page(page, "usage", within=OURS)
        page.goto(f"{url}/plugin/trainings")
        link = page.get_by_role("link", name="done", exact=True).first
        link.wait_for()
        check_page(page, "list", within=OURS)
        link.click()
        page.get_by_role("heading", name="done", exact=True).last.wait_for()
        assert ("/plugin/trainings?run=" in page.url) is (width == 360), (
            "a phone has no room for the grid"
        )
        for tab, filled in TABS.items():
            page.get_by_role("tab", name=tab).click()
            page.locator(f"{OURS} {filled}" if "=" not in filled[:5] else filled).first.wait_for()
            check_page(page, tab, within=OURS)
        page.goto(f"{url}/dags/done/runs/{runs['done']}/plugin/training-run?tab=data")
        page.get_by_role("tab", name="data", selected=True).wait_for()
        alone = page.get_by_role("link", name="Open at full width")
        if width == 360:  # the tab itself is out of sight
            alone.click()
            page.wait_for_url(re.compile("/plugin/trainings[?]run=done/.*tab=data"))
            page.get_by_role("tab", name="data", selected=True).wait_for()
        alone.wait_for(state="detached")
        page.goto(f"{url}/plugin/trainings")
        page.get_by_role("link", name="broken", exact=True).first.click()
        page.get_by_role("alert").get_by_text("is no learning rate").first.wait_for()
        assert page.locator("img[src=x]").count() == 0
        check_page(page, "failed", within=OURS)
        page.get_by_role("button", name="Run again").click()
        page.get_by_role("dialog").get_by_role("button", name="Run again").wait_for()
        check_page(page, "dialog", within="[role=dialog]")


def test_a_person_reads_restores_and_downloads_below_the_path_of_a_proxy(
    airflow: Airflow, browser: Any, runs: Mapping[str, str]
):
    with signed_in(browser, airflow, "admin") as page:
        open_training(page, airflow, "saved", runs["saved"])
        page.get_by_role("tab", name="Checkpoints").click()
        page.get_by_role("button", name="Restore step 30").click()
        page.get_by_role("dialog").get_by_role("button", name="Run again").click()
        page.get_by_role("dialog").get_by_role("link", name="again__").click()
        wait_phrase(page, "succeeded")
        page.get_by_role("tab", name="Logs").click()
        page.get_by_role("log").get_by_text("goes on after step 30").wait_for()
        with page.expect_download() as saved:
            page.get_by_role("link", name="Download").click()
        assert "goes on after step 30" in Path(saved.value.path()).read_text()
        page.get_by_role("tab", name="Configuration").click()
        page.get_by_role("button", name="Edit and run").click()
        page.get_by_label("Mistakes").get_by_text("no mistakes").wait_for()


def test_the_tab_of_a_task_shows_its_own_training_and_the_log_of_its_role(
    airflow: Airflow, browser: Any
):
    roles: list[dict[str, Any]] = [{"name": "master"}, {"name": "worker"}]
    lasting = airflow.document("lasting", *roles, dag={"params": {"n": {"type": "integer"}}})
    script = "echo n is {{ params.n }}, role is $TRAINING_ROLE\n" + lasting["spec"]["command"][2]
    airflow.write(
        lasting | {"spec": lasting["spec"] | {"command": ["sh", "-c", script]}},
        folder="jobs-of-python",
    )
    (airflow.stack.home / "dags" / "mapped.py").write_text(MAPPED)
    formed = airflow.document("formed", *roles)
    of_group = airflow.trigger("mapped")
    of_role = airflow.trigger("training_job", job=yaml.safe_dump(formed))
    tasks = f"{airflow.stack.url}/dags/mapped/runs/{of_group}/tasks"
    with signed_in(browser, airflow, "admin") as page:
        for index in (0, 1):
            page.goto(f"{tasks}/each.worker.run/mapped/{index}/plugin/training-task")
            page.get_by_text(f"each[{index}]", exact=True).wait_for()
            page.get_by_role("log").get_by_text(f"n is {index + 1}, role is worker").wait_for()
        page.goto(f"{tasks}/each.master.run/mapped/0")
        page.get_by_role("link", name="Training", exact=True).click()
        page.get_by_role("log").get_by_text("n is 1, role is master").wait_for()
        for index, role in enumerate(("master", "worker")):
            path = f"dags/training_job/runs/{of_role}/tasks/role/mapped/{index}"
            page.goto(f"{airflow.stack.url}/{path}/plugin/training-task")
            page.get_by_role("heading", name="formed", exact=True).wait_for()
            chosen = page.get_by_label("Instance", exact=True)
            chosen.wait_for()
            assert chosen.input_value() == f"{role}-0"
    airflow.end("lasting")
    airflow.end("formed")
    assert airflow.wait_run("mapped", of_group) == "success"
    assert airflow.wait_run("training_job", of_role) == "success"


def test_a_training_that_waits_for_room_says_so_and_then_runs(airflow: Airflow, browser: Any):
    whole = {"requests": {"cpu": f"{int(1000 * this_node().cpus)}m"}}
    for job in ("before", "after"):
        airflow.write(airflow.document(job, {"name": "worker", "resources": whole}))
    before = airflow.trigger("before")
    airflow.wait_started("before")
    after = airflow.trigger("after")
    with signed_in(browser, airflow, "admin") as page:
        open_training(page, airflow, "after", after)
        wait_phrase(page, "queued")
        page.get_by_text(
            "waits until it is its turn and the machine has room: cpu: asks for"
            f" {this_node().cpus:g}, 0 of it is free; 1 run started (WaitingForTurn)"
        ).wait_for()
        airflow.end("before")
        wait_phrase(page, "running")
        airflow.end("after")
        wait_phrase(page, "succeeded")
    assert airflow.wait_run("before", before) == "success"
    assert airflow.wait_run("after", after) == "success"
