"""What Airflow finds of the package: provider, plugin, pages and the example DAGs."""

from __future__ import annotations

import runpy
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from airflow.providers_manager import ProvidersManager
from airflow.sdk import DAG
from airflow.sdk.configuration import conf

import airflow_training
from airflow_training.plugin import InstanceLogsLink, TrainingPlugin
from airflow_training.settings import OPTIONS
from tests.airflow.shapes import round_trip
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "dags" / "examples").glob("*.py"))


def test_airflow_shows_every_option_with_its_default(monkeypatch):
    monkeypatch.delenv("AIRFLOW__TRAINING__CLOUD_IDLE_SECONDS")  # of all tests
    assert {name: conf.get("training", name) for name in OPTIONS} == {
        name: option.default for name, option in OPTIONS.items()
    }


def test_the_address_of_the_store_is_kept_secret():
    info = airflow_training.get_provider_info()
    options = info["config"]["training"]["options"]
    assert [name for name, each in options.items() if each["sensitive"]] == ["sql_alchemy_conn"]
    assert "airflow-training" in ProvidersManager().providers


def test_the_plugin_loads_without_its_pages():
    code = (
        "import sys, airflow_training.plugin;"
        "print([m for m in sys.modules if m.startswith('airflow_training.web')"
        " or m.startswith('airflow_training.state')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().splitlines()[-1] == "[]"


def test_every_page_asks_airflow_whether_the_user_may_read_it():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of libraries that Airflow imports
        from airflow_training.web.logs import app
        from airflow_training.web.rights import Permit, known, submit_new
    routes: list[Any] = [*app.routes]
    for route in routes:
        if route.path in ("/runs/{uid}/progress", "/static/{name}"):
            continue  # for instances, with a token of their own: see test_progress_route; for all
        asked = [each.call for each in route.dependant.dependencies]
        names = [getattr(each, "__qualname__", "") for each in asked]
        if route.path.startswith("/api/"):
            assert names[0] == "_authenticate", route.path
            if "{dag}" in route.path:
                assert isinstance(asked[1], Permit), route.path
            else:
                assert {known, submit_new} & {*asked[1:]}, route.path
        else:
            assert any(name.startswith("requires_access_dag") for name in names), route.path


@pytest.mark.parametrize(
    ("base_url", "below"),
    [
        pytest.param("", "", id="default"),
        pytest.param("https://example.com", "", id="top-of-its-server"),
        pytest.param("https://example.com/airflow/", "/airflow", id="below-a-path"),
    ],
)
def test_the_link_of_a_task_follows_from_its_task_instance(monkeypatch, base_url, below):
    class Key:
        dag_id, run_id, task_id, map_index = "d", "manual__2026+00:00", "worker.run", -1

    monkeypatch.setenv("AIRFLOW__API__BASE_URL", base_url)
    link = TrainingPlugin.operator_extra_links[0]
    assert isinstance(link, InstanceLogsLink)
    assert link.get_link(None, ti_key=Key()) == (
        f"{below}/training/logs"
        "?dag_id=d&run_id=manual__2026%2B00%3A00&task_id=worker.run&map_index=-1"
    )


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_a_dag_that_a_person_reads_in_a_minute(path: Path):
    [dag] = [each for each in runpy.run_path(str(path)).values() if isinstance(each, DAG)]
    assert len(round_trip(dag).task_ids) >= 7
    assert len(path.read_text().splitlines()) < 40


def test_the_loader_file_holds_the_jobs_of_the_folder_and_the_generic_dag(airflow_home: Path):
    (airflow_home / "jobs").mkdir()
    job = (ROOT / "dags" / "examples" / "digits" / "digits.yaml").read_text()
    (airflow_home / "jobs" / "digits.yaml").write_text(job)
    found = runpy.run_path(str(ROOT / "dags" / "loader.py"))
    assert {name for name, each in found.items() if isinstance(each, DAG)} == {
        "digits",
        "training_job",
    }


def test_the_sweep_runs_every_hour_and_finds_nothing_in_an_empty_store(airflow_home: Path):
    found = runpy.run_path(str(ROOT / "dags" / "sweep.py"))
    [dag] = [each for each in found.values() if isinstance(each, DAG)]
    assert (dag.dag_id, str(dag.schedule), dag.catchup) == ("training_sweep", "@hourly", False)
    assert round_trip(dag).task_ids == ["sweep"]
    assert dag.get_task("sweep").execute({}) == 0


def test_pages_that_were_built_are_shown_where_airflow_has_a_place_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from airflow.api_fastapi.core_api.datamodels.plugins import ReactAppResponse

    from airflow_training import plugin

    monkeypatch.setattr(plugin, "_MANIFEST", tmp_path / "manifest.json")
    assert plugin._react_apps() == []
    (tmp_path / "manifest.json").write_text('{"pages": "Training.1a2b3c4d.js"}')
    apps = plugin._react_apps()
    for each in apps:  # one that Airflow refuses would hide the whole plugin
        ReactAppResponse.model_validate(each)
    assert {(each["name"], each["destination"]) for each in apps} == {
        ("Training", "dag_run"),
        ("Training", "task_instance"),
        ("Trainings", "nav"),
        ("New training", "nav"),
        ("Training usage", "nav"),
        ("Trainings card", "dashboard"),
    }
    assert {each["bundle_url"] for each in apps} == {"training/static/Training.1a2b3c4d.js"}
    assert len({each["url_route"] for each in apps}) == len(apps)


def test_the_pages_have_an_icon_for_light_and_for_dark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from xml.etree import ElementTree

    from airflow.api_fastapi.core_api.datamodels.plugins import ReactAppResponse

    from airflow_training import plugin

    monkeypatch.setattr(plugin, "_MANIFEST", tmp_path / "manifest.json")
    (tmp_path / "manifest.json").write_text('{"pages": "Training.1a2b3c4d.js"}')
    for each in plugin._react_apps():
        shown = ReactAppResponse.model_validate(each)
        icons = [shown.icon, shown.icon_dark_mode]
        assert len({*icons}) == 2
        for icon in icons:
            kind, _, image = str(icon).partition(",")
            assert kind == "data:image/svg+xml", (
                "no file: a picture from elsewhere may be forbidden"
            )
            assert "#" not in image, "a number sign ends an address"
            assert ElementTree.fromstring(unquote(image)).tag.endswith("svg")


async def test_the_first_requests_are_answered_while_others_go_on(airflow_home: Path):
    import asyncio
    import threading

    import httpx

    from airflow_training import plugin

    loads: list[str] = []
    begun, load, real = threading.Event(), threading.Event(), plugin._load_pages

    def slowly() -> Any:
        loads.append(threading.current_thread().name)
        begun.set()
        assert load.wait(PATIENCE)
        return real()

    plugin._served.clear()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(plugin, "_load_pages", slowly)
        transport = httpx.ASGITransport(app=plugin.pages)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            asked = [asyncio.ensure_future(client.get("/static/none.js")) for _ in range(3)]
            assert await asyncio.to_thread(begun.wait, 60)  # the loop is free meanwhile
            load.set()
            answers = await asyncio.gather(*asked)
    assert {each.status_code for each in answers} == {404}
    assert threading.main_thread().name not in loads


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
