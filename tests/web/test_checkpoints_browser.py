"""The checkpoints of a run in a real browser: what is offered, and what is said of the rest."""

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


def saved(step: int, **more: Any) -> dict[str, Any]:
    return {
        "step": step,
        "at": f"2026-01-02T10:{step}:00Z",
        "uri": "s3://models/digits/nightly-4f1aa/1",
        "instance": None,
        "bytes": 500 << 20,
        "seconds": 3.4,
        "stall_seconds": 0.21,
        "state": "not read back",
        "told": "",
        "kept": True,
        "restorable": True,
        **more,
    }


def lineage(number: int, began: str, *checkpoints: Any, turns: Any = ()) -> dict[str, Any]:
    return {
        "number": number,
        "began": began,
        "began_at": "2026-01-02T09:00:00Z",
        "checkpoints": [*checkpoints],
        "turns": [*turns],
    }


PAGE = {
    "asked": True,
    "uri": "s3://models/digits",
    "every": "every 10 steps",
    "keep": 3,
    "keep_every": None,
    "resumed_from": [
        {
            "step": 41_200,
            "uri": "s3://models/digits/monday-12345/0",
            "instance": None,
            "text": "run monday",
            "run": {"dag": "~", "uid": "abc", "run_id": "monday"},
        }
    ],
    "passed_over": ["step 41300 is damaged: shards/ab: the digest is another"],
    "lineages": [
        lineage(
            1,
            "begun anew: worker-0: exit code 1",
            saved(50, state="damaged", told="shards/cd: the digest is another", restorable=False),
            saved(40, state="read back", told="by all 8 ranks"),
            saved(20, kept=False, restorable=False),
            turns=[
                {"at": "2026-01-02T10:51:00Z", "text": "from step 50 to step 40: it failed again"}
            ],
        ),
        lineage(0, "since the run began", saved(10)),
    ],
}


@pytest.mark.parametrize(
    ("width", "dark"),
    [pytest.param(360, True, id="narrow-dark"), pytest.param(1440, False, id="wide-light")],
)
def test_what_is_damaged_says_why_and_is_not_offered(site: Site, width: int, dark: bool):
    with site.page(width=width, dark=dark) as page:
        page.route(re.compile(r"/api/.*/checkpoints$"), lambda route: route.fulfill(json=PAGE))
        site.open(page, "saved", "checkpoints")
        rows = page.get_by_role("row")
        damaged = rows.filter(has_text="damaged")
        damaged.get_by_text("shards/cd: the digest is another").wait_for()
        page.get_by_role("button", name="Restore step 40").wait_for()
        offered = page.get_by_role("button", name=re.compile("^Restore")).all_inner_texts()
        assert offered == ["Restore step 40", "Restore step 10"]
        gone = page.get_by_text("Removed, or left behind when training went back.")
        assert gone.count() == 0
        history = page.get_by_text("Show 1 removed or left behind")
        history.click()
        gone.wait_for()
        assert page.get_by_role("button", name=re.compile("^Restore")).all_inner_texts() == offered
        history.click()
        gone.wait_for(state="detached")
        page.get_by_role("heading", name="Training begun anew: worker-0: exit code 1").wait_for()
        page.get_by_text("from step 50 to step 40: it failed again").wait_for()
        page.get_by_text("step 41300 is damaged").wait_for()
        link = page.get_by_role("link", name="run monday")
        assert link.get_attribute("href") == "/runs/abc"
        check_page(page, "checkpoints")


@pytest.mark.parametrize("width", [360, 1440])
def test_of_very_many_a_hundred_are_shown_first_and_one_dialog_serves_all(site: Site, width: int):
    many = {
        **PAGE,
        "lineages": [
            lineage(
                0,
                "since the run began",
                *(saved(step, at="2026-01-02T10:00:00Z") for step in range(300, 0, -1)),
            )
        ],
    }
    with site.page(width=width) as page:
        page.route(re.compile(r"/api/.*/checkpoints$"), lambda route: route.fulfill(json=many))
        site.open(page, "saved", "checkpoints")
        restores = page.get_by_role("button", name=re.compile("^Restore step"), include_hidden=True)
        page.get_by_text("100 of 300 checkpoints, the newest first").wait_for()
        assert page.locator("tbody tr").count() == 100
        restores.nth(99).wait_for()
        assert restores.count() == 100, "each row has one button"
        page.get_by_role("button", name="Show all").click()
        last = page.get_by_role("button", name="Restore step 1", exact=True)
        last.click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_text("from the checkpoint of step 1?").wait_for()
        dialog.get_by_role("button", name="Cancel").click()
        dialog.wait_for(state="detached")
        page.wait_for_function("document.activeElement?.textContent === 'Restore step 1'")
        assert page.locator("tbody tr").count() == restores.count() == 300
        check_page(page, "very many checkpoints")


def test_a_part_of_the_page_that_could_not_be_loaded_is_tried_again(site: Site):
    with site.page(refused="ERR_FAILED") as page:
        away = True
        asked: list[str] = []

        def answer(route: Any) -> None:
            asked.append(route.request.url)
            route.abort() if away else route.continue_()

        page.route(re.compile(r"/later\.[^/]*\.js"), answer)
        site.open(page, "saved", "checkpoints")
        again = page.get_by_role("button", name="Try again")
        again.wait_for()
        assert len(set(asked)) >= 3, "some browsers keep a failure for ever"
        away = False
        again.click()
        page.get_by_role("button", name="Restore step 30").wait_for()


def test_a_save_that_its_process_has_read_back_is_told_so(site: Site):
    with site.page() as page:
        site.open(page, "saved", "checkpoints")
        row = page.get_by_role("row").filter(has=page.get_by_role("button", name="Restore step 30"))
        row.get_by_text("read back", exact=True).wait_for()
        row.get_by_text("by its process").wait_for()
        row.get_by_role("cell", name="48.9 KiB", exact=True).wait_for()


def test_a_job_that_saves_nothing_says_how(site: Site):
    with site.page() as page:
        site.open(page, "done", "checkpoints")
        page.get_by_text("This job keeps no checkpoints").wait_for()
        page.get_by_text("checkpoint: {uri: checkpoints}").wait_for()
