"""The overview of a run in a real browser: its instances, roles, time line and story, and what was asked of it."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from tests.web.site import CHROMIUM, Site, check_page
from tests.web.test_run_top_browser import answer_with

pytest.importorskip("playwright.sync_api")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]


def ago(seconds: float) -> str:
    at = datetime.now(timezone.utc) - timedelta(seconds=seconds)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


STARTED = datetime.now(timezone.utc)


def before(seconds: float) -> str:
    """Return a time that is the same whenever it is asked for."""
    return (STARTED - timedelta(seconds=seconds)).isoformat()


def heads(page: Any) -> list[str]:
    names: list[str] = page.get_by_role("table").first.get_by_role("columnheader").all_inner_texts()
    return names


def test_instances_say_how_fast_they_are_and_when_they_were_heard(site: Site):
    with site.page() as page:
        site.open(page, "living")
        page.get_by_role("columnheader", name="Samples/s").wait_for()
        row = page.get_by_role("row", name="worker-1")
        row.get_by_text(re.compile(r"^\d+ s ago$")).wait_for()
        place = heads(page).index("Rank") - 1  # the first cell heads its row
        assert row.get_by_role("cell").nth(place).inner_text() == "2"
        assert "GPU" not in heads(page), "no instance has one"
        assert heads(page)[3:7] == ["Step", "Samples/s", "loss", "Last heard"]
        row.get_by_role("button", name="Log of worker-1").click()
        page.get_by_role("log").get_by_text("green").first.wait_for()


def test_who_was_not_heard_for_long_stands_out_and_who_never_began_has_no_log(site: Site):
    def silence(detail: dict[str, Any]) -> None:
        detail["heard"]["worker-0"] = ago(300)
        detail["attempts"] = [each for each in detail["attempts"] if each["role"] != "master"]

    with site.page() as page:
        answer_with(page, site, "living", silence)
        site.open(page, "living")
        late = page.get_by_role("row", name="worker-0").get_by_text(re.compile(r"^5 min"))
        late.wait_for()
        fine = page.get_by_role("row", name="worker-1").get_by_text(re.compile(r"^\d+ s ago$"))
        colour = "each => getComputedStyle(each).color"
        assert late.evaluate(colour) != fine.evaluate(colour)
        assert page.get_by_role("button", name="Log of worker-0").is_visible()
        assert page.get_by_role("button", name="Log of master-0").count() == 0


def test_what_an_instance_used_last_is_told_after_its_end(site: Site):
    def use(detail: dict[str, Any]) -> None:
        told = dict.fromkeys(("cpu_limit", "gpu_busy_percent", "gpu_memory_bytes"))
        told |= dict.fromkeys(("gpu_memory_limit_bytes", "memory_limit_bytes"))
        detail["usage"] = {
            "worker-0": {
                **told,
                "at": ago(60),
                "cpu_cores": 2.5,
                "memory_bytes": 3 << 30,
                "gpus": 0,
                "gpu_errors": [],
            }
        }

    with site.page() as page:
        answer_with(page, site, "done", use)
        site.open(page, "done")
        row = page.get_by_role("row", name="worker-0")
        row.get_by_text("last 2.5 cores").wait_for()
        row.get_by_text("last 3.0 GiB").wait_for()


def multiply(detail: dict[str, Any]) -> None:
    """Give a run 5,000 workers, of which every thousandth failed."""
    first = next(each for each in detail["status"]["instances"] if each["role"] == "worker")
    failed = {"state": "failed", "reason": "Error", "message": "exit code 1: CUDA out of memory"}
    detail["status"]["instances"] = [
        first | {"index": index} | (failed if index % 1000 == 999 else {}) for index in range(5000)
    ]


@pytest.mark.parametrize(
    ("width", "dark"),
    [pytest.param(360, True, id="narrow-dark"), pytest.param(1440, False, id="wide-light")],
)
def test_of_thousands_of_instances_each_can_be_reached_and_few_are_drawn(
    site: Site, width: int, dark: bool
):
    with site.page(width=width, dark=dark) as page:
        answer_with(page, site, "done", multiply)
        site.open(page, "done")
        page.get_by_text("5,000 of 5,000, those that do not run first").wait_for()
        table = page.locator("table").filter(has_text="worker-999")
        assert table.get_attribute("aria-rowcount") == "5001"
        names = table.get_by_role("rowheader")
        assert names.first.inner_text() == "worker-999", "it failed"
        scrolled = table.locator("xpath=..")
        place = scrolled.evaluate("each => each.scrollHeight - each.clientHeight")
        scrolled.evaluate("(each, top) => each.scrollTo(0, top)", place)
        last = page.get_by_role("rowheader", name="worker-4998", exact=True)
        last.wait_for()
        assert last.is_visible()
        assert page.locator("tr[aria-rowindex]").count() < 100
        check_page(page, "very many instances")
        page.get_by_label("Find instances").fill("worker-2345")
        page.get_by_text("1 of 5,000").wait_for()
        page.get_by_role("rowheader", name="worker-2345").wait_for()
        page.get_by_label("Find instances").fill("memory error")
        page.get_by_text("0 of 5,000").wait_for()


def multiply_with_logs(detail: dict[str, Any]) -> None:
    """Let each of 5,000 workers have a log, so that its name is a button."""
    multiply(detail)
    began = next(each for each in detail["attempts"] if each["role"] == "worker")
    detail["attempts"] = [began | {"index": index} for index in range(5000)]


def test_a_tall_window_is_full_of_rows_before_anything_is_scrolled(site: Site):
    with site.page(width=1080, height=3840) as page:
        answer_with(page, site, "done", multiply)
        site.open(page, "done")
        page.get_by_text("5,000 of 5,000, those that do not run first").wait_for()
        table = page.locator("table").filter(has_text="worker-999")
        assert table.get_by_role("row").first.get_attribute("aria-rowindex") == "1"
        scrolled = table.locator("xpath=..")
        bottom = scrolled.bounding_box()["y"] + scrolled.bounding_box()["height"]
        assert bottom > 2000
        page.wait_for_function(
            "bottom => [...document.querySelectorAll('tr[aria-rowindex]')].at(-1).getBoundingClientRect().bottom >= bottom",
            arg=bottom,
        )


def test_keys_go_on_scrolling_when_the_row_that_has_the_focus_leaves(site: Site):
    with site.page() as page:
        answer_with(page, site, "done", multiply_with_logs)
        site.open(page, "done")
        page.get_by_text("5,000 of 5,000, those that do not run first").wait_for()
        table = page.locator("table[aria-rowcount='5001']")
        scrolled = table.locator("xpath=..")
        first = table.get_by_role("button", name="Log of worker-999", exact=True)
        first.focus()
        scrolled.evaluate("each => each.scrollTo(0, 20000)")
        first.wait_for(state="detached")
        page.keyboard.press("End")
        page.get_by_role("button", name="Log of worker-4998", exact=True).wait_for()
        # and from there backwards, one name after the other
        page.keyboard.press("Home")
        first.wait_for()
        page.keyboard.press("Tab")
        assert first.evaluate("each => each === document.activeElement")


def test_an_arrow_leads_from_a_role_to_what_waits_for_it(site: Site):
    with site.page() as page:
        site.open(page, "done")
        page.locator("svg path[marker-end]").wait_for(state="attached")
        boxes = [
            page.get_by_title(name, exact=True).bounding_box() for name in ("master", "worker")
        ]
        assert boxes[0]["x"] < boxes[1]["x"]
        assert page.get_by_text("AddressKnown", exact=True).is_visible()
    with site.page(width=360) as page:
        site.open(page, "done")
        page.get_by_text("waits for master: AddressKnown").wait_for()
        assert page.locator("svg path[marker-end]").count() == 0


def tell(detail: dict[str, Any]) -> None:
    """Give a run waits, a restart, a pause and a checkpoint."""
    detail["summary"]["submitted_at"] = before(1000)
    detail["status"]["started_at"] = before(900)
    detail["checkpoints"] = [{"step": 1200, "at": before(300), "uri": "s3://b", "bytes": 1}]
    attempt = {"job_attempt": 0, "epoch": 0, "role": "master", "index": 0}
    again = [
        {**attempt, "attempt": 0, "started_at": before(800), "finished_at": before(600)},
        {**attempt, "attempt": 1, "started_at": before(500), "finished_at": None},
    ]
    others = [each for each in detail["attempts"] if each["role"] != "master"]
    detail["attempts"] = [*again, *others]


STORY = [
    ("Queued", "2 jobs are before it", 1000, "info", None),
    ("Paused", "paused by request", 600, "warning", None),
    ("Resumed", "after 90 s", 510, "info", None),
    ("InstanceRestarted", "exit code 1", 500, "error", "backoffLimit"),
]


def story(page: Any, site: Site) -> list[str]:
    """Answer with STORY; return the requests as they come."""
    asked: list[str] = []

    def answer(route: Any) -> None:
        asked.append(route.request.url)
        after = int(re.search(r"after=(\d+)", route.request.url).group(1))
        events = [
            {
                "seq": number,
                "at": before(seconds),
                "level": level,
                "reason": reason,
                "message": message,
                "role": "master" if rule else None,
                "index": 0 if rule else None,
                "attempt": None,
                "rule": rule,
            }
            for number, (reason, message, seconds, level, rule) in enumerate(STORY, 1)
            if number > after
        ]
        route.fulfill(json={"events": events, "more": False})

    page.route(f"**/trainings/{site.uids['living']}/events?*", answer)
    return asked


@pytest.mark.parametrize(("width", "dark"), [(1440, False), (360, True)])
def test_the_time_line_shows_waits_pauses_and_restarts_and_says_each_without_a_mouse(
    site: Site, width: int, dark: bool
):
    with site.page(width=width, dark=dark) as page:
        answer_with(page, site, "living", tell)
        story(page, site)
        site.open(page, "living")
        line = page.get_by_role("group", name=re.compile("^Time line"))
        line.get_by_role("button", name=re.compile("^The run was paused")).first.wait_for()
        said = page.locator("[aria-live=polite]").filter(
            has_text=re.compile(r"^(?:Queued: 2|\w+-0)")
        )
        line.get_by_role("button").first.focus()
        said.get_by_text(re.compile(r"^Queued: 2 jobs are before it, .*, 1 min 40 s$")).wait_for()
        for expected in (
            r"^master-0 waited to be started, .*, 1 min 40 s$",
            r"^master-0, attempt 0: .*, 3 min 20 s$",
            r"^The run was paused, .*, 1 min 30 s$",
        ):
            page.keyboard.press("ArrowRight")
            page.get_by_text(re.compile(expected)).wait_for()
        page.keyboard.press("End")
        page.get_by_text(re.compile(r"^Checkpoint of step 1,200, ")).wait_for()
        for told in ("another one followed", "waited", "the run was paused", "checkpoint"):
            assert page.get_by_text(told, exact=True).is_visible(), "the colours have a legend"
        check_page(page, "the overview")


def test_a_long_time_line_has_one_way_in_and_no_more_marks_than_it_has_room_for(site: Site):
    def never_began(detail: dict[str, Any]) -> None:
        tell(detail)
        first, *others = detail["status"]["instances"]
        waits = {"role": "master", "index": 7, "state": "succeeded"}
        detail["status"]["instances"] = [{**first, **waits}, first, *others]
        detail["checkpoints"] = [
            {"step": step, "at": before(800 - step / 10), "uri": "s3://b", "bytes": 1}
            for step in range(5000, 0, -1)
        ]

    with site.page() as page:
        answer_with(page, site, "living", never_began)
        story(page, site)
        site.open(page, "living")
        line = page.get_by_role("group", name=re.compile("^Time line"))
        line.get_by_role("button", name=re.compile("^Checkpoint of step 5,000, ")).wait_for()
        assert line.get_by_role("button").count() <= 220
        assert line.locator("button[tabindex='0']").count() == 1
        line.get_by_role("button").first.focus()
        row = "document.activeElement.closest('[data-line]')?.dataset.line"
        first = int(page.evaluate(row))
        page.keyboard.press("ArrowDown")
        assert int(page.evaluate(row)) > first


def test_events_are_sentences_that_are_filtered_and_only_new_ones_are_asked_for(site: Site):
    with site.page() as page:
        answer_with(page, site, "living", tell)
        asked = story(page, site)
        site.open(page, "living")
        events = page.get_by_role("listitem")
        events.nth(3).wait_for()
        assert (
            events.first.inner_text().splitlines()[-1] == "master-0 exit code 1 InstanceRestarted"
        )
        assert "backoffLimit" not in events.first.inner_text()
        page.get_by_text("Rules", exact=True).click()
        events.first.get_by_text("rule backoffLimit").wait_for()
        page.get_by_label("Level of events").select_option("Warnings and errors")
        events.nth(2).wait_for(state="detached")
        assert events.count() == 2
        page.get_by_label("Events that contain").fill("PAUSED request")
        events.nth(1).wait_for(state="detached")
        page.get_by_label("Events that contain").fill("nothing like it")
        page.get_by_text("No event matches.").wait_for()
        with page.expect_response(re.compile(r"/events\?.*after=4")):
            pass
        assert [each for each in asked if "after=0" in each] == asked[:1]


def test_a_story_without_events_says_so(site: Site):
    with site.page() as page:
        page.route(
            f"**/trainings/{site.uids['done']}/events?*",
            lambda route: route.fulfill(json={"events": [], "more": False}),
        )
        site.open(page, "done")
        page.get_by_text("No event yet.").wait_for()


def test_what_somebody_asked_is_said_to_all_until_it_is_done(site: Site):
    asked = {"action": "pause", "role": "", "replicas": None, "by": "ann", "at": ago(3)}

    with site.page() as page:
        answer_with(page, site, "living", lambda detail: detail.update(asked=asked))
        site.open(page, "living")
        buttons = page.get_by_role("group", name="Actions")
        for _ in range(2):
            said = page.get_by_text(re.compile(r"^pause asked by ann \d+ s ago: received$"))
            said.wait_for()
            for name, free in (("Pause", False), ("Scale", False), ("Stop", True), ("Kill", True)):
                button = buttons.get_by_role("button", name=name)
                assert (button.get_attribute("aria-disabled") != "true") is free, name
            page.reload()
        buttons.get_by_role("button", name="Pause").click(force=True)
        assert page.get_by_role("dialog").count() == 0
        page.unroute_all(behavior="wait")
        page.reload()
        page.get_by_role("button", name="Pause").wait_for()
        assert page.get_by_text("asked by").count() == 0
