"""A ranking is trained without code in Airflow's UI, step by step as a person does it: docs/no-code.md shows these steps."""

from __future__ import annotations

import random
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.airflow.pages import wait_phrase
from tests.waiting import PATIENCE

Look = Callable[[Any, str], None]
"""Takes the page and the name of a picture at each step."""
NUMBERS = 8
"""Of each document; the preset begins with 12."""


def write_lists(folder: Path) -> None:
    """Write queries with 5 to 20 documents each, judged from 0 to 4, in the form of LETOR."""
    draw, told = random.Random(7), 0
    folder.mkdir(parents=True)
    for name, count in (("clicks-2025", 120), ("clicks-2026", 90), ("judged", 40)):
        lines = []
        for query in range(told + 1, told + 1 + count):
            for _ in range(draw.randint(5, 20)):
                values = [draw.random() for _ in range(NUMBERS)]
                fits = values[0] * values[1] - abs(values[4] - 0.5) + 0.5 * (values[2] > values[3])
                grade = sum(fits + draw.gauss(0, 0.05) > each for each in (0.1, 0.4, 0.6, 0.8))
                columns = (f"{place}:{value:.4f}" for place, value in enumerate(values, 1))
                lines.append(f"{grade} qid:{query} {' '.join(columns)}")
        told += count
        (folder / f"{name}.libsvm").write_text("\n".join(lines) + "\n")


def train_without_code(page: Any, url: str, *, lists: Path, to: Path, look: Look) -> Path:
    """Train on these lists, stop, train a deeper network, and download it.

    Returns the folder, below `to`, that trains on one machine.
    """
    _choose(page, url, lists, look)
    _run(page)
    _watch_and_stop(page, look)
    _edit_network(page, look)
    _run(page)
    wait_phrase(page, "succeeded")
    _compare(page, url, look)
    return _download(page, to, look)


def _choose(page: Any, url: str, lists: Path, look: Look) -> None:
    """From the list of trainings to a document without mistakes."""
    page.set_default_timeout(PATIENCE * 1000)
    page.goto(f"{url}/plugin/trainings")
    page.get_by_role("link", name="New training").last.click()
    page.get_by_role("link", name="Ranking").click()
    page.get_by_label("Name", exact=True).fill("shop-ranking")
    page.get_by_label("Address", exact=True).fill(str(lists))
    page.get_by_role("button", name="Look for files").click()
    page.get_by_role("button", name="Leave them out").click()
    for name in ("clicks-2025.libsvm", "clicks-2026.libsvm"):
        page.get_by_text(name, exact=True).click()
    page.get_by_role("listitem").filter(has_text="judged.libsvm").get_by_text("Test").click()
    page.get_by_text(re.compile(r"^3 files; \d+ KiB chosen$")).wait_for()
    _section(page, "Data")
    look(page, "data")
    line = _line(page, "documents, type: Input")
    assert line.inner_text().endswith("[40, 12]}}")
    line.click()
    page.keyboard.press("End")
    for _ in range(len("12]}}")):
        page.keyboard.press("Backspace")
    page.keyboard.insert_text(f"{NUMBERS}]}}}}")
    page.get_by_role("row", name="documents Input").get_by_text(
        re.compile(f"^40 . {NUMBERS}$")
    ).wait_for()
    _set_epochs(page, 3000)
    page.get_by_text("no mistakes", exact=True).wait_for()
    _section(page, "Network")
    look(page, "network")


def _run(page: Any) -> None:
    page.get_by_text("no mistakes", exact=True).wait_for()
    page.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_url(re.compile("/dags/training_job/runs/new__"), wait_until="commit")


def _watch_and_stop(page: Any, look: Look) -> None:
    wait_phrase(page, "running")
    page.get_by_role("tab", name="Charts").click()
    chart = page.locator("figure[data-metric=ndcg]")
    chart.wait_for()
    page.get_by_role("tab", name="Predictions").click()
    page.get_by_role("heading", name=re.compile(r"^Step [\d,]+$")).wait_for()
    page.get_by_role("button", name="Earlier").click()  # the newest one moves on with the training
    page.get_by_role("img", name="Histogram of predictions and labels").first.wait_for()
    look(page, "predictions")
    page.get_by_role("tab", name="Charts").click()
    chart.locator("canvas").scroll_into_view_if_needed()
    look(page, "ndcg")
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop").click()
    wait_phrase(page, "stopped")


def _edit_network(page: Any, look: Look) -> None:
    """Fork the run: a layer more, and less epochs."""
    page.get_by_role("tab", name="Configuration").click()
    page.get_by_role("link", name="New training from this").click()
    page.get_by_label("Name", exact=True).fill("shop-ranking-deeper")
    line = _line(page, "- name: score")
    indent = line.inner_text().partition("-")[0]
    line.click()
    page.keyboard.press("Home")
    page.keyboard.press("Home")  # before what it is indented by
    layer = (
        "- {name: dense3, type: Linear, params: {out_features: 32}}",
        "- {name: act3, type: ReLU}",
    )
    page.keyboard.insert_text("".join(f"{indent}{each}\n" for each in layer))
    page.get_by_role("row", name="dense3 Linear").get_by_text(re.compile("^40 . 32$")).wait_for()
    _set_epochs(page, 25)
    page.get_by_text("no mistakes", exact=True).wait_for()
    _section(page, "Network")
    page.get_by_role("row", name="dense3 Linear").scroll_into_view_if_needed()
    look(page, "deeper")


def _compare(page: Any, url: str, look: Look) -> None:
    here = page.url
    page.goto(f"{url}/plugin/trainings")
    for name in ("shop-ranking", "shop-ranking-deeper"):
        row = page.get_by_role("row").filter(has=page.get_by_role("link", name=name, exact=True))
        row.locator("label").click()
    page.get_by_role("button", name="Compare").click()
    page.locator("figure[data-metric=ndcg] canvas").wait_for()
    page.locator("figure[data-metric=ndcg]").scroll_into_view_if_needed()
    look(page, "compare")
    page.goto(here)


def _download(page: Any, to: Path, look: Look) -> Path:
    page.get_by_role("tab", name="Configuration").click()
    link = page.get_by_role("link", name="Download for one machine")
    link.wait_for()
    look(page, "download")
    with page.expect_download() as begun:
        link.click()
    begun.value.save_as(to / "training.zip")
    with zipfile.ZipFile(to / "training.zip") as archive:
        archive.extractall(to)
    return to / "shop-ranking-deeper"


def _section(page: Any, title: str) -> None:
    """Go to a part of the form, as its name in the head of the page does."""
    page.get_by_label("Sections").get_by_role("button", name=title).click()
    page.wait_for_function(
        "id => Math.abs(document.getElementById(id).getBoundingClientRect().top - 128) < 8",
        arg=f"section-{title.lower()}",
    )


def _set_epochs(page: Any, epochs: int) -> None:
    field = page.locator("[data-field='spec.trainer.epochs'] input").first
    if not field.is_visible():
        page.get_by_role("button", name="More of the trainer").click()
    field.fill(str(epochs))


def _line(page: Any, words: str) -> Any:
    """Scroll the editor, which draws what is in sight, to a line."""
    scroller, line = page.locator(".cm-scroller"), page.locator(".cm-line", has_text=words).first
    scroller.wait_for()
    for place in range(0, 6000, 200):
        scroller.evaluate("(all, place) => { all.scrollTop = place; }", place)
        page.wait_for_timeout(50)  # for the lines there to be drawn
        if line.count():
            break
    line.scroll_into_view_if_needed()
    return line
