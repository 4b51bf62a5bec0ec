"""Pools that count deferred tasks: a group that does not fit is refused before anything waits."""

from __future__ import annotations

from typing import Any

import pytest

from tests.airflow.stack import Airflow

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

POOLED = '''
"""A group in a pool of its own (airflow dag)."""
from airflow.sdk import DAG
from airflow_training import training

with DAG("pooled", schedule=None):
    training("../jobs-of-python/pooled.yaml", group_id="g", default_args={"pool": "narrow"})
'''


def test_a_group_larger_than_its_pool_fails_in_plan_and_runs_when_the_pool_lets_it(
    airflow: Airflow,
):
    """At once: reconcile, first.run, and of the second role the sensor or the task."""
    roles: list[dict[str, Any]] = [
        {"name": "first"},
        {"name": "second", "dependsOn": [{"role": "first", "status": "Complete"}]},
    ]
    airflow.write(
        airflow.document("pooled", *roles, command=["sh", "-c", "exit 0"]), folder="jobs-of-python"
    )
    airflow.pool("narrow", slots=2, include_deferred=True)
    (airflow.stack.home / "dags" / "pooled.py").write_text(POOLED)
    refused = airflow.trigger("pooled")
    assert airflow.wait_run("pooled", refused) == "failed"
    states = airflow.states("pooled", refused)
    assert (states["g.plan"], states["g.reconcile"]) == ("failed", "upstream_failed")
    log = airflow.text("pooled", refused, "g.plan")
    assert "pool 'narrow' has 2 slots and counts deferred tasks (include_deferred)" in log
    assert "holds up to 3 in it at the same time: g.reconcile, g.first.run" in log
    assert "give the pool at least 3 slots" in log
    assert airflow.store.run(airflow.uid("pooled", refused, group_id="g")) is None
    # the same run, cleared: pools are looked at again
    airflow.pool("narrow", slots=2, include_deferred=False)
    airflow.clear("pooled", refused, "g.plan")
    assert airflow.wait_run("pooled", refused) == "success"
    # and what `plan` lets through does run to its end in a pool that is just large enough
    airflow.pool("narrow", slots=3, include_deferred=True)
    fits = airflow.trigger("pooled")
    assert airflow.wait_run("pooled", fits) == "success"
