"""The charts of a run in a real browser: what is zoomed, named, ordered and given away."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.web.site import CHROMIUM, Site, check_page

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


def series(name: str, index: int) -> dict[str, Any]:
    """Return a made-up series of 100 steps, each rank above the one before it."""
    steps = list(range(100))
    return {
        "name": name,
        "role": "worker",
        "index": index,
        "rank": index,
        "x_step": steps,
        "x_time": [1_700_000_000.0 + step for step in steps],
        "y": [index + 1 / (1 + step) for step in steps],
        "total": len(steps),
    }


def answer_with_ranks(page: Any, ranks: int, names: Sequence[str]) -> None:
    """Let the series of every run be those of so many made-up ranks."""

    def answer(route: Any) -> None:
        asked = parse_qs(urlsplit(route.request.url).query).get("name", [])
        made = [series(name, index) for name in asked for index in range(ranks)]
        route.fulfill(json={"names": list(names), "series": made, "bands": []})

    page.route(re.compile(r"/series(\?|$)"), answer)


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


def test_each_of_twenty_ranks_has_a_name_and_is_hidden_in_all_charts(site: Site):
    with site.page() as page:
        answer_with_ranks(page, 20, ["loss", "accuracy"])
        site.open(page, "done", "charts")
        loss, accuracy = (
            page.locator(f"figure[data-metric={name}]") for name in ("loss", "accuracy")
        )
        loss.get_by_role("img", name="Chart of loss: 20 lines").wait_for()
        box = loss.locator(".u-over").bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        loss.get_by_text(re.compile(r"^worker-(\d+) rank \1: \1\.02 at (49|50)$")).wait_for()
        loss.get_by_text("20 ranks", exact=True).click()
        loss.get_by_label("worker-17 rank 17", exact=True).uncheck()
        loss.get_by_text("20 ranks, 19 shown").wait_for()
        for name in ("loss", "accuracy"):
            page.get_by_role("img", name=f"Chart of {name}: 19 of 20 lines").wait_for()
        accuracy.get_by_text("20 ranks, 19 shown").click()
        accuracy.get_by_label("Find ranks").fill("rank 1")
        accuracy.get_by_role("button", name="None").click()
        loss.get_by_text("20 ranks, 9 shown").wait_for()  # but for rank 1 and 10 to 19
        accuracy.get_by_role("button", name="Only worker-12 rank 12").click()
        loss.get_by_text("20 ranks, 1 shown").wait_for()
        check_page(page, "ranks")


def test_a_rank_that_is_clicked_in_a_legend_is_hidden_in_all_charts(site: Site):
    with site.page() as page:
        answer_with_ranks(page, 3, ["loss", "accuracy"])
        site.open(page, "done", "charts")
        page.get_by_label("Smoothing").select_option("0.9")
        legend = page.locator("figure[data-metric=loss] .u-legend")
        legend.get_by_text("worker-1 rank 1", exact=True).click()
        for name in ("loss", "accuracy"):
            page.get_by_role("img", name=f"Chart of {name}: 2 of 3 lines").wait_for()
        legend.get_by_text("worker-1 rank 1", exact=True).click()
        page.get_by_role("img", name="Chart of accuracy: 3 lines").wait_for()


def test_what_says_most_comes_first(site: Site):
    with site.page() as page:
        names = ["accuracy", "grad_norm", "learning_rate", "loss", "other", "val_loss"]
        answer_with_ranks(page, 2, names)
        site.open(page, "done", "charts")
        page.locator("figure[data-metric=other] canvas").wait_for()
        shown = page.locator("figure").evaluate_all("all => all.map(each => each.dataset.metric)")
        assert shown == ["loss", "val_loss", "accuracy", "learning_rate", "grad_norm", "other"]
