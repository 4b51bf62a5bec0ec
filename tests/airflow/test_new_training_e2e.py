"""A training is put together in Airflow's UI and becomes a run of the generic DAG, as the user who asks."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.airflow.pages import OURS, launched, signed_in
from tests.airflow.stack import Airflow
from tests.web.site import CHROMIUM, check_page

pytest.importorskip("playwright.sync_api")
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(900),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]


def test_a_new_training_is_a_run_of_the_generic_dag(airflow: Airflow):
    airflow.stack.wait_dag(airflow.client, "training_job")
    with launched() as browser, signed_in(browser, airflow, "admin") as page:
        fill(page, airflow)
        check_page(page, "the form", within=OURS)
        page.get_by_role("button", name="Run", exact=True).click()
        page.wait_for_url(re.compile("/dags/training_job/runs/new__"), wait_until="commit")
        run_id = page.url.partition("/runs/")[2].partition("/")[0]
        page.get_by_role("heading", name="from-a-form", exact=True).last.wait_for()
        airflow.wait_run("training_job", run_id)
        page.get_by_text("succeeded", exact=True).first.wait_for()


def fill(page: Any, airflow: Airflow) -> None:
    field = "set=metadata.name=from-a-form&set=spec.command=[sh, -c, echo done]"
    page.goto(f"{airflow.stack.url}/plugin/training-new?{field}&set=spec.runtime.name=local")
    page.locator("[data-checked]").wait_for()
    page.get_by_text("no mistakes", exact=True).wait_for()
