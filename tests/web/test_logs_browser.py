"""The logs of a run in a real browser: colours, numbers of lines, very many instances, keys, phones, a task's tab."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.web.site import CHROMIUM, Site, check_page

pytest.importorskip("playwright.sync_api")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]

STEP_BYTES = len("step 1 \x1b[32mgreen\x1b[0m <b>not bold</b>\n")
"""Of a line of the site's training, while steps have one digit."""


def answer_with_instances(page: Any, site: Site, run: str, count: int) -> None:
    """Let a run have so many workers; their merged log names what was asked for."""
    path = f"/training/api/dags/~/trainings/{site.uids[run]}"
    detail = page.request.get(f"{site.base}{path}").json()
    worker = next(each for each in detail["status"]["instances"] if each["role"] == "worker")
    detail["status"]["instances"] = [{**worker, "index": index} for index in range(count)]
    page.route(f"**{path}", lambda route: route.fulfill(json=detail))
    event = f"event: detail\ndata: {json.dumps(detail)}\n\n"
    page.route(
        f"**{path}/live", lambda route: route.fulfill(content_type="text/event-stream", body=event)
    )

    def merged(route: Any) -> None:
        asked = route.request.url.partition("?")[2]
        line = {"role": "worker", "index": 0, "attempt": 0, "offset": 0, "time": 1_700_000_000.25}
        page_of = {"before": "", "after": "x", "begins": True, "eof": True}
        route.fulfill(json={**page_of, "lines": [{**line, "severity": "info", "text": asked}]})

    page.route(re.compile(r"/log/lines\?"), merged)


def colour_of(page: Any, text: str) -> tuple[int, int, int]:
    """Return the colour of a line of the log."""
    line = page.get_by_role("log").get_by_text(text).first
    found = line.evaluate("each => getComputedStyle(each).color")
    red, green, blue = (int(each) for each in re.findall(r"\d+", found)[:3])
    return red, green, blue


def test_a_traceback_is_red_and_a_count_of_errors_is_not(site: Site):
    text = "3 errors were passed over: 0 errors\nTraceback (most recent call last):\n  in step\nOdd: x\nfine\n"
    with site.page() as page:
        answer = {"start": 0, "end": len(text), "eof": True, "generation": "a", "inside": False}
        page.route(
            re.compile(r"/log\?"),
            lambda route: route.fulfill(json={**answer, "text": text, "errors": [1, 2, 3]}),
        )
        site.open(page, "done", "logs")
        page.get_by_role("log").get_by_text("fine").wait_for()
        plain = colour_of(page, "fine")
        assert colour_of(page, "0 errors") == plain
        for line in ("Traceback", "in step", "Odd: x"):
            red, green, blue = colour_of(page, line)
            assert red > 2 * max(green, blue), line
    with site.page(dark=True) as page:
        site.open(page, "broken", "logs")
        page.get_by_role("log").get_by_text("ValueError: <img").wait_for()
        assert colour_of(page, "ValueError: <img") != colour_of(page, "step 5")
        check_page(page, "logs in the dark")


def test_lines_are_numbered_linked_and_walked_with_keys(site: Site):
    with site.page() as page:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        site.open(page, "broken", "logs")
        log = page.get_by_role("log")
        log.get_by_text("ValueError: <img").wait_for()
        assert page.get_by_label("Follow").count() == 0, "nothing follows what is complete"
        page.get_by_text(re.compile(", complete$")).wait_for()
        log.get_by_role("button", name="Link to line 3", exact=True).click()
        page.get_by_text("link copied").wait_for()
        assert page.evaluate("navigator.clipboard.readText()") == page.url
        assert re.search(rf"offset={2 * STEP_BYTES}&line=3(&|$)", page.url)
        log.press("n")
        page.wait_for_url(re.compile(rf"offset={5 * STEP_BYTES}&line=6(&|$)"))
        log.press("n")
        page.get_by_text("no error after this line").wait_for()
        log.get_by_role("button", name="Link to line 5", exact=True).click()
        log.press("N")
        page.get_by_text("no error before this line").wait_for()
        log.press("G")
        log.press("N")
        page.wait_for_url(re.compile(rf"offset={5 * STEP_BYTES}&line=6(&|$)"))
        log.press("/")
        page.keyboard.type("step 2 ")
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile(rf"offset={STEP_BYTES}&line=2(&|$)"))
        page.get_by_role("button", name="Keys").click()
        page.get_by_text("previous error", exact=False).last.wait_for()
        page.get_by_label("Wrap").uncheck(force=True)
        assert log.get_by_text("ValueError: <img").evaluate(
            "each => getComputedStyle(each).whiteSpace"
        ) in ("pre", "preserve nowrap")


