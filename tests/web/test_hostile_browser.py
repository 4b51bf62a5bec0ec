"""What a user may name, write or print is text on every page, whatever it looks like."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_training.control.model import Event
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import RunKey
from airflow_training.state.store import Store
from tests.state.samples import a_job, a_ledger
from tests.web.site import CHROMIUM, Site, serve

pytest.importorskip("playwright.sync_api")
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]
DO = "window.struck=1"
PAYLOADS = (
    f"<script>{DO}</script>",
    f"</script><script>{DO}</script>",
    f"<img src=x onerror={DO}>",
    f"<svg onload={DO}><x-struck>",
    f"<svg><script>{DO}</script></svg>",
    f"<iframe srcdoc='<script>parent.{DO}</script>'></iframe>",
    f"<iframe src='javascript:parent.{DO}'></iframe>",
    f"<a href='javascript:{DO}' data-struck>here</a>",
    f"javascript:{DO}",
    f"data:text/html,<script>{DO}</script>",
    "<x-struck>",
    "<b data-struck>bold</b>",
    "<style data-struck>*{display:none}</style>",
    "<base href='https://struck.invalid/' data-struck>",
    "<meta http-equiv=refresh content='0;url=https://struck.invalid/' data-struck>",
    "<form action='https://struck.invalid/' data-struck><button>go</button></form>",
    f"<input autofocus onfocus={DO} data-struck>",
    f"<details open ontoggle={DO} data-struck>",
    f"<video><source onerror={DO}></video>",
    f"<math><mtext><img src=x onerror={DO}></mtext></math>",
    f"<template data-struck><img src=x onerror={DO}></template>",
    "<object data='https://struck.invalid/' data-struck></object>",
    "<embed src='https://struck.invalid/' data-struck>",
    "<link rel=stylesheet href='https://struck.invalid/' data-struck>",
    f'"><img src=x onerror={DO}>',
    f"'><img src=x onerror={DO}>",
    f"` onmouseover={DO} `",
    f'" autofocus onfocus="{DO}" x="',
    "{{7*7}}",
    "${7*7}",
    "<%= 7*7 %>",
    "#{7*7}",
    "{% raw %}{{ 7*7 }}{% endraw %}",
    "&lt;x-struck&gt;",
    "&#60;x-struck&#62;",
    "%3Cx-struck%3E",
    "\\u003cx-struck\\u003e",
    "<!--<x-struck>-->",
    "<![CDATA[<x-struck>]]>",
    f"[here](javascript:{DO})",
    "![picture](https://struck.invalid/x.png)",
    "https://struck.invalid/?q=<x-struck>",
    "\u202egpj.exe\u202c of the right",
    "a\u200bb\ufeffc",
    '=HYPERLINK("https://struck.invalid","here")',
    "@SUM(1+1)*cmd|' /C calc'!A0",
    "+1+cmd|' /C calc'!A0",
    "constructor",
    "__proto__",
    "x" * 180,
)
LINES = (
    *PAYLOADS,
    "\x1b]8;;https://struck.invalid\x1b\\a link of a terminal\x1b]8;;\x1b\\",
    f"\x1b[31m<img src=x onerror={DO}>\x1b[0m",
    "nul \0 inside",
    "y" * 10_000,
)
"""Of a log, which may hold any byte."""
SCRIPT = r"""
import csv, json, os, sys, time
from pathlib import Path

payloads, lines = json.loads(Path(__file__).with_name("payloads.json").read_text())
with Path(os.environ["TRAINING_PROGRESS_FILE"]).open("a") as file:
    for step in (1, 2):
        files = [{"name": each, "read": 1, "total": 2} for each in payloads]
        metrics = {each: step for each in payloads} | {"loss": step}
        line = {"step": step, "total_steps": 2, "samples": step, "time": time.time(), "metrics": metrics, "files": files}
        file.write(json.dumps(line) + "\n")
folder = Path(os.environ["TRAINING_PREDICTIONS_DIR"])
with (folder / ".step.tmp").open("w", newline="") as file:
    csv.writer(file).writerows([["label", "prediction", "<x-struck>"], *[["<x-struck>", each, each] for each in payloads]])
(folder / ".step.tmp").rename(folder / "step-000001.csv")
for each in lines:
    sys.stdout.write(each + "\n")
sys.stdout.flush()
time.sleep(3)  # until its agent has looked
raise ValueError(payloads[2])
"""
JOB = """
apiVersion: airflow-training/v1
kind: TrainingJob
metadata: {name: struck}
spec:
  framework: custom
  command: [python, struck.py]
  restart: {maxRestarts: 0}
  roles: [{name: worker}]
