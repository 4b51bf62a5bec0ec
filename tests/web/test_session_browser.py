"""What a page does when its stream, its session or its run goes away, and which one a task shows, in a real browser."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from starlette.responses import JSONResponse

from airflow_training.state.store import RunRecord
from airflow_training.web.api import live
from airflow_training.web.standalone import standalone_app
from tests.waiting import PATIENCE, wait_until
from tests.web.conftest import a_run
from tests.web.site import CHROMIUM, FLAGS, check_page

sync_api = pytest.importorskip("playwright.sync_api")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]

TOKEN = "the-token-of-this-test"
Refusal = Callable[[str], "int | None"]
"""From the path that is asked for to the status that is answered; None: what the app answers."""


class Server:
    """The pages of this process's store. What it refuses, and which token it knows, may change."""

    def __init__(self) -> None:
        self.refuses: Refusal = lambda _: None
        self._app: Any = standalone_app(TOKEN)
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self.base = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        status = self.refuses(scope["path"]) if scope["type"] == "http" else None
        answer = self._app if status is None else JSONResponse({"detail": "refused"}, status)
        await answer(scope, receive, send)

    def begin_anew(self, token: str) -> None:
        """Be another `airflow-training ui`, which follows at the same port."""
        self._app = standalone_app(token)

    def start(self) -> Callable[[], None]:
        """Serve, and return what ends that."""
        import uvicorn

        config = uvicorn.Config(self, log_level="warning", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([self._listener],))
        thread.start()
        wait_until(lambda: server.started, alive=thread.is_alive)

        def stop() -> None:
            server.should_exit = True
            thread.join(PATIENCE)
            self._listener.close()

        return stop


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as driver:
        yield driver.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)


@pytest.fixture
def server(airflow_home: Path) -> Iterator[Server]:
    server = Server()
    stop = server.start()
    yield server
    stop()


@pytest.fixture
def page(browser: Any, server: Server) -> Iterator[Any]:
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(1000 * PATIENCE)
    page.goto(f"{server.base}/?token={TOKEN}")
    yield page
    context.close()


@pytest.fixture
def run(airflow_home: Path) -> RunRecord:
    return a_run(dag="", source="cli")


def asked_by(page: Any) -> list[str]:
    """Return what a page asks for from now on, as the ends of the paths."""
    asked: list[str] = []

    def note(request: Any) -> None:
        path = urlsplit(request.url).path
        if "/trainings/" in path:
            asked.append(path.rpartition("/")[2])

    page.on("request", note)
    return asked


def next_stream(page: Any) -> None:
    """Wait until the server lets a stream begin."""
    with page.expect_response(lambda each: each.url.endswith("/live") and each.ok):
        pass


def open_run(page: Any, server: Server, run: RunRecord) -> None:
    page.goto(f"{server.base}/runs/{run.uid}")
    page.get_by_role("heading", name=run.job).wait_for()


def refuse_runs(status: int) -> Refusal:
    return lambda path: status if "/trainings/" in path else None


