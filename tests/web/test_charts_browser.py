"""The charts of a run in a real browser: what is zoomed, named, ordered and given away."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
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


def answer_with_ranks(
    page: Any, ranks: int, names: Sequence[str], *, samples_of_a_step: int | None = None
) -> None:
    """Let the series of every run be those of so many made-up ranks."""

    def answer(route: Any) -> None:
        asked = parse_qs(urlsplit(route.request.url).query).get("name", [])
        made = [series(name, index) for name in asked for index in range(ranks)]
        if samples_of_a_step is not None:
            for each in made:
                each["x_samples"] = [samples_of_a_step * (1 + step) for step in each["x_step"]]
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


def test_of_one_rank_alone_all_points_are_given_away(site: Site):
    with site.page() as page:
        answer_with_ranks(page, 3, ["loss"])
        site.open(page, "done", "charts")
        chart = page.locator("figure[data-metric=loss]")
        csv = chart.get_by_role("button", name="CSV")
        chart.get_by_role("img", name="Chart of loss: 3 lines").wait_for()
        assert csv.get_attribute("title") == "About 1,000 points of each rank that is shown"
        for rank in (0, 2):
            chart.locator(".u-legend").get_by_text(f"worker-{rank} rank {rank}").click()
        chart.get_by_role("img", name="Chart of loss: 1 of 3 lines").wait_for()
        assert csv.get_attribute("title") == "All points of worker-1 rank 1"
        with (
            page.expect_request(lambda asked: "points=100000" in asked.url),
            page.expect_download() as saved,
        ):
            csv.click()
        _, *rows = Path(saved.value.path()).read_text().splitlines()
        assert len(rows) == 100
        assert all(row.startswith("loss,worker,1,1,") for row in rows)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_picture_has_the_background_of_the_page_and_says_what_it_shows(site: Site, dark: bool):
    with site.page(dark=dark) as page:
        answer_with_ranks(page, 20, ["loss"])
        site.open(page, "done", "charts")
        chart = page.locator("figure[data-metric=loss]")
        chart.get_by_role("img", name="Chart of loss: 20 lines").wait_for()
        with page.expect_download() as saved:
            chart.get_by_role("button", name="PNG").click()
        assert saved.value.suggested_filename == "loss.png"
        width, height, corner, inks = page.evaluate(
            """async bytes => {
                const image = await createImageBitmap(new Blob([Uint8Array.from(bytes)]));
                const canvas = new OffscreenCanvas(image.width, image.height);
                const context = canvas.getContext("2d");
                context.drawImage(image, 0, 0);
                const {data} = context.getImageData(0, 0, image.width, 36);  // the title
                const inks = new Set(Array.from({length: data.length / 4}, (_, at) => data[4 * at]));
                return [image.width, image.height, [...data.slice(0, 4)], inks.size];
            }""",
            list(Path(saved.value.path()).read_bytes()),
        )
        canvas = chart.locator("canvas").bounding_box()
        assert width > canvas["width"]
        assert height > canvas["height"] + 3 * 20  # title, axis, names
        panel = chart.evaluate("each => getComputedStyle(each).backgroundColor")
        assert panel == f"rgb({corner[0]}, {corner[1]}, {corner[2]})"
        assert corner[3] == 255
        assert (corner[0] < 128) is dark
        assert inks > 1


@pytest.mark.parametrize("told", [False, True])
def test_samples_are_an_axis_where_they_are_told(site: Site, told: bool):
    with site.page() as page:
        answer_with_ranks(page, 2, ["loss"], samples_of_a_step=64 if told else None)
        site.open(page, "done", "charts")
        chart = page.locator("figure[data-metric=loss]")
        chart.get_by_role("img", name="Chart of loss: 2 lines").wait_for()
        axis = page.get_by_label("Axis")
        if not told:
            assert axis.get_by_role("option", name="Samples").count() == 0
            return
        with page.expect_request(lambda asked: "axis=samples" in asked.url):
            axis.select_option("Samples")
        page.locator("[data-range='64 6400']").wait_for()


def test_charts_are_looked_at_closer_with_the_keyboard(site: Site):
    with site.page(width=360) as page:
        answer_with_ranks(page, 2, ["loss", "samples_per_second"])
        site.open(page, "done", "charts")
        chart = page.get_by_role("img", name="Chart of loss: 2 lines")
        chart.focus()
        for key, least, greatest in (
            ("+", 24.75, 74.25),
            ("Escape", 0, 99),
            ("+", 24.75, 74.25),
            ("ArrowRight", 37.125, 86.625),
        ):
            chart.press(key)
            for name in ("loss", "samples_per_second"):
                at = f"[data-metric={name}] [data-range='{least} {greatest}']"
                page.locator(at).wait_for()
        check_page(page, "charts")


def restart(page: Any, site: Site, at: float) -> None:
    """Let the run `done` have restarted an instance at a time."""
    path = f"/training/api/dags/~/trainings/{site.uids['done']}"
    detail = page.request.get(f"{site.base}{path}").json()
    begun = datetime.fromtimestamp(at, timezone.utc).isoformat()
    detail["attempts"].append({**detail["attempts"][0], "attempt": 1, "started_at": begun})
    page.route(f"**{path}", lambda route: route.fulfill(json=detail))
    event = f"event: detail\ndata: {json.dumps(detail)}\n\n"
    page.route(
        f"**{path}/live", lambda route: route.fulfill(content_type="text/event-stream", body=event)
    )


def test_a_restart_is_marked_at_the_step_that_had_been_reached(site: Site):
    with site.page() as page:
        answer_with_ranks(page, 1, ["loss"])
        site.open(page, "done", "charts")
        chart = page.locator("figure[data-metric=loss]")
        chart.get_by_role("img", name="Chart of loss: 1 line").wait_for()
        assert chart.get_by_text("Dashed lines").count() == 0
        restart(page, site, at=1_700_000_049.5)
        page.reload()
        chart.get_by_text("Dashed lines: restarts (orange)").wait_for()
        orange = chart.locator("canvas").evaluate(
            """canvas => {
                const {width, height} = canvas;
                const {data} = canvas.getContext("2d").getImageData(0, 0, width, height);
                const found = Array(width).fill(0);
                for (let at = 0; at < width * height; at += 1)
                    if (data[4 * at] > 150 && data[4 * at + 2] < 50 && data[4 * at + 3] > 200)
                        found[at % width] += 1;
                return found.indexOf(Math.max(...found));
            }"""
        )
        canvas, over = (chart.locator(each).bounding_box() for each in ("canvas", ".u-over"))
        assert (canvas["x"] + orange - over["x"]) / over["width"] == pytest.approx(
            49 / 99, abs=0.01
        )


def test_a_part_of_the_page_that_an_upgrade_took_away_is_told(site: Site):
    with site.page(refused="ERR_FAILED") as page:
        page.route(re.compile(r"/static/later\."), lambda route: route.abort())
        site.open(page, "done", "charts")
        page.get_by_role("alert").filter(has_text="could not be loaded").wait_for()
        page.get_by_role("tab", name="Overview").click()
        page.get_by_role("heading", name="Instances").wait_for()
