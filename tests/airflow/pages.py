"""A browser in Airflow's own UI, in which nothing may go wrong that is ours."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from tests.airflow.stack import Airflow
from tests.waiting import PATIENCE
from tests.web.site import CHROMIUM, FLAGS

CSP = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:"
"""What a strict deployment's proxy may answer with; Airflow's components need styles that are made as they are shown."""
OURS = "[data-training-pages]"
"""The part of Airflow's page that we have made."""
_HOSTS_OWN = re.compile(r"Creating a worker from 'blob:")
"""Airflow draws its graphs in a worker of its own making, which the policy above forbids."""


@contextlib.contextmanager
def launched() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield opened
        opened.close()


@contextlib.contextmanager
def signed_in(
    browser: Any,
    airflow: Airflow,
    user: str,
    *,
    width: int = 1440,
    dark: bool = False,
    away: str = "never",
) -> Iterator[Any]:
    """Give a page that Airflow takes for the user's, below a strict policy; afterwards nothing may have gone wrong in it.

    `away`: what is in the browser's words for requests that a test means to fail.
    """
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if dark else "light",
        accept_downloads=True,
    )
    token = {"name": "_token", "value": airflow.token_of(user), "url": f"{airflow.stack.url}/"}
    context.add_cookies([token])
    page = context.new_page()
    page.set_default_timeout(60_000)
    problems: list[str] = []
    allowed = re.compile(f"{_HOSTS_OWN.pattern}|{re.escape(away)}")
    page.on(
        "console",
        lambda each: problems.extend(
            [each.text] * (each.type == "error" and not allowed.search(each.text))
        ),
    )
    page.on("pageerror", lambda each: problems.append(str(each)))
    page.on("dialog", lambda each: problems.append(f"a dialog: {each.message}"))
    page.route("**/*", _with_policy)
    try:
        yield page
        assert problems == []
    finally:
        context.close()


def _with_policy(route: Any) -> None:
    if route.request.resource_type != "document":
        route.fallback()
        return
    answer = route.fetch()
    route.fulfill(response=answer, headers={**answer.headers, "content-security-policy": CSP})


@contextlib.contextmanager
def laptop(airflow: Airflow) -> Iterator[str]:
    """Serve the pages by `airflow-training ui` over the store of this Airflow, and give the address that it prints."""
    with subprocess.Popen(
        [sys.executable, "-m", "airflow_training.cli", "ui", "--no-browser"],
        env=airflow.stack.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(timeout=PATIENCE)


def open_training(page: Any, airflow: Airflow, dag_id: str, run_id: str) -> None:
    """Go the way that a person goes: to the DAG run, and to its tab."""
    page.goto(f"{airflow.stack.url}/dags/{dag_id}/runs/{run_id}")
    page.get_by_role("link", name="Training", exact=True).click()


def wait_phrase(page: Any, phrase: str) -> None:
    page.get_by_text(phrase, exact=True).first.wait_for()
