"""The pages in a real browser, served by `airflow-training ui` over the store of real runs."""

from __future__ import annotations

import platform
import re
from pathlib import Path
from typing import Any

import pytest

from tests.web.site import CHROMIUM, Site, check_page
from tests.web.test_run_top_browser import answer_with

pytest.importorskip("playwright.sync_api")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]
TABS = (
    "overview",
    "charts",
    "data",
    "predictions",
    "logs",
    "checkpoints",
    "plan",
    "environment",
    "configuration",
)


def test_a_failed_training_is_found_and_its_cause_comes_first(site: Site):
    with site.page() as page:
        page.get_by_label("State").select_option("Failed")
        page.get_by_role("link", name="broken").click()
        alert = page.get_by_role("alert")
        alert.wait_for()
        first = alert.inner_text().strip().splitlines()[0]
        assert re.match(r"master-0: exit code 1 .*: ValueError: ", first), (
            "who, how, why: not one word"
        )
        assert "<img src=x onerror=alert(1)> is no learning rate" in alert.inner_text()
        alert.get_by_role("button").click()
        log = page.get_by_role("log")
        log.get_by_text("is no learning rate").last.wait_for()
        assert page.locator("img").count() == 0


def test_a_training_is_followed_paused_resumed_and_stopped(site: Site):
    with site.page() as page:
        site.open(page, "living")
        step = page.get_by_text(re.compile(r"^\d[\d,]* of 100,000$"))
        before = step.inner_text()
        page.wait_for_function(
            "before => [...document.querySelectorAll('*')].some(each => !each.children.length"
            " && /of 100,000$/.test(each.textContent) && each.textContent !== before)",
            arg=before,
        )
        worker = page.get_by_role("row", name="worker-0")
        worker.get_by_text(re.compile(r"^[\d.]+ [MG]iB")).wait_for()
        page.get_by_role("button", name="Pause").click()
        dialog = page.get_by_role("dialog")
        assert "No checkpoint is known" in dialog.inner_text()
        dialog.get_by_role("button", name="Pause").click()
        page.get_by_text("paused", exact=True).wait_for()
        page.get_by_role("button", name="Resume").click()
        page.get_by_text("running", exact=True).first.wait_for()
        page.get_by_role("button", name="Kill").click()
        assert re.search(r"the work of \d+ steps? is lost\.", dialog.inner_text())
        dialog.get_by_role("button", name="Leave it").click()
        dialog.wait_for(state="detached")
        page.get_by_role("button", name="Stop").click()
        page.get_by_role("dialog").get_by_label("Reason").fill("wrong data")
        page.keyboard.press("Enter")
        page.get_by_text("stopped", exact=True).first.wait_for()
        page.get_by_text("wrong data").first.wait_for()
        assert page.get_by_role("button", name="Stop").count() == 0
        page.get_by_role("button", name="Run again").click()
        page.get_by_role("dialog").get_by_role("button", name="Run again").dblclick()
        page.get_by_role("dialog").get_by_role("link", name="living-again-").click()
        page.get_by_text("running", exact=True).first.wait_for()
        page.get_by_role("link", name="Trainings").click()
        row = page.get_by_role("row", name=re.compile("living-again-"))
        row.locator("label").click()
        page.get_by_role("button", name="Stop").click()
        dialog.get_by_role("button", name="Stop 1").click()
        dialog.get_by_text("received", exact=True).wait_for()
        dialog.get_by_text("Close", exact=True).click()
        row.get_by_text("stopped", exact=True).wait_for()
        assert row.count() == 1


def test_charts_show_every_rank_and_give_their_points_away(site: Site):
    with site.page() as page:
        site.open(page, "done", "charts")
        chart = page.locator("figure[data-metric=loss]")
        chart.locator("canvas").wait_for()
        legend = chart.locator(".u-legend").inner_text()
        assert all(name in legend for name in ("master-0", "worker-0", "worker-1"))
        page.get_by_label("Axis").select_option("time")
        page.get_by_label("Smoothing").select_option("0.9")
        page.get_by_text("Log scale").click()
        with page.expect_download() as saved:
            chart.get_by_role("button", name="CSV").click()
        rows = Path(saved.value.path()).read_text().splitlines()
        assert rows[0] == "name,role,index,rank,step,time,value"
        assert any(",20," in row and row.startswith("loss,worker,1") for row in rows)


