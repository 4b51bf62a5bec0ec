"""The charts of a run in a real browser: what is zoomed, named, ordered and given away."""

from __future__ import annotations

from typing import Any

import pytest

from tests.web.site import CHROMIUM, Site

pytest.importorskip("playwright.sync_api")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]


def shown(chart: Any) -> tuple[float, float]:
    """Return from where to where a chart goes."""
    least, greatest = chart.get_by_role("img").get_attribute("data-range").split()
    return float(least), float(greatest)


def drag(page: Any, chart: Any, start: float, end: float) -> None:
    """Choose a stretch of a chart, as shares of its width."""
    box = chart.locator(".u-over").bounding_box()
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + start * box["width"], y)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], y, steps=5)
    page.mouse.up()


def test_what_was_looked_at_closer_stays_while_points_arrive(site: Site):
    with site.page() as page:
        site.open(page, "living", "charts")
        chart = page.locator("figure[data-metric=loss]")
        chart.locator("canvas").wait_for()
        first, last = shown(chart)
        with page.expect_request(
            lambda asked: "/series?name=loss" in asked.url and "&start=" in asked.url
        ):
            drag(page, chart, 0.25, 0.5)
        chart.get_by_role("button", name="All").wait_for()
        chosen = shown(chart)
        assert first < chosen[0] < chosen[1] < last
        for _ in range(2):
            with page.expect_response(lambda answer: "/series?name=loss" in answer.url) as answer:
                pass
            answer.value.finished()
        assert shown(chart) == chosen
        chart.locator(".u-over").dblclick()
        chart.get_by_role("button", name="All").wait_for(state="detached")
        page.wait_for_function(
            "last => Number(document.querySelector('[data-range]').dataset.range.split(' ')[1]) > last",
            arg=last,
        )
        assert shown(chart)[0] <= first
