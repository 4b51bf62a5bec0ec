"""The snippets that need an Airflow that runs, typed as they stand on their pages."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.airflow.stack import Airflow
from tests.docs.pages import PAGES, ROOT, blocks_of
from tests.docs.test_snippets import NEEDS_AIRFLOW, Session

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

COMMANDS = Path(sys.executable).parent
TUTORIAL = ROOT / "docs" / "tutorial.md"
"""Starts an Airflow of its own (`airflow standalone`); here it finds one that runs."""
ASKING = [
    page
    for page in PAGES
    if page != TUTORIAL
    and any(each.info == "sh" and NEEDS_AIRFLOW.search(each.text) for each in blocks_of(page))
]


@pytest.mark.soak
def test_what_is_asked_of_a_server_is_done_as_it_stands(airflow: Airflow, tmp_path: Path):
    airflow.stack.wait_dag(airflow.client, "training_job")
    token = airflow.client.headers["Authorization"].removeprefix("Bearer ")
    for page in ASKING:
        folder = tmp_path / page.stem
        folder.mkdir()
        environment = {
            "HOME": str(tmp_path),
            "PATH": f"{COMMANDS}:{os.environ['PATH']}",
            "SERVER": airflow.stack.url,
            "TOKEN": token,
            "AIRFLOW_TOKEN": token,
        }
        session = Session(folder, environment)
        typed = [each for each in blocks_of(page) if NEEDS_AIRFLOW.search(each.text)]
        words = {word for each in typed for word in each.text.split()}
        for block in blocks_of(page):
            if block in typed or block.file in words:
                session.take(block)
    assert {str(page.relative_to(ROOT)) for page in ASKING} == {"docs/airflow.md", "docs/cli.md"}
    runs = airflow.client.get("/dags/training_job/dagRuns", params={"limit": 100}).json()
    (posted,) = (
        each["dag_run_id"] for each in runs["dag_runs"] if each["conf"].get("path") == "job.yaml"
    )
    assert airflow.wait_run("training_job", posted) == "success"


def test_the_dag_of_the_tutorial_is_triggered_and_followed_as_it_stands(airflow: Airflow):
    home = airflow.stack.home
    session = Session(home, {**airflow.stack.env, "HOME": str(home)})
    for block in blocks_of(TUTORIAL):
        if block.file.startswith("jobs/"):
            session.take(block)
    airflow.stack.wait_dag(airflow.client, "fit")
    [start, *typed] = [each for each in blocks_of(TUTORIAL) if NEEDS_AIRFLOW.search(each.text)]
    assert start.text.endswith("\nairflow standalone\n")
    for block in typed:
        session.take(block)
    assert airflow.wait_run("fit", "monday") == "success"