def test_what_each_rank_has_read_is_seen(site: Site):
    with site.page() as page:
        site.open(page, "done", "data")
        page.get_by_role("img", name="Samples of master-0: 1,280").wait_for()
        workers = "Samples of 2 ranks, worker-0 has the most, worker-1 the fewest"
        page.get_by_role("img", name=workers).wait_for()
        page.get_by_text("worker: imbalance 6.9 %: worker-0 most, worker-1 least").wait_for()
        assert "13.3 %: master-0 most, worker-1 least" in page.locator("body").inner_text()
        page.get_by_role("button", name="files of worker-1").click()
        files = page.get_by_role("row").filter(has_text=".npz")
        files.nth(2).wait_for(state="detached")
        assert "640 of 6,400" in files.filter(has_text="part-2-1.npz").inner_text()
        assert "part-2-<b>0</b>.npz" in files.last.inner_text()
        page.get_by_label("Files of").select_option("")
        files.nth(2).wait_for()
        page.get_by_label("Files whose names contain").fill("t-1-")
        files.nth(2).wait_for(state="detached")
        assert files.count() == 2


def test_what_was_predicted_is_seen_step_by_step(site: Site):
    with site.page() as page:
        site.open(page, "done", "predictions")
        page.get_by_role("heading", name="Step 20").wait_for()
        page.get_by_text("Accuracy").wait_for()
        matrix = page.get_by_role("table").filter(has_text="Columns: prediction")
        assert matrix.get_by_role("row").nth(1).inner_text().split() == ["0", "40", *9 * "·"]
        page.get_by_role("img", name="Histogram of predictions and labels").wait_for()
        page.get_by_text("<b>0</b>").wait_for()
        picture = page.get_by_role("img", name="step-000020.png")
        picture.evaluate("each => each.decode()")
        page.get_by_role("slider").press("Home")
        page.get_by_role("heading", name="Step 5").wait_for()
        assert "predictions=5" in page.url
        rows = page.get_by_role("region", name="step-000005.csv")
        rows.get_by_role("button", name="Rows after").click()
        page.get_by_text("<b>51</b>").wait_for()


def test_steps_that_come_faster_than_their_tables_load_are_seen(site: Site):
    lists: list[int] = []
    tables: list[tuple[int, Any]] = []

    def answer_list(route: Any) -> None:
        lists.append(0)
        files = [
            {
                "role": "worker", "index": 0, "name": f"step-{step}.csv", "kind": "table",
                "step": step, "at": None, "bytes": 9,
            }
            for step in range(len(lists), 0, -1)
        ]  # fmt: skip
        route.fulfill(json={"files": files, "more": False})
        for asked, table in [each for each in tables if len(lists) >= each[0] + 2]:
            tables.remove((asked, table))
            name = re.search(r"name=([\w.-]+)", table.request.url)
            table.fulfill(
                json={
                    "columns": ["file"], "rows": [[f"row of {name and name[1]}"]], "rows_read": 1,
                    "cut": False, "problem": "", "confusion": None, "histogram": None,
                }
            )  # fmt: skip

    with site.page() as page:
        # its list is asked for as long as it runs; another test stops it
        answer_with(page, site, "living", lambda detail: detail.update(held=True))
        path = f"**/trainings/{site.uids['living']}/predictions"
        page.route(f"{path}?*", answer_list)
        page.route(f"{path}/table?*", lambda route: tables.append((len(lists), route)))
        site.open(page, "living", "predictions")
        page.get_by_text("row of step-1.csv").wait_for()
        assert page.get_by_role("heading", name="Step 1", exact=True).is_visible()
        page.get_by_text(re.compile(r"row of step-[2-9].csv")).wait_for()


def test_two_trainings_are_compared(site: Site):
    with site.page() as page:
        compare = page.get_by_role("button", name="Compare")
        for run in ("done", "broken"):
            assert compare.is_disabled()
            page.get_by_role("row", name=run).locator("label").click()
        compare.click()
        page.get_by_role("heading", name="2 trainings compared").wait_for()
        legend = page.locator("figure[data-metric=loss] .u-legend")
        legend.get_by_text("done").wait_for()
        legend.get_by_text("broken").wait_for()
        page.get_by_role("button", name="All trainings").click()
        page.get_by_role("link", name="living").first.wait_for()


