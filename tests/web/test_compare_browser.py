"""Runs beside each other, and ranks as a picture, in a real browser."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.web.site import CHROMIUM, Site, check_page
from tests.web.test_charts_browser import drag, shown

pytest.importorskip("playwright.sync_api")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]


def compare(page: Any, site: Site, *runs: str) -> None:
    chosen = ",".join(f"~/{site.uids.get(run, run)}" for run in runs)
    page.goto(f"{site.base}/?compare={chosen}")
    page.locator("figure[data-metric=loss] canvas").wait_for()


def cells(page: Any, name: str) -> list[str]:
    row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name=name, exact=True))
    row.wait_for()
    return [" ".join(each.split()) for each in row.get_by_role("cell").all_inner_texts()]


@pytest.mark.parametrize(
    ("width", "dark"),
    [pytest.param(1440, False, id="wide-light"), pytest.param(360, True, id="narrow-dark")],
)
def test_runs_are_beside_each_other_with_what_they_differ_in(site: Site, width: int, dark: bool):
    with site.page(width=width, dark=dark) as page:
        compare(page, site, "done", "broken")
        page.get_by_role("rowheader", name="spec.command").wait_for()
        assert cells(page, "State") == ["succeeded", "failed"]
        assert cells(page, "Step") == ["20", "5"]
        assert cells(page, "loss") == ["0.05 0.05 to 1", "0.2 0.2 to 1"]
        assert '"break"' in cells(page, "spec.command")[1]
        assert cells(page, "spec.plan")[1] == "\N{EN DASH}"
        assert page.get_by_role("rowheader", name="spec.framework").count() == 0
        link = page.get_by_role("table").get_by_role("link", name="broken")
        assert link.get_attribute("href") == f"/runs/{site.uids['broken']}"
        check_page(page, "compare")


def test_curves_are_smoothed_drawn_by_time_and_hidden_in_all_charts(site: Site):
    with site.page() as page:
        compare(page, site, "done", "broken")
        chart = page.get_by_role("img", name="Chart of loss: 2 lines")
        chart.wait_for()
        page.get_by_label("Smoothing").select_option("0.9")
        page.get_by_label("Axis").select_option("Time of day")
        page.get_by_text("Log scale").click()
        chart.wait_for()
        page.locator("figure[data-metric=loss] .u-legend").get_by_text("done", exact=True).click()
        for name in ("loss", "step_time_seconds"):
            page.get_by_role("img", name=f"Chart of {name}: 1 of 2 lines").wait_for()
        page.get_by_label("Axis").select_option("Samples")
        page.locator("figure[data-metric=loss] [data-range]").wait_for()


def test_a_run_that_cannot_be_read_is_a_line_and_can_be_left_out(site: Site):
    with site.page(refused="404") as page:
        compare(page, site, "done", "nosuchrun", "broken")
        gone = page.get_by_role("alert").filter(has_text="there is no training nosuchrun here")
        gone.wait_for()
        page.get_by_role("img", name="Chart of loss: 2 lines").wait_for()
        gone.get_by_role("button", name="Remove").click()
        gone.wait_for(state="hidden")
        page.get_by_role("button", name="Leave out broken").click()
        page.get_by_role("img", name="Chart of loss: 1 line").wait_for()
        assert "broken" not in page.url
        assert site.uids["broken"] not in page.url


def test_what_a_run_does_is_followed_there(site: Site):
    with site.page() as page:
        compare(page, site, "done", "living")
        page.get_by_role("rowheader", name="Step", exact=True).wait_for()
        before = cells(page, "Step")[1]
        page.wait_for_function(
            "before => [...document.querySelectorAll('tr')].some(each => each.cells.length === 3"
            " && each.cells[0].innerText === 'Step' && each.cells[2].innerText !== before)",
            arg=before,
        )


def test_a_closer_look_at_a_run_that_lives_stays_and_each_run_is_asked_once_for_all_metrics(
    site: Site,
):
    with site.page() as page:
        compare(page, site, "done", "living")
        asked = re.compile(rf"{site.uids['living']}/series\?name=[^&]+&name=")
        loss, other = (
            page.locator(f"figure[data-metric={name}]") for name in ("loss", "step_time_seconds")
        )
        other.locator("canvas").wait_for()
        drag(page, loss, 0.25, 0.5)
        loss.get_by_role("button", name="All").wait_for()
        chosen = shown(loss)
        requests: list[str] = []
        page.on("request", lambda each: requests.append(each.url))
        for _ in range(2):
            with page.expect_response(lambda answer: asked.search(answer.url)) as answer:
                pass
            answer.value.finished()
        of_living = [each for each in requests if f"{site.uids['living']}/series" in each]
        assert all(asked.search(each) for each in of_living), of_living
        assert shown(loss) == chosen == shown(other)
        loss.get_by_role("img").focus()
        page.keyboard.press("ArrowLeft")
        page.wait_for_function(
            "chosen => Number(document.querySelector('[data-range]').dataset.range.split(' ')[0]) < chosen",
            arg=chosen[0],
        )
        page.get_by_label("Axis").select_option("Time of day")
        loss.get_by_role("button", name="All").wait_for(state="detached")


def test_the_list_is_as_it_was_before_runs_were_compared(site: Site):
    with site.page() as page:
        job = page.get_by_role("columnheader", name="Job").get_by_role("button")
        job.click()
        job.click()
        for name in ("done", "broken"):
            page.get_by_role("row", name=name).get_by_role("checkbox").check(force=True)
        page.get_by_label("Filter by name").fill("one")
        page.get_by_role("button", name="Compare").click()
        page.get_by_role("heading", name="2 trainings compared").wait_for()
        page.get_by_role("button", name="All trainings").click()
        page.locator("th[aria-sort=descending]").filter(has_text="Job").wait_for()
        assert page.get_by_label("Filter by name").input_value() == "one"
        assert "compare=" not in page.url


def heat_map(ranks: int = 20, columns: int = 10) -> dict[str, Any]:
    """Return ranks that are all alike but rank 3, from the fifth column on."""
    values = [
        [5.0 + (rank == 3 and column >= 5) for column in range(columns)] for rank in range(ranks)
    ]
    return {
        "x": [10 * column for column in range(columns)],
        "rows": [f"worker-{rank} rank {rank}" for rank in range(ranks)],
        "values": values,
        "distances": [[each - 5.0 for each in row] for row in values],
    }


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_rank_that_is_off_stands_out_and_is_told_by_the_keyboard(site: Site, dark: bool):
    with site.page(width=360, dark=dark) as page:
        page.route(re.compile(r"/heat\?"), lambda route: route.fulfill(json=heat_map()))
        site.open(page, "done", "charts")
        chart = page.locator("figure[data-metric=loss]")
        chart.get_by_role("button", name="Heat map").click()
        picture = chart.get_by_role("img", name=re.compile("20 rows of ranks"))
        colours = """canvas => {
            const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            const at = (row, column) => data.slice(4 * (row * canvas.width + column)).slice(0, 3).join();
            return [at(3, 4), at(2, 5), at(3, 5)];
        }"""
        picture.wait_for()
        usual, other, off = picture.evaluate(colours)
        assert usual == other != off
        picture.focus()
        for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowLeft"):
            page.keyboard.press(key)
        chart.get_by_text("worker-3 rank 3, step 80: 6, +1 from the median").wait_for()
        page.keyboard.press("Home")
        chart.get_by_text("worker-3 rank 3, step 0: 5, +0 from the median").wait_for()
        check_page(page, "heat map")
        chart.get_by_label("Colours").select_option("Value")
        chart.get_by_role("img", name=re.compile("value from 5 to 6")).wait_for()
        page.keyboard.press("Escape")


def test_what_was_drawn_along_another_axis_is_not_shown_under_this_one(site: Site):
    with site.page() as page:
        held: list[Any] = []

        def answer(route: Any) -> None:
            if "axis=time" in route.request.url:
                held.append(route)
            else:
                route.fulfill(json=heat_map())

        page.route(re.compile(r"/heat\?"), answer)
        site.open(page, "done", "charts")
        chart = page.locator("figure[data-metric=loss]")
        chart.get_by_role("button", name="Heat map").click()
        picture = chart.get_by_role("img", name=re.compile("20 rows of ranks"))
        picture.wait_for()
        page.get_by_label("Axis").select_option("Time of day")
        picture.wait_for(state="detached")
        chart.get_by_role("status").wait_for()
        held[0].fulfill(json=heat_map())
        picture.wait_for()


def test_a_heat_map_is_told_where_it_is_touched(site: Site):
    with site.page() as page:
        page.route(re.compile(r"/heat\?"), lambda route: route.fulfill(json=heat_map()))
        site.open(page, "done", "charts")
        chart = page.locator("figure[data-metric=loss]")
        chart.get_by_role("button", name="Heat map").click()
        picture = chart.get_by_role("img", name=re.compile("20 rows of ranks"))
        picture.wait_for()
        picture.dispatch_event(
            "pointerdown", {"pointerType": "touch", "clientX": 0, "clientY": 0, "bubbles": True}
        )
        chart.get_by_text("worker-0 rank 0, step 0: 5, +0 from the median").wait_for()
