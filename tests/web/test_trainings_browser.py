"""The list of trainings in a real browser: found, sorted, chosen, and opened where no DAG run has a place for them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.web.site import CHROMIUM, Site, check_page

pytest.importorskip("playwright.sync_api")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]
RUNS = {"done", "broken", "saved", "living"}


def jobs(page: Any) -> list[str]:
    """Return the jobs of the list from top to bottom."""
    names: list[str] = page.locator("tbody a").all_inner_texts()
    return names


def sort_by(page: Any, name: str, how: str) -> None:
    head = page.get_by_role("columnheader", name=name)
    head.get_by_role("button").click()
    page.locator(f"th[aria-sort={how}]").filter(has_text=name).wait_for()


def test_the_list_is_sorted_by_its_heads_and_the_address_keeps_that(site: Site):
    with site.page() as page:
        page.get_by_role("img", name=re.compile("loss from")).nth(2).wait_for()
        newest_first = jobs(page)
        sort_by(page, "Job", "ascending")
        assert jobs(page) == sorted(RUNS)
        sort_by(page, "Loss", "ascending")
        assert jobs(page)[-1] == "saved", "it told no loss, so that it comes last"
        low = jobs(page)[:3]
        sort_by(page, "Loss", "descending")
        assert jobs(page) == [*reversed(low), "saved"]
        page.reload()
        page.locator("th[aria-sort=descending]").filter(has_text="Loss").wait_for()
        page.get_by_role("img", name=re.compile("loss from")).nth(2).wait_for()
        assert jobs(page) == [*reversed(low), "saved"]
        sort_by(page, "Loss", "none")
        assert jobs(page) == newest_first


def test_what_the_server_does_not_answer_is_said_beside_what_it_told_before(site: Site):
    with site.page(refused="503") as page:
        page.get_by_role("link", name="done", exact=True).wait_for()
        lists = "**/training/api/trainings?*"
        page.route(lists, lambda route: route.fulfill(status=503, json={"detail": "locked"}))
        told = page.get_by_text("the server does not answer; trying again")
        told.wait_for()
        assert page.get_by_role("link", name="done", exact=True).is_visible()
        page.unroute(lists)
        told.wait_for(state="detached")


def test_how_far_each_run_is_stands_in_its_row(site: Site):
    with site.page() as page:
        done, living = (page.get_by_role("row", name=name) for name in ("done", "living"))
        done.get_by_text("20 of 20", exact=True).wait_for()
        done.get_by_role("img", name="100 % of its steps").wait_for()
        living.get_by_text(re.compile(r"^[\d,]+ of 100,000$")).wait_for()
        living.get_by_text(re.compile(r"^in .*, \d\d:\d\d$")).wait_for()


def test_runs_are_found_by_what_they_do_and_nothing_found_says_so(site: Site):
    with site.page() as page:
        page.get_by_role("link", name="done", exact=True).wait_for()
        page.get_by_label("State").select_option("Running")
        page.get_by_role("link", name="done", exact=True).wait_for(state="detached")
        assert jobs(page) == ["living"]
        page.get_by_label("State").select_option("Waiting")
        page.get_by_text("No training matches.").wait_for()
        assert "state=waiting" in page.url
        page.get_by_role("button", name="Show all").click()
        page.get_by_role("link", name="done", exact=True).wait_for()
        assert set(jobs(page)) == RUNS
        page.goto(f"{site.base}/?state=Failed&since=2000-01-01T00:00:00Z")
        page.get_by_text(re.compile("Only those that ended since .*2000")).wait_for()
        page.get_by_role("link", name="broken", exact=True).wait_for()
        assert jobs(page) == ["broken"]
        page.goto(f"{site.base}/?since=2100-01-01T00:00:00Z")
        page.get_by_text("No training matches.").wait_for()
        page.get_by_role("button", name="Whenever they ended").click()
        page.get_by_role("link", name="broken", exact=True).wait_for()


def test_what_was_chosen_stays_chosen_while_a_filter_hides_it(site: Site):
    with site.page() as page:
        stop = page.get_by_role("button", name="Stop")
        page.get_by_role("row", name="done").locator("label").click()
        page.get_by_role("row", name="broken").locator("label").click()
        page.get_by_text("2 chosen", exact=True).wait_for()
        page.get_by_label("State").select_option("Running")
        page.get_by_role("link", name="done", exact=True).wait_for(state="detached")
        assert page.get_by_text("2 chosen", exact=True).is_visible()
        assert page.get_by_role("button", name="Compare").is_enabled()
        assert stop.is_enabled()
        page.get_by_role("button", name="Clear").click()
        page.get_by_text("2 chosen", exact=True).wait_for(state="detached")
        assert stop.is_disabled()


def test_a_run_without_a_dag_opens_in_the_list_which_keeps_it_from_tab_to_tab(site: Site):
    with site.page() as page:
        page.goto(f"{site.base}/?run=~/{site.uids['broken']}")
        page.get_by_role("heading", name="broken", exact=True).wait_for()
        page.get_by_role("tab", name="Data").click()
        page.get_by_role("tab", name="Data", selected=True).wait_for()
        assert f"run=%7E%2F{site.uids['broken']}" in page.url
        page.get_by_role("alert").get_by_role("button").click()
        page.get_by_role("log").get_by_text("is no learning rate").last.wait_for()
        page.get_by_role("link", name="All trainings").click()
        page.get_by_role("link", name="done", exact=True).wait_for()


def test_a_list_of_none_says_how_one_begins(site: Site):
    with site.page() as page:
        page.route(
            "**/training/api/trainings?*",
            lambda route: route.fulfill(json={"trainings": [], "more": False, "next": None}),
        )
        page.reload()
        page.get_by_text("airflow-training run job.yaml --ui").wait_for()
        check_page(page, "a list of none")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_on_a_phone_a_row_has_a_second_line_for_what_finds_no_room(site: Site, dark: bool):
    with site.page(width=360, height=760, dark=dark) as page:
        page.get_by_text(re.compile("ago · took .* · command line · local · .*living$")).wait_for()
        for name in ("Job", "State", "Progress"):
            box = page.get_by_role("columnheader", name=name).bounding_box()
            assert box is not None
            assert box["x"] + box["width"] <= 360, name
        assert not page.get_by_role("columnheader", name="Submitted").is_visible()
        check_page(page, "the list on a phone")
