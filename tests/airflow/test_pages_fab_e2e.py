"""Who sees the pages where Airflow's FAB auth manager decides; `make fab` installs it, in an environment of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from airflow_training.cli.airflow_stack import AirflowStack
from tests.airflow.conftest import run_airflow
from tests.airflow.pages import OURS, launched, open_training, signed_in, wait_phrase
from tests.airflow.stack import PASSWORD, Airflow
from tests.waiting import PATIENCE, wait_until
from tests.web.site import CHROMIUM

pytest.importorskip("playwright.sync_api")
pytest.importorskip("airflow.providers.fab")
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(900),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]
MANAGER = "airflow.providers.fab.auth_manager"


def _typed(stack: AirflowStack, *words: str) -> None:
    command = [sys.executable, "-m", "airflow", *words]
    subprocess.run(command, env=stack.env, check=True, capture_output=True, timeout=PATIENCE)


def _add_users(stack: AirflowStack) -> None:
    for name, role in (("admin", "Admin"), ("reader", "Viewer")):
        who = ["--username", name, "--password", PASSWORD, "--role", role]
        named = ["--firstname", name, "--lastname", role, "--email", f"{name}@example.com"]
        _typed(stack, "users", "create", *who, *named)


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Airflow]:
    managers = {
        "AIRFLOW__CORE__AUTH_MANAGER": f"{MANAGER}.fab_auth_manager.FabAuthManager",
        "AIRFLOW__DATABASE__EXTERNAL_DB_MANAGERS": f"{MANAGER}.models.db.FABDBManager",
    }
    home = tmp_path_factory.mktemp("fab")
    with run_airflow(home, environment=managers, prepare=_add_users) as running:
        yield running


def _may_list_plugins(airflow: Airflow, user: str) -> bool:
    """The API server remembers for a while what users may do: `[fab] cache_ttl`."""
    bearer = {"Authorization": f"Bearer {airflow.token_of(user)}"}
    return httpx.get(f"{airflow.stack.url}/api/v2/plugins", headers=bearer).is_success


def test_a_viewer_sees_the_pages_once_plugins_may_be_read_and_the_logs_before(
    airflow: Airflow,
):
    airflow.write(airflow.document("seen", command=["echo", "hello from the instance"]))
    run_id = airflow.trigger("seen")
    assert airflow.wait_run("seen", run_id) == "success"
    logs = f"{airflow.stack.url}/training/logs?dag_id=seen&task_id=worker.run&map_index=-1&run_id="
    browser: Any
    with launched() as browser:
        with signed_in(browser, airflow, "admin") as page:
            open_training(page, airflow, "seen", run_id)
            wait_phrase(page, "succeeded")
            page.get_by_role("button", name="Run again").wait_for()
        with signed_in(browser, airflow, "reader", away="403") as page:
            page.goto(f"{airflow.stack.url}/dags/seen/runs/{run_id}")
            page.get_by_role("link", name="Details", exact=True).wait_for()
            assert page.get_by_role("link", name="Training", exact=True).count() == 0
            page.goto(logs + run_id.replace("+", "%2B"))
            page.get_by_role("link", name="attempt 0").click()
            page.get_by_text("hello from the instance").wait_for()
        _typed(airflow.stack, "roles", "add-perms", "Viewer", "-a", "can_read", "-r", "Plugins")
        wait_until(lambda: _may_list_plugins(airflow, "reader"))
        with signed_in(browser, airflow, "reader") as page:
            open_training(page, airflow, "seen", run_id)
            wait_phrase(page, "succeeded")
            page.get_by_role("tab", name="Logs").click()
            page.get_by_role("log").get_by_text("hello from the instance").wait_for()
            assert page.get_by_role("button", name="Run again").count() == 0
            page.goto(f"{airflow.stack.url}/plugin/trainings")
            page.locator(OURS).get_by_role("link", name="seen", exact=True).wait_for()
