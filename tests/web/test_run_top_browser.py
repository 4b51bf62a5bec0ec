"""The top of a run in a real browser: why, when and what next, and its buttons without a mouse."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.web.site import CHROMIUM, Site, check_page

pytest.importorskip("playwright.sync_api")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]
LONG_ID = "scheduled__2026-01-31T12:00:00.123456+00:00__" + "of_a_very_long_name_" * 5


def answer_with(page: Any, site: Site, run: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Let the page of a run show it with something changed."""
    path = f"**/training/api/dags/*/trainings/{site.uids[run]}"

    def changed() -> dict[str, Any]:
        address = f"{site.base}/training/api/dags/~/trainings/{site.uids[run]}"
        detail: dict[str, Any] = page.request.get(address).json()
        change(detail)
        return detail

    def event() -> str:
        return f"retry: 600000\nid: 1\nevent: detail\ndata: {json.dumps(changed())}\n\n"

    page.route(path, lambda route: route.fulfill(json=changed()))
    page.route(
        f"{path}/live",
        lambda route: route.fulfill(content_type="text/event-stream", body=event()),
    )


def press_tab_until(page: Any, name: str) -> None:
    """Go from one thing to the next, as who has only a keyboard does."""
    for _ in range(40):
        page.keyboard.press("Tab")
        if focused(page) == name:
            return
    raise AssertionError(f"{name} is never reached")


def focused(page: Any) -> str:
    return str(page.evaluate("document.activeElement.textContent"))


def test_a_cause_says_who_how_why_what_to_do_and_what_the_next_run_may_do(site: Site):
    def advise(detail: dict[str, Any]) -> None:
        detail["status"]["advice"] = ["set resources.limits.memory of master to 4Gi"]

    with site.page() as page:
        answer_with(page, site, "broken", advise)
        site.open(page, "broken")
        alert = page.get_by_role("alert")
        lines = [each for each in alert.inner_text().splitlines() if each.strip()]
        assert re.fullmatch(
            r"master-0: exit code 1 \(python-exception\): ValueError: .* rate", lines[0]
        )
        assert re.fullmatch(r"What to do: Read the traceback: .*train\.py:\d+", lines[1])
        assert lines[2] == "Next time: set resources.limits.memory of master to 4Gi"
        assert lines[-1].endswith("% sure). Not tried again: maxRestarts 0 is used up")
        assert alert.locator("pre").count() == 0, "the headline holds the proof already"
        assert page.get_by_text("none allowed", exact=True).is_visible()
        assert page.get_by_text("Ended at step").is_visible()
        assert page.title() == "failed - broken"
        page.get_by_role("link", name="Trainings").click()
        page.get_by_role("row", name="broken").wait_for()
        assert page.title() == "Trainings"


def test_a_proof_that_the_headline_lacks_stands_below_it(site: Site):
    def prove(detail: dict[str, Any]) -> None:
        detail["status"]["root_cause"]["evidence"] = "RuntimeError: NaN in the loss; see above"

    with site.page() as page:
        answer_with(page, site, "broken", prove)
        site.open(page, "broken")
        proof = page.get_by_role("alert").locator("pre")
        assert proof.inner_text() == "RuntimeError: NaN in the loss; see above"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_run_that_waits_says_why_and_how_long_earlier_ones_waited(site: Site, dark: bool):
    def wait(detail: dict[str, Any]) -> None:
        detail["summary"] |= {"phrase": "queued", "run_id": LONG_ID}
        waits = {"median_seconds": 180, "shortest_seconds": 60, "longest_seconds": 540, "runs": 5}
        detail["status"] |= {
            "state": "Queued",
            "reason": "Queued",
            "message": "2 jobs are before it in queue research",
            "started_at": None,
            "expected_start": waits,
        }

    with site.page(width=360, dark=dark) as page:
        answer_with(page, site, "living", wait)
        site.open(page, "living")
        page.get_by_text("2 jobs are before it in queue research", exact=True).wait_for()
        page.get_by_text(
            "Expected start: earlier runs waited 3 min (median of 5 runs, 1 min to 9 min; no promise)"
        ).wait_for()
        assert page.title() == "queued - living"
        check_page(page, "a waiting run on a phone")
        page.get_by_role("button", name="Copy the run id").click()
        page.get_by_text("copied", exact=True).wait_for()
        page.context.grant_permissions(["clipboard-read"])
        assert page.evaluate("navigator.clipboard.readText()") == LONG_ID


def test_on_a_phone_the_chosen_tab_is_in_sight(site: Site):
    with site.page(width=360, height=700) as page:
        site.open(page, "done", "environment")
        tab = page.get_by_role("tab", name="Environment")
        box = tab.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360
        assert page.evaluate("scrollY") == 0, "what stands above the tabs stays in sight"
        strip = page.get_by_role("tablist")
        assert "gradient" in strip.evaluate("each => getComputedStyle(each).maskImage")
        buttons = page.get_by_role("group", name="Actions").get_by_role("button")
        site.open(page, "living")
        buttons.nth(3).wait_for()
        boxes = [each.bounding_box() for each in buttons.all()]
        assert len({round(each["y"]) for each in boxes}) == 1, "one row"
        assert len({round(each["width"]) for each in boxes}) == 1


def test_a_dialog_gives_the_focus_back_to_its_button(site: Site):
    with site.page() as page:
        site.open(page, "living")
        page.wait_for_function("() => /^running \\d+ % - living$/.test(document.title)")
        page.get_by_text(re.compile(r"^in .*, \d\d:\d\d$")).wait_for()
        dialog = page.get_by_role("dialog")
        for leave in ("Escape", "Leave it", "Escape"):
            press_tab_until(page, "Stop")
            page.keyboard.press("Enter")
            dialog.wait_for()
            assert re.search(r"the work of [\d,]+ steps is lost", dialog.inner_text())
            if leave == "Escape":
                page.keyboard.press("Escape")
            else:
                press_tab_until(page, leave)
                page.keyboard.press("Enter")
            dialog.wait_for(state="detached")
            page.wait_for_function("() => document.activeElement.textContent === 'Stop'")
        site.open(page, "done")
        press_tab_until(page, "Run again")
        page.keyboard.press("Enter")
        dialog.wait_for()
        page.keyboard.press("Escape")
        dialog.wait_for(state="detached")
        page.wait_for_function("() => document.activeElement.textContent === 'Run again'")


def test_a_run_is_paused_and_resumed_without_a_mouse(site: Site):
    with site.page() as page:
        site.open(page, "living")
        page.get_by_role("button", name="Pause").wait_for()
        press_tab_until(page, "Pause")
        page.keyboard.press("Enter")
        page.wait_for_function(
            "() => document.activeElement.closest('[role=dialog] [type=submit]')"
        )
        page.keyboard.press("Enter")
        page.get_by_text("paused", exact=True).wait_for()
        page.wait_for_function(
            "() => document.activeElement.getAttribute('aria-label') === 'Actions'"
        )
        page.reload()
        page.get_by_text("paused", exact=True).wait_for()
        assert page.title() == "paused - living"
        page.get_by_role("button", name="Resume").wait_for()
        press_tab_until(page, "Resume")
        page.keyboard.press("Enter")
        page.get_by_text("running", exact=True).first.wait_for()