def test_a_place_in_a_long_log_is_a_byte_until_its_line_is_known(site: Site):
    line = "a line of the log\n"
    last = 500_000
    reads: list[str] = []

    def stretch(route: Any) -> None:
        asked = dict(each.split("=") for each in route.request.url.partition("?")[2].split("&"))
        reads.append(asked["offset"])
        size, offset = int(asked["size"]), int(asked["offset"])
        start = offset if offset >= 0 else last * len(line) + offset
        text = (line * (2 + size // len(line)))[start % len(line) :][:size]
        text = text[: text.rindex("\n") + 1]
        answer = {"generation": "a", "inside": False, "errors": [], "eof": True}
        route.fulfill(json={**answer, "start": start, "end": start + len(text), "text": text})

    with site.page() as page:
        page.route(re.compile(r"/log\?"), stretch)
        page.route(
            re.compile(r"/log/line\?"),
            lambda route: route.fulfill(
                json={"offset": 399_999 * len(line), "lines": last, "bytes": 0, "ends": True}
            ),
        )
        site.open(page, "done", "logs")
        page.get_by_text("Byte", exact=True).wait_for()
        page.get_by_label("Go to line").fill("400000")
        page.keyboard.press("Enter")
        page.get_by_text("Line", exact=True).wait_for()
        log = page.get_by_role("log")
        log.get_by_role("button", name="Link to line 400000", exact=True).wait_for()
        log.get_by_role("button", name="Link to line 399999", exact=True).wait_for()
        page.reload()
        log.get_by_role("button", name="Link to line 400000", exact=True).wait_for()
        log.press("Home")  # what is before is read too, and no line is cut
        page.get_by_text("bytes 6,872,328 to").wait_for()
        log.press("Home")
        log.get_by_role("button", name="Link to line 381797", exact=True).wait_for()
        texts = log.evaluate(
            "each => [...each.querySelectorAll('button')].map(button => button.nextSibling.textContent)"
        )
        assert set(texts) == {line.strip()}


def test_of_very_many_instances_some_are_shown_together_and_each_is_found_by_typing(site: Site):
    with site.page() as page:
        answer_with_instances(page, site, "done", 300)
        site.open(page, "done", "logs")
        instance = page.get_by_label("Instance", exact=True)
        instance.fill("worker 128 to 255, by time")
        log = page.get_by_role("log")
        log.get_by_text(re.compile(r"role=worker.*first=128&count=128")).wait_for()
        log.get_by_text(re.compile(r"^\d\d:\d\d:\d\d\.250$")).wait_for()
        with page.expect_request(re.compile(r"/log\?role=worker&index=1&")):
            instance.fill("worker-1")
        check_page(page, "very many logs")


def test_on_a_phone_the_log_comes_first_and_the_rest_is_folded(site: Site):
    with site.page(width=360, height=760) as page:
        site.open(page, "broken", "logs")
        log = page.get_by_role("log")
        log.get_by_text("ValueError: <img").wait_for()
        assert not page.get_by_label("Search all logs").is_visible()
        assert not page.get_by_role("button", name="Next error").is_visible()
        assert log.bounding_box()["height"] > 0.6 * 760
        check_page(page, "logs on a phone")
        page.get_by_role("button", name="More").click()
        page.get_by_role("button", name="Search").wait_for()
        assert page.get_by_role("button", name="Search").is_disabled(), "nothing to search for"
        page.get_by_label("Instance").select_option("All of worker, by time")
        log.get_by_text("step 5").first.wait_for()
        assert not log.get_by_text(re.compile(r"^\d\d:\d\d:\d\d\.\d{3}$")).first.is_visible()
        check_page(page, "logs by time on a phone")


def test_an_instance_that_is_gone_is_not_another_one(site: Site):
    answer = {"start": 0, "end": 5, "eof": True, "generation": "a", "inside": False, "errors": []}
    with site.page() as page:
        page.route(
            re.compile(r"/log\?role=worker&index=9&attempt=2&"),
            lambda route: route.fulfill(json={**answer, "text": "gone\n"}),
        )
        where = f"{site.base}/runs/{site.uids['broken']}?tab=logs"
        page.goto(f"{where}&instance=worker-9&attempt=2&offset=0")
        page.get_by_role("log").get_by_text("gone").wait_for()
        assert page.get_by_label("Instance").input_value() == "worker-9"
