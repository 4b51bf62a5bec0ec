"""`GET /training/status`: only runs of the DAG whose rights Airflow has checked."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from airflow_training.documents.resolved import RunKey
from airflow_training.state.store import deployment_id
from tests.airflow.test_progress_route import a_run


@pytest.fixture
def client(airflow_home: Any) -> Any:
    """Return a client whose user may read every DAG."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of libraries that Airflow imports
        from fastapi.testclient import TestClient

        from airflow_training.web import status
        from airflow_training.web.logs import app
    app.dependency_overrides[status._may_read_runs.dependency] = lambda: None
    yield TestClient(app)
    app.dependency_overrides.clear()


@pytest.mark.parametrize(("query", "code"), [("dag_id=&", 422), ("", 422), ("dag_id=digits&", 404)])
def test_no_run_of_the_command_line_is_told(client, query, code):
    uid = a_run()
    for name in (uid, uid[:8], "reporting"):
        answer = client.get(f"/status?{query}run={name}")
        assert answer.status_code == code, answer.text


@pytest.mark.parametrize(("ours", "code"), [(True, 200), (False, 404)])
def test_no_run_of_another_deployments_dag_is_told(client, ours, code):
    source = deployment_id() if ours else "elsewhere"
    uid = a_run(key=RunKey(source=source, dag_id="digits", run_id="reporting"))
    for name in (uid, uid[:8], "reporting"):
        answer = client.get(f"/status?dag_id=digits&run={name}")
        assert answer.status_code == code, answer.text