def test_a_log_is_read_found_in_linked_and_downloaded(site: Site):
    with site.page() as page:
        site.open(page, "done", "logs")
        log = page.get_by_role("log")
        line = log.get_by_text("step 20 green <b>not bold</b>")
        line.wait_for()
        assert page.locator("b", has_text="not bold").count() == 0
        page.get_by_label("Find in what is loaded").fill("step 7 ")
        page.keyboard.press("Enter")
        log.get_by_text("step 7 green").wait_for()
        log.get_by_role("button").first.click()
        assert "offset=" in page.url
        with page.expect_download() as saved:
            page.get_by_role("link", name="Download").click()
        assert Path(saved.value.path()).read_text().count("\n") == 20


def test_all_logs_are_searched_and_a_hit_leads_to_its_line(site: Site):
    with site.page() as page:
        site.open(page, "broken", "logs")
        page.get_by_label("Search all logs").fill("step 5 .*green|^valueerror")
        page.get_by_role("button", name="Search").click()
        hits = page.get_by_role("region", name="Hits")
        hits.get_by_text(re.compile(r"^\d hits$")).wait_for()
        hits.get_by_role("button").filter(has_text="ValueError").last.click()
        log = page.get_by_role("log")
        log.get_by_text("ValueError: <img").wait_for()
        assert "offset=" in page.url
        page.get_by_label("Go to line").fill("3")
        page.keyboard.press("Enter")
        line = len("step 1 \x1b[32mgreen\x1b[0m <b>not bold</b>\n")
        page.wait_for_url(re.compile(f"offset={2 * line}(&|$)"))
        page.get_by_role("button", name="Next error").click()
        page.wait_for_url(re.compile(f"offset={5 * line}(&|$)"))
        page.get_by_label("Instance").select_option("All, by time")
        log.get_by_role("button", name="Open master-0 at byte 0").wait_for()
        page.get_by_label("Severity").select_option("Errors")
        log.get_by_text("green").first.wait_for(state="detached")
        log.get_by_text("ValueError: <img").last.wait_for()
        log.get_by_role("button", name=re.compile("Open master-0")).first.click()
        log.get_by_text("step 5 green").wait_for()


def test_the_environment_is_shown_and_compared(site: Site):
    with site.page() as page:
        site.open(page, "living", "environment")
        page.get_by_text(f"cpython {platform.python_version()}").wait_for()
        page.get_by_label("Filter packages").fill("playwr")
        page.get_by_role("row", name="playwright").wait_for()
        assert page.get_by_text(re.compile(r"^\d of \d+ packages$")).is_visible()
        page.get_by_label("Other run").select_option(f"~/{site.uids['broken']}")
        page.get_by_text(
            re.compile("packages are the same|Nothing differs|not compared")
        ).wait_for()
        assert "other=" in page.url


def test_usage_is_summed_by_job_and_given_away(site: Site):
    with site.page() as page:
        page.get_by_role("link", name="Usage").click()
        page.get_by_label("By", exact=True).select_option("job")
        living = page.get_by_role("row", name="living")
        living.get_by_text("command line").wait_for()
        page.get_by_role("button", name="Today").click()
        living.wait_for()
        assert "from=" in page.url
        page.get_by_label("From", exact=True).fill("2020-01-01")
        page.get_by_role("alert").get_by_text(
            "one year at most"
        ).wait_for()  # it has taken this day
        page.get_by_label("To", exact=True).fill("2020-01-02")
        page.get_by_text("No training that you may read ran in these days.").wait_for()
        page.get_by_role("button", name="7 days").click()
        living.wait_for()
        with page.expect_download() as saved:
            page.get_by_role("link", name="CSV").click()
        rows = Path(saved.value.path()).read_text().splitlines()
        assert rows[0].startswith("job,dag_id,start,end,basis,runs,instance_seconds,")
        assert any(row.startswith("living,,") for row in rows)


def test_a_training_goes_on_from_a_checkpoint_as_a_new_run(site: Site):
    with site.page() as page:
        site.open(page, "saved", "checkpoints")
        row = page.get_by_role("row").filter(has_text="read back")
        row.get_by_role("button", name="Restore step 20").click()
        page.get_by_role("dialog").get_by_role("button", name="Run again").click()
        page.get_by_role("dialog").get_by_role("link", name="saved-again-").click()
        page.get_by_text("succeeded", exact=True).first.wait_for()
        page.get_by_role("tab", name="Logs").click()
        page.get_by_role("log").get_by_text("goes on after step 20").wait_for()