@pytest.fixture
def short_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a stream be renewed so soon that a test can wait for it, and later than a page polls."""
    monkeypatch.setattr(live, "_SECONDS", 4.0)


@pytest.mark.usefixtures("short_streams")
def test_a_stream_that_is_renewed_without_news_is_no_reason_to_ask(page, server, run):
    open_run(page, server, run)
    next_stream(page)
    asked = asked_by(page)
    next_stream(page)  # the one before has lasted until now
    assert run.uid not in asked


@pytest.mark.usefixtures("short_streams")
def test_a_stream_that_was_refused_is_opened_again(page, server, run):
    refused: list[str] = []

    def once(path: str) -> int | None:
        if not path.endswith("/live") or refused:
            return None
        refused.append(path)
        return 502

    server.refuses = once
    open_run(page, server, run)
    next_stream(page)
    assert len(refused) == 1
    asked = asked_by(page)
    next_stream(page)
    assert run.uid not in asked


@pytest.mark.usefixtures("short_streams")
def test_a_server_that_is_away_is_told_and_followed_again(page, server, run):
    open_run(page, server, run)
    away = page.get_by_text("the server does not answer; trying again")
    server.refuses = refuse_runs(503)
    away.wait_for()
    server.refuses = lambda _: None
    next_stream(page)
    away.wait_for(state="hidden")
    asked = asked_by(page)
    next_stream(page)
    assert run.uid not in asked


@pytest.mark.usefixtures("short_streams")
@pytest.mark.parametrize(
    ("status", "told"),
    [(403, "You may no longer read this training"), (404, "This training was deleted")],
)
def test_a_run_that_is_taken_away_is_told_over_what_was_known(page, server, run, status, told):
    open_run(page, server, run)
    server.refuses = refuse_runs(status)
    page.get_by_role("alert").filter(has_text=told).wait_for()
    assert page.get_by_role("heading", name=run.job).is_visible()
    check_page(page, told)
    server.refuses = lambda _: None
    page.get_by_text(told).wait_for(state="hidden")


@pytest.mark.usefixtures("short_streams")
def test_a_server_begun_anew_says_which_address_to_open(page, server, run):
    open_run(page, server, run)
    server.begin_anew("another-token")
    gone = page.get_by_text("This address is no longer valid: open the one that")
    gone.wait_for()
    check_page(page, "signed out")
    assert page.get_by_role("alert").count() == 1
    assert page.url == f"{server.base}/runs/{run.uid}", "there is no login to go to"
    other = page.context.new_page()
    other.goto(f"{server.base}/?token=another-token")
    gone.wait_for(state="hidden")


def test_what_is_not_there_leads_back(page, server, run):
    for nothing, told in (("runs/nothing", "there is no training"), ("foo/bar", "no such page")):
        page.goto(f"{server.base}/{nothing}")
        page.get_by_text(told).wait_for()
        check_page(page, nothing)
        page.get_by_role("link", name="All trainings").click()
        page.get_by_role("link", name=run.job).wait_for()
        page.locator("nav [aria-current=page]", has_text="Trainings").wait_for()
    page.get_by_role("link", name="Usage").click()
    page.locator("nav [aria-current=page]", has_text="Usage").wait_for()


def test_a_button_says_that_there_is_no_answer_yet(page, server, run):
    open_run(page, server, run)
    server.refuses = lambda path: 503 if path.endswith("/actions") else None
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    waiting = page.get_by_text("The server has not answered yet; still trying")
    waiting.wait_for()
    check_page(page, "a button without an answer")
    with page.expect_response(
        lambda each: each.url.endswith("/actions") and each.status == 202  # the same click's
    ):
        server.refuses = lambda _: None
    waiting.wait_for(state="hidden")


AS_AIRFLOW_DOES = """
Object.defineProperty(globalThis, "Trainings", {
    set() {},
    get: () => () => React.createElement(globalThis["Training"], PROPS),
});
"""
"""Shows the tab in the place of the list: nothing but Airflow gives it a task."""


@pytest.mark.parametrize(
    ("task", "map_index", "group", "role"),
    [
        ("train.plan", None, ("train", -1), None),
        ("train2.plan", None, ("train2", -1), None),
        ("train2.worker.run", None, ("train2", -1), "worker"),
        ("train.role", "0", ("train", -1), "worker"),
        ("mapped.plan", "1", ("mapped", 1), None),
    ],
)
def test_the_tab_of_a_task_shows_its_own_training(page, server, task, map_index, group, role):
    places = [("train", -1), ("mapped", 0), ("mapped", 1), ("mapped", 2), ("train2", -1)]
    runs = {
        place: a_run(group_id=place[0], map_index=place[1], source="airflow") for place in places
    }
    props = {"dagId": "digits", "runId": "first", "taskId": task}
    if map_index is not None:
        props["mapIndex"] = map_index
    page.add_init_script(AS_AIRFLOW_DOES.replace("PROPS", json.dumps(props)))
    with page.expect_response(lambda each: each.url.endswith("/live")) as followed:
        page.goto(server.base)
    assert f"/{runs[group].uid}/" in followed.value.url
    tab = page.get_by_role("tab", selected=True)
    tab.wait_for()
    assert tab.inner_text() == ("Logs" if role else "Overview")
    assert page.get_by_label("Training", exact=True).count() == 0, "there is nothing to choose"
