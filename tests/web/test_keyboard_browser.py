"""Everything that the pages offer is done with a keyboard alone: no pointer is used here, and focus is seen and never caught."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.web.site import CHROMIUM, Site

pytest.importorskip("playwright.sync_api")
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]
MOST_STOPS = 150
FOCUSED = """() => {
    const at = document.activeElement;
    if (at === null || at === document.body) return null;
    const box = at.getBoundingClientRect();
    const around = [at, at.parentElement, at.nextElementSibling, at.parentElement?.querySelector("[data-focus-visible], [data-focus]")];
    const marked = each => {
        if (!each) return false;
        const style = getComputedStyle(each);
        return (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0) || style.boxShadow !== "none";
    };
    return {
        name: at.getAttribute("aria-label") || at.labels?.[0]?.textContent || at.textContent.trim() || at.placeholder || at.tagName,
        role: at.getAttribute("role") || at.tagName.toLowerCase(),
        seen: around.some(marked),
        top: box.top + scrollY,
    };
}"""


def stops(page: Any) -> list[dict[str, Any]]:
    """Press Tab until focus leaves the page; tell where it was."""
    found: list[dict[str, Any]] = []
    for _ in range(MOST_STOPS):
        page.keyboard.press("Tab")
        at = page.evaluate(FOCUSED)
        if at is None:
            return found
        found.append(at)
    raise AssertionError(f"focus is caught: {[each['name'] for each in found[-8:]]}")


def go(page: Any, name: str) -> None:
    """Go by Tab alone to what has this name (a regular expression), round by the beginning of the page if need be."""
    passed: list[str] = []
    for _ in range(2 * MOST_STOPS):
        page.keyboard.press("Tab")
        at = page.evaluate(FOCUSED)
        if at is not None and re.fullmatch(name, at["name"]):
            return
        passed.append(at["name"] if at else "")
    raise AssertionError(f"no way to {name}: {passed}")


def press(page: Any, name: str, key: str = "Enter") -> None:
    go(page, name)
    page.keyboard.press(key)


@pytest.mark.parametrize(
    "tab", ["overview", "charts", "data", "predictions", "logs", "checkpoints", "plan", "environment", "configuration"]
)  # fmt: skip
def test_focus_is_seen_at_every_stop_and_leaves_the_page_at_its_end(site: Site, tab: str):
    with site.page() as page:
        site.open(page, "done", tab)
        page.get_by_role("tabpanel").locator(
            "button:visible, input:visible, table:visible, pre:visible"
        ).first.wait_for()
        found = stops(page)
        assert len(found) > 3
        unseen = [each["name"][:60] for each in found if not each["seen"]]
        assert unseen == []


def test_a_training_is_paused_resumed_scaled_and_stopped(site: Site):
    with site.page() as page:
        site.open(page, "living")
        dialog = page.get_by_role("dialog")
        press(page, "Kill")
        dialog.wait_for()
        page.keyboard.press("Escape")
        dialog.wait_for(state="detached")
        assert page.evaluate(FOCUSED)["name"] == "Kill", "back where one came from"
        page.keyboard.press("Enter")
        dialog.wait_for()
        caught = []
        for _ in range(8):  # within a dialog focus goes round
            page.keyboard.press("Tab")
            caught.append(page.evaluate("document.activeElement.closest('[role=dialog]') !== null"))
        assert all(caught)
        page.keyboard.press("Escape")
        dialog.wait_for(state="detached")
        press(page, "Pause")
        dialog.wait_for()
        page.keyboard.press("Enter")
        page.get_by_text("paused", exact=True).first.wait_for()
        press(page, "Resume")
        page.get_by_text("running", exact=True).first.wait_for()
        press(page, "Scale")
        dialog.wait_for()
        page.keyboard.press("Escape")
        dialog.wait_for(state="detached")
        press(page, "Stop")
        dialog.wait_for()
        go(page, "Reason.*")
        page.keyboard.type("by hand")
        page.keyboard.press("Enter")
        page.get_by_text("stopped", exact=True).first.wait_for()
        page.get_by_text("by hand").first.wait_for()


def test_trainings_are_found_sorted_chosen_and_compared(site: Site):
    with site.page() as page:
        page.get_by_role("link", name="done").wait_for()
        go(page, "Filter by name")
        page.keyboard.type("done")
        page.get_by_role("link", name="broken").wait_for(state="detached")
        for _ in "done":
            page.keyboard.press("Backspace")
        page.get_by_role("link", name="broken").wait_for()
        press(page, r"Job\W*")
        page.locator("th[aria-sort=ascending]").filter(has_text="Job").wait_for()
        for run in ("done", "broken"):
            press(page, f"Choose {run} .*", "Space")
        page.get_by_text("2 chosen").wait_for()
        press(page, "Compare")
        page.get_by_role("heading", name="2 trainings compared").wait_for()
        press(page, "All trainings")
        press(page, "broken")
        press(page, "Open the log of .*")
        page.get_by_role("log").get_by_text("is no learning rate").last.wait_for()


def test_tabs_charts_and_predictions_are_gone_through(site: Site):
    with site.page() as page:
        site.open(page, "done")
        go(page, "overview|Overview")
        page.keyboard.press("ArrowRight")
        chart = page.locator("figure[data-metric=loss]")
        chart.locator("canvas").first.wait_for()
        press(page, "Log scale", "Space")
        go(page, "Smoothing")
        page.keyboard.press("ArrowDown")
        with page.expect_download():
            press(page, "CSV")
        press(page, "Heat map")
        page.get_by_role("figure").first.wait_for()
        go(page, "charts|Charts")
        page.keyboard.press("ArrowRight")
        # the next key moves on from it
        page.get_by_role("tab", name="data", selected=True).wait_for()
        page.keyboard.press("ArrowRight")
        page.get_by_role("heading", name="Step 20").wait_for()
        go(page, "Step")
        page.keyboard.press("ArrowLeft")
        page.get_by_role("heading", name="Step 15").wait_for()


def test_a_log_is_searched_and_its_errors_are_gone_through(site: Site):
    with site.page() as page:
        site.open(page, "broken", "logs")
        log = page.get_by_role("log")
        log.get_by_role("button").first.wait_for()
        press(page, "Next error")
        page.wait_for_url(re.compile("offset="))
        go(page, "Search all logs")
        page.keyboard.type("^valueerror")
        page.keyboard.press("Enter")
        hits = page.get_by_role("region", name="Hits")
        hits.get_by_text(re.compile(r"^\d hits?$")).wait_for()
        press(page, ".*ValueError: <img.*")
        log.get_by_text("ValueError: <img").first.wait_for()
        with page.expect_download():
            press(page, "Download")


def test_the_editor_is_entered_and_left_and_usage_is_read(site: Site):
    with site.page() as page:
        site.open(page, "saved", "configuration")
        press(page, "Edit and run")
        page.get_by_label("Mistakes").get_by_text("no mistakes").wait_for()
        for _ in range(MOST_STOPS):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.closest('.cm-content') !== null"):
                break
        else:
            raise AssertionError("the editor is never reached")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.closest('.cm-editor') !== null"), "it indents"
        page.keyboard.press("Escape")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.closest('.cm-editor') === null")
        press(page, "Usage")
        go(page, "By")
        page.keyboard.press("End")
        page.get_by_role("row", name="saved").wait_for()
        press(page, "Today")
        with page.expect_download():
            press(page, "CSV")