def test_the_plan_is_shown_as_a_picture_and_only_where_there_is_one(site: Site):
    with site.page() as page:
        site.open(page, "done", "plan")
        page.get_by_role("row", name=re.compile("Time of a step")).wait_for()
        split = page.get_by_role("img", name="1 replica of the data, each of 3 pipeline stages")
        assert split.inner_text().split()[-3:] == ["0", "1", "2"]
        page.get_by_text("Nothing is measured: the split is only shown").wait_for()
        site.open(page, "broken")
        assert page.get_by_role("tab", name="Plan").count() == 0


def test_the_document_is_shown_as_it_ran(site: Site):
    with site.page() as page:
        site.open(page, "done", "configuration")
        page.get_by_text("name: done").wait_for()
        values = page.get_by_role("row").filter(has_text="spec.roles[1].restartPolicy")
        assert values.inner_text().split() == [
            "spec.roles[1].restartPolicy",
            "OnFailure",
            "framework",
        ]
        written = page.get_by_role("row").filter(has_text="spec.roles[1].replicas")
        assert written.count() == 0
        page.get_by_label("Values shown").select_option("All")
        written.get_by_text("user", exact=True).wait_for()


def test_a_training_is_edited_and_run_again_once_its_mistakes_are_mended(site: Site):
    with site.page() as page:
        site.open(page, "saved", "configuration")
        page.get_by_role("button", name="Edit and run").click()
        run, found = (
            page.get_by_role("button", name="Run", exact=True),
            page.get_by_label("Mistakes"),
        )
        found.get_by_text("no mistakes").wait_for()
        page.get_by_text("framework: custom").click()
        page.keyboard.press("End")
        page.keyboard.type("<b>")
        found.get_by_text("no framework is called 'custom<b>'").wait_for()
        page.locator(".cm-lint-marker-error").wait_for()
        assert run.is_disabled()
        page.reload()  # what was typed is kept
        found.get_by_text("1 mistake").wait_for()
        found.get_by_role("button", name="line 6").click()
        page.keyboard.type("framework: custom")
        found.get_by_text("no mistakes").wait_for()
        page.keyboard.press("Escape")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.closest('.cm-editor') === null")
        run.dblclick()
        page.get_by_role("link", name="saved-edited-").click()
        page.get_by_text("succeeded", exact=True).first.wait_for()
        site.open(page, "saved")
        told = page.get_by_text(re.compile("run again edited by .*: saved-edited-"))
        told.wait_for()
        assert told.count() == 1
        site.open(page, "saved", "configuration")
        page.get_by_role("button", name="Run on one machine").click()
        page.get_by_text("airflow-training run saved-single.yaml").wait_for()
        found.get_by_text("no mistakes").wait_for()
        with page.expect_download() as saved:
            page.get_by_role("link", name="Download").click()
        assert "runtime:\n    name: local\n" in Path(saved.value.path()).read_text()
        check_page(page, "editor")
        site.open(page, "done", "configuration")
        assert page.get_by_role("button", name="Run on one machine").is_disabled()
        page.get_by_text("this job cannot run as one instance").wait_for()


def test_all_can_be_done_with_the_keyboard(site: Site):
    with site.page() as page:
        site.open(page, "done")
        page.get_by_role("tab", name="Overview").focus()
        page.keyboard.press("ArrowRight")
        page.locator("figure[data-metric=loss] canvas").wait_for()
        assert "tab=charts" in page.url


@pytest.mark.parametrize(
    ("width", "dark"),
    [
        pytest.param(360, True, id="narrow-dark"),
        pytest.param(1440, False, id="wide-light"),
        pytest.param(360, False, id="narrow-light", marks=pytest.mark.soak),
        pytest.param(1440, True, id="wide-dark", marks=pytest.mark.soak),
    ],
)
def test_every_page_fits_and_is_accessible(site: Site, width: int, dark: bool):
    with site.page(width=width, dark=dark) as page:
        page.get_by_role("link", name="done").wait_for()
        check_page(page, "list")
        for tab in TABS:
            site.open(page, "done", tab)
            page.wait_for_load_state("networkidle") if tab == "configuration" else None
            check_page(page, tab)
        site.open(page, "broken")
        page.get_by_role("alert").wait_for()
        check_page(page, "failed")
        page.get_by_role("link", name="Usage").click()
        page.get_by_role("row", name="All").wait_for()
        check_page(page, "usage")