"""
CLEAN = """() => ({
    struck: window.struck ?? 0,
    made: [...document.querySelectorAll("x-struck, [data-struck], iframe, object, embed, form[action], img[src=x], video, math")].map(each => each.outerHTML),
    links: [...document.querySelectorAll("a[href], [src]")].map(each => each.href || each.src).filter(each => /struck\\.invalid|^javascript:|^data:text.html/.test(each)),
    handlers: [...document.querySelectorAll("[onerror], [onload], [onfocus], [onmouseover], [ontoggle]")].length,
})"""
NOTHING = {"struck": 0, "made": [], "links": [], "handlers": 0}


def _strike(folder: Path) -> None:
    """Add what a job cannot say of itself: who started it, other runs, its events, packages and devices."""
    store = Store(f"sqlite:///{folder / 'airflow_training.db'}")
    try:
        (uid,) = (each.uid for each in store.runs(limit=10))
        now = store.now()
        store.add_events(
            uid,
            [Event(at=now, reason=each[:60], message=each, role=each[:60]) for each in PAYLOADS],
        )
        said = {
            "implementation": "cpython",
            "python": PAYLOADS[0],
            "packages": {each: each for each in PAYLOADS},
            "gpu": dict.fromkeys(("driver", "CUDA", "cuDNN", "ROCm"), PAYLOADS[-1]),
        }
        devices = [{"id": each, "name": each, "bytes": 1} for each in PAYLOADS]
        told = [json.dumps({"on": "software", **said}), json.dumps({"at": 1, "devices": devices})]
        store.environments.save(uid, {InstanceKey("worker", 0): told})
        for each in PAYLOADS:
            key = RunKey(source="cli", dag_id="", run_id=each)
            store.create_run(
                key, a_job(), a_ledger(), controller="here", queue=False, submitted_by=each
            )
    finally:
        store.close()


@pytest.fixture(scope="module")
def struck(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("struck")
    scripts = {"struck.py": SCRIPT, "payloads.json": json.dumps([PAYLOADS, LINES])}
    with serve(folder, {"struck": JOB}, scripts, _strike) as site:
        yield site


def clean(page: Any, where: str) -> None:
    found = page.evaluate(CLEAN)
    assert found == NOTHING, where


def texts(page: Any, selector: str) -> set[str]:
    return set(
        page.evaluate(
            "where => [...document.querySelectorAll(where)].map(each => each.textContent)", selector
        )
    )


def test_the_check_sees_what_has_become_a_part_of_a_page(struck: Site):
    page = struck.browser.new_page()
    try:
        for each in PAYLOADS[2:13]:
            page.set_content(f"<p>{each}</p>")
            if not each.startswith(("javascript:", "data:")):
                assert page.evaluate(CLEAN) != NOTHING, each
    finally:
        page.close()


TABS = (
    "overview",
    "charts",
    "data",
    "predictions",
    "logs",
    "checkpoints",
    "environment",
    "configuration",
)


@pytest.mark.parametrize("tab", TABS)
def test_nothing_that_a_run_says_becomes_a_part_of_a_page(struck: Site, tab: str):
    with struck.page() as page:
        struck.open(page, "struck", tab)
        page.get_by_role("alert").get_by_text(PAYLOADS[2]).first.wait_for()
        wanted: dict[str, str] = {
            "charts": "figure canvas",
            "data": "tbody tr:nth-child(50)",
            "predictions": "tbody tr:nth-child(50)",
            "logs": "[role=log] button",
            "environment": "tbody tr:nth-child(50)",
        }
        if tab in wanted:
            page.locator(wanted[tab]).first.wait_for()
        if tab in ("data", "predictions", "environment"):
            assert texts(page, "td") >= {*PAYLOADS}
        if tab == "logs":
            page.get_by_role("button", name="Beginning").click()
            for each in PAYLOADS[:10]:
                page.get_by_role("log").get_by_text(each, exact=True).wait_for()
            page.get_by_label("Search all logs").fill("struck")
            page.get_by_role("button", name="Search").click()
            page.get_by_role("region", name="Hits").get_by_text(
                re.compile(r"^\d+ hits$")
            ).wait_for()
        if tab == "overview":
            page.get_by_text(PAYLOADS[0], exact=False).first.wait_for()
        clean(page, tab)


def test_the_names_of_runs_and_users_are_text_in_the_list_and_in_usage(struck: Site):
    with struck.page() as page:
        older = page.get_by_role("button", name="Older ones")
        older.click()
        page.locator("tbody tr").nth(2 * len(PAYLOADS)).wait_for()
        assert texts(page, "td") >= {*PAYLOADS}
        clean(page, "list")
        for each in page.get_by_role("checkbox").all()[:3]:
            each.check(force=True)
        page.get_by_role("button", name="Compare").click()
        page.get_by_role("heading", name="3 trainings compared").wait_for()
        clean(page, "compare")
        page.get_by_role("button", name="All trainings").click()
        page.get_by_role("link", name="digits").first.click()
        page.get_by_role("heading", name="digits", exact=True).wait_for()
        clean(page, "a run of such a name")
        page.get_by_role("link", name="Usage").click()
        page.get_by_role("row", name="All").wait_for()
        clean(page, "usage")


def test_what_is_saved_from_a_chart_has_neither_formulas_nor_a_name_that_leads_elsewhere(
    struck: Site,
):
    with struck.page() as page:
        struck.open(page, "struck", "charts")
        page.locator("figure canvas").first.wait_for()
        for chart in page.locator("figure:has(canvas)").all()[:12]:
            with page.expect_download() as saved:
                chart.get_by_role("button", name="CSV").click()
            assert not re.search(r"[/\\\r\n]", saved.value.suggested_filename)
            rows = [*csv.reader(Path(saved.value.path()).read_text().splitlines())]
            assert not any(re.match(r"[=+@\t\r-]", row[0]) for row in rows)
