"""Airflow's REST API as far as the command line needs it. Knows no job document."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypedDict

import httpx

from airflow_training.errors import InputError, RuntimeUnavailable

if TYPE_CHECKING:
    from typing_extensions import Unpack  # of `typing` from 3.11 on

__all__ = ["AirflowApi"]

_TOKEN_VARIABLES = ("AIRFLOW_TOKEN", "AIRFLOW_API_TOKEN", "AIRFLOW_CLI_TOKEN")
_TIMEOUT_SECONDS = 30.0
_HINTS = {
    401: ("--username", "log in: --username and --password, or AIRFLOW_TOKEN"),
    403: ("--username", "this user may not do that; ask an administrator"),
    404: ("--server", "is that the address, the DAG and the run? does it have this plugin?"),
    409: ("--run-id", "it is taken: give another"),
}
"""HTTP status -> which option to change, and how."""


class _Options(TypedDict, total=False):
    """What a request carries, as httpx takes it."""

    json: Mapping[str, Any]
    params: Mapping[str, str | int]


class AirflowApi:
    """One Airflow server. Use it as a context manager."""

    def __init__(self, server: str, *, username: str = "", password: str = "") -> None:
        """Log in with name and password, else with the token of `$AIRFLOW_TOKEN`, else as nobody.

        Raises InputError for a refused login, RuntimeUnavailable where nothing answers.
        """
        self.server = server.rstrip("/")
        self._client = httpx.Client(base_url=self.server, timeout=_TIMEOUT_SECONDS)
        self.token = self._token(username, password)
        """Empty: as nobody."""
        if self.token:
            self._client.headers["Authorization"] = f"Bearer {self.token}"

    def __enter__(self) -> AirflowApi:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.close()

    def trigger(self, dag_id: str, *, conf: Mapping[str, Any], run_id: str) -> str:
        """Start a DAG run and return its id; raises InputError for what Airflow refuses."""
        body: dict[str, Any] = {"logical_date": None, "conf": conf}
        if run_id:
            body["dag_run_id"] = run_id
        answer = self._call("POST", f"/api/v2/dags/{dag_id}/dagRuns", json=body)
        return str(answer["dag_run_id"])

    def dag_run(self, dag_id: str, run_id: str) -> Mapping[str, Any]:
        """Return a DAG run as Airflow's API describes it."""
        return self._call("GET", f"/api/v2/dags/{dag_id}/dagRuns/{run_id}")

    def stop(self, dag_id: str, run_id: str) -> None:
        """Mark a DAG run failed; its tasks stop the job."""
        self._call("PATCH", f"/api/v2/dags/{dag_id}/dagRuns/{run_id}", json={"state": "failed"})

    def tasks(self, dag_id: str, run_id: str) -> Sequence[Mapping[str, Any]]:
        """Return the task instances of a run, all pages of them."""
        found: list[Mapping[str, Any]] = []
        while True:
            page = self._call(
                "GET",
                f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances",
                params={"limit": 100, "offset": len(found)},
            )
            found += page["task_instances"]
            if not page["task_instances"] or len(found) >= page["total_entries"]:
                return found

    def training_status(self, dag_id: str, run: str) -> Mapping[str, Any]:
        """The document of `status --output json`, from the server's plugin."""
        return self._call("GET", "/training/status", params={"dag_id": dag_id, "run": run})

    def _token(self, username: str, password: str) -> str:
        if username:
            answer = self._call(
                "POST", "/auth/token", json={"username": username, "password": password}
            )
            return str(answer["access_token"])
        for name in _TOKEN_VARIABLES:
            if os.environ.get(name):
                return os.environ[name]
        # servers without logins (all users are admins) give a token to everybody
        given = self._send("GET", "/auth/token")
        return str(given.json()["access_token"]) if given.status_code in (200, 201) else ""

    def _call(self, method: str, path: str, **options: Unpack[_Options]) -> Mapping[str, Any]:
        answer = self._send(method, path, **options)
        if answer.status_code < 400:
            found: Mapping[str, Any] = answer.json()
            return found
        if answer.status_code >= 500:
            raise RuntimeUnavailable(
                f"{self.server} answered {answer.status_code} to {method} {path}: {_why(answer)}"
            )
        field, hint = _HINTS.get(answer.status_code, ("--server", ""))
        raise InputError.of(
            code="not_allowed",
            field=field,
            message=f"{self.server} refused {method} {path} ({answer.status_code}): {_why(answer)}",
            hint=hint,
        )

    def _send(self, method: str, path: str, **options: Unpack[_Options]) -> httpx.Response:
        try:
            return self._client.request(method, path, **options)
        except (httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
            raise InputError.of(
                code="not_allowed",
                field="--server",
                value=self.server,
                message=f"is no address: {error}",
                hint="for example http://localhost:8080",
            ) from None
        except httpx.HTTPError as error:
            raise RuntimeUnavailable(f"{self.server} does not answer: {error}") from error


def _why(answer: httpx.Response) -> str:
    try:
        detail = answer.json().get("detail", "")
    except (ValueError, AttributeError):
        return answer.text[:500]
    if isinstance(detail, list):
        return "; ".join(str(each.get("msg", each)) for each in detail)
    return str(detail)
