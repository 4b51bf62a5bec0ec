"""The Airflow plugin: a link on each role task, the pages it leads to, a listener, early imports.

Every Airflow process loads this, so the pages themselves are imported by the first request.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from airflow_training.airflow_compat import AIRFLOW, check_airflow

check_airflow()  # what follows would fail in words of its own

from airflow.plugins_manager import AirflowPlugin
from airflow.sdk import BaseOperatorLink
from airflow.sdk.configuration import conf

from airflow_training import listener
from airflow_training.operators.reconcile import ReconcileOperator
from airflow_training.operators.role import MappedRoleOperator, RoleOperator
from airflow_training.preload import component, preload

__all__ = ["InstanceLogsLink", "TrainingPlugin"]

PREFIX = "/training"
_ICON = (
    "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' xmlns:x='http://www.w3.org/1999/xlink' viewBox='0 0 24 24'"
    " fill='none' stroke-linecap='round' stroke-linejoin='round'><defs><path id='a' d='M3 3v18h18M7 5q2 10 13 11'/></defs>"
    "<use x:href='%23a' stroke='{halo}' stroke-width='5'/><use x:href='%23a' stroke='{colour}' stroke-width='2'/></svg>"
)
"""A loss that falls, in the place of a plug. Airflow turns what is behind it dark where it is chosen: hence the halo."""
_MANIFEST = Path(__file__).parent / "web" / "static" / "manifest.json"


class InstanceLogsLink(BaseOperatorLink):
    """Opens the list of a task's instances, each with its log.

    The address follows from the task instance alone, so that the link is there while the task is
    deferred, and no XCom is needed.
    """

    name = "Instance logs"
    operators = [RoleOperator, MappedRoleOperator, ReconcileOperator]  # noqa: RUF012 - Airflow's shape

    def get_link(self, operator: Any, *, ti_key: Any) -> str:  # noqa: ARG002 - Airflow's signature
        """Return the address of the page, on the server that shows the link."""
        # Airflow may live below a path of its server: https://example.com/airflow
        below = urlsplit(conf.get("api", "base_url", fallback="")).path.rstrip("/")
        query = {
            "dag_id": ti_key.dag_id,
            "run_id": ti_key.run_id,
            "task_id": ti_key.task_id,
            "map_index": ti_key.map_index,
        }
        return f"{below}{PREFIX}/logs?{urlencode(query)}"


def _react_apps() -> list[dict[str, Any]]:
    """Return where Airflow shows the pages; nowhere, where they were not built.

    One entry that Airflow refuses would hide the whole plugin.
    """
    try:
        built = json.loads(_MANIFEST.read_bytes())["pages"]
    except (OSError, ValueError, KeyError):
        return []
    # `name` is what the tab says, and the global variable that the bundle sets
    places: tuple[tuple[str, str, str, Mapping[str, Any]], ...] = (
        ("Training", "dag_run", "training-run", {}),
        ("Training", "task_instance", "training-task", {}),
        ("Trainings", "nav", "trainings", {"nav_top_level": True}),  # else below *Plugins*
        ("New training", "nav", "training-new", {"category": "browse"}),
        ("Training usage", "nav", "training-usage", {"category": "browse"}),
        ("Trainings card", "dashboard", "trainings-card", {}),
    )
    return [
        {
            "name": name,
            "bundle_url": f"{PREFIX.removeprefix('/')}/static/{built}",
            "destination": destination,
            "url_route": route,
            "icon": _ICON.format(colour="%233f3f46", halo="white"),
            "icon_dark_mode": _ICON.format(colour="%23d4d4d8", halo="none"),
            **more,
        }
        for name, destination, route, more in places
    ]


async def pages(scope: Any, receive: Any, send: Any) -> None:
    """Answer a request below `/training`; an ASGI application.

    What the first one imports takes a second or two, in which other requests are answered.
    """
    # whoever answers may ask Airflow something as the same user
    await (await _app_of(scope))({**scope, AIRFLOW: scope.get("app")}, receive, send)


async def _app_of(scope: Any) -> Any:
    """The pages, or what `cloud run` talks to: neither waits for the imports of the other."""
    path = str(scope.get("path", "")).removeprefix(scope.get("root_path", ""))
    load = _load_cloud if path.startswith(_CLOUD) else _load_pages
    if load not in _served:
        _served[load] = await asyncio.to_thread(load)
    return _served[load]


_CLOUD = ("/cloud/", "/client")
_served: dict[Callable[[], Any], Any] = {}


def _load_pages() -> Any:
    from airflow_training.web.logs import app

    return app


def _load_cloud() -> Any:
    from airflow_training.cloud.service.airflow_app import airflow_app

    return airflow_app(mounted_at=PREFIX)


class TrainingPlugin(AirflowPlugin):
    """Registers the link, the pages and the listener; imports early where that helps."""

    name = "airflow_training"
    operator_extra_links = [InstanceLogsLink()]  # noqa: RUF012 - Airflow's shape
    # only where it is called: where DAGs are parsed, a listener makes Airflow refuse every DAG
    # that has a task with `end_from_trigger`
    listeners = [listener] if component(sys.argv) in ("scheduler", "triggerer") else []
    fastapi_apps = [{"app": pages, "url_prefix": PREFIX, "name": "Training"}]  # noqa: RUF012
    react_apps = _react_apps()

    @classmethod
    def on_load(cls, *_args: Any, **_kwargs: Any) -> None:
        """Import what the processes that this one forks will need."""
        preload()
