"""The pages inside Airflow's own UI, in a real browser, as an administrator and as somebody who may only look.

What a person does who never used a terminal: follow a training from queued to done, pause and
resume it, see why another one failed, compare the two, and stop a third. Meanwhile the API server
is killed; the page needs no reload. The first one is followed by `airflow-training ui` too.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.airflow.pages import laptop, launched, open_training, signed_in, wait_phrase
from tests.airflow.stack import Airflow
from tests.web.site import CHROMIUM

pytest.importorskip("playwright.sync_api")
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(600),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]


REPORT = """\
until [ -e {room}/{job}.end ]; do
  step=$(( ${{step:-0}} + 1 ))
  echo '{{"step": '$step', "total_steps": 9000, "metrics": {{"loss": '$step'}}}}' >> $TRAINING_PROGRESS_FILE
  sleep 1
done
read code < {room}/{job}.end
[ $code = 0 ] || echo "ValueError: learning rate must be positive" >&2
exit $code
"""


@pytest.fixture
def browser() -> Iterator[Any]:
    with launched() as opened:
        yield opened


def write(airflow: Airflow, job: str) -> None:
    """A job whose one instance reports a step a second until it is let go."""
    script = REPORT.format(room=airflow.room, job=job)
    command = ["sh", "-c", script]
    airflow.write(airflow.document(job, command=command, restart={"maxRestarts": 0}))


def wait_step(page: Any) -> None:
    page.get_by_text(re.compile(r"^[1-9]\d* of 9,000$")).wait_for()


def test_a_training_is_followed_from_queued_to_done_and_compared_with_one_that_failed(
    airflow: Airflow, browser: Any
):
    for job in ("followed", "failing", "unwanted"):
        write(airflow, job)
    run_id = airflow.trigger("followed")
    with (
        laptop(airflow) as address,
        contextlib.closing(browser.new_context()) as beside,
        # meanwhile the server is killed
        signed_in(browser, airflow, "admin", away="net::ERR_") as page,
    ):
        open_training(page, airflow, "followed", run_id)
        wait_phrase(page, "running")
        failing = airflow.trigger("failing")
        wait_step(page)
        at_home = beside.new_page()
        at_home.goto(address)
        at_home.get_by_role("link", name="followed", exact=True).click()
        at_home.get_by_role("heading", name="followed", exact=True).wait_for()
        wait_step(at_home)
        page.get_by_role("button", name="Pause").click()
        page.get_by_role("dialog").get_by_role("button", name="Pause").click()
        wait_phrase(page, "paused")
        page.get_by_role("button", name="Resume").click()
        wait_phrase(page, "running")
        wait_step(page)
        airflow.crash("api-server")
        airflow.end("followed")
        wait_phrase(page, "succeeded")
        wait_phrase(at_home, "succeeded")
        open_training(page, airflow, "failing", failing)
        wait_step(page)
        airflow.end("failing", 1)
        cause = page.get_by_role("alert").filter(has_text="learning rate must be positive")
        cause.wait_for()
        cause.get_by_role("button").first.click()
        page.get_by_role("log").get_by_text("learning rate must be positive").last.wait_for()
        page.goto(f"{airflow.stack.url}/plugin/trainings")
        for job in ("followed", "failing"):
            page.get_by_role("row", name=job).locator("label").click()
        page.get_by_role("button", name="Compare").click()
        legend = page.locator("figure[data-metric=loss] .u-legend")
        legend.get_by_text("followed").wait_for()
        legend.get_by_text("failing").wait_for()
        unwanted = airflow.trigger("unwanted")
        open_training(page, airflow, "unwanted", unwanted)
        wait_phrase(page, "running")
        page.get_by_role("button", name="Stop").click()
        page.get_by_role("dialog").get_by_role("button", name="Stop").click()
        wait_phrase(page, "stopped")
    assert airflow.wait_run("followed", run_id) == "success"
    assert airflow.wait_run("failing", failing) == "failed"
    assert airflow.wait_run("unwanted", unwanted) == "failed"
    assert airflow.alive("unwanted") == []


def test_a_training_is_seen_by_who_may_read_it_and_stopped_by_who_may_change_it(
    airflow: Airflow, browser: Any
):
    airflow.write(airflow.document("paged"))
    run_id = airflow.trigger("paged")
    airflow.wait_started("paged")
    with signed_in(browser, airflow, "reader") as page:
        page.goto(f"{airflow.stack.url}/plugin/trainings")
        page.get_by_role("link", name="paged", exact=True).click()
        page.get_by_role("heading", name="paged", exact=True).wait_for()
        page.get_by_role("row", name="worker-0").wait_for()
        assert page.get_by_role("button", name="Stop").count() == 0
    with signed_in(browser, airflow, "admin") as page:
        page.goto(f"{airflow.stack.url}/")
        page.get_by_text("Failed in 24 hours").wait_for()
        open_training(page, airflow, "paged", run_id)
        wait_phrase(page, "running")
        page.get_by_role("button", name="Stop").click()
        page.get_by_role("dialog").get_by_role("button", name="Stop").click()
        wait_phrase(page, "stopped")
    assert airflow.wait_run("paged", run_id) == "failed"
    assert airflow.alive("paged") == []
    assert airflow.ledger("paged", run_id).job.state == "Stopped"
    with signed_in(browser, airflow, "reader") as page:
        open_training(page, airflow, "paged", run_id)
        wait_phrase(page, "stopped")
        assert page.get_by_role("button", name="Run again").count() == 0
    with signed_in(browser, airflow, "admin") as page:
        open_training(page, airflow, "paged", run_id)
        page.get_by_role("button", name="Run again").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("button", name="Run again").dblclick()
        again = dialog.get_by_role("link", name="again__")
        new_id = again.inner_text()
        again.click()
        wait_phrase(page, "running")
        page.get_by_role("button", name="Kill").click()
        page.get_by_role("dialog").get_by_role("button", name="Kill").click()
        wait_phrase(page, "stopped")
    assert airflow.wait_run("paged", new_id) == "failed"
    assert airflow.alive("paged") == []
