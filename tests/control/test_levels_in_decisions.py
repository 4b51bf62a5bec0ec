"""A restart tells how much has to be made anew, and keeps away from a node that is to blame."""

from __future__ import annotations

import json

import pytest

from airflow_training.documents.instances import InstanceKey
from tests.builders import Bench, job, role


def a_bench(**fields) -> Bench:
    return Bench(job=job(role("worker", 1, backoff_limit=20), **fields)).settle()


def records(**parts) -> tuple[str, ...]:
    return (json.dumps({"at": 1000.0, "on": "exit", **parts}),)


LOST = records(devices=[{"id": "0", "error": "fell off the bus"}])


@pytest.mark.parametrize(
    ("environment", "reason", "level", "avoided"),
    [
        pytest.param(records(), "Error", "process", (), id="in-a-healthy-place"),
        pytest.param(LOST, "Error", "node", ("a",), id="a-device-is-lost"),
        pytest.param((), "Evicted", "node", ("a",), id="the-reason-says-it"),
        pytest.param((), "Error", "container", (), id="nothing-recorded"),
        pytest.param(("{", "7"), "Error", "container", (), id="nothing-readable"),
    ],
)
def test_a_restart_tells_the_level_and_avoids_the_node(environment, reason, level, avoided):
    bench = a_bench()
    bench.end("worker", exit_code=1, environment=environment, reason=reason, node="a")
    bench.step()
    [told] = [each for each in bench.events if each.reason == "InstanceRestarted"]
    assert told.data["recovery"] == level
    assert told.data["recovery_why"]
    assert bench.ledger.instances[InstanceKey("worker", 0)].avoid_nodes == avoided


def test_only_the_newest_nodes_are_avoided_each_once():
    bench = a_bench(max_restarts=100)
    for node in ("a", "b", "a", "c", "d", "e"):
        bench.end("worker", exit_code=1, environment=LOST, node=node)
        bench.settle()
    assert bench.ledger.instances[InstanceKey("worker", 0)].avoid_nodes == ("a", "c", "d", "e")
