"""Measured numbers take the place of those worked out, and say so."""

from __future__ import annotations

import pytest

from airflow_training.planning.cost import estimate
from airflow_training.planning.measurements import (
    Measurements,
    measured_cluster,
    measured_estimate,
)
from tests.planning.test_cost import PLAIN, cluster, workload

WORKED_OUT = estimate(workload(), cluster(), PLAIN)


def test_a_measured_link_is_used_as_it_was_measured():
    """A slow fabric lengthens what goes over it, and nothing else."""
    view = measured_cluster(cluster(), Measurements(link_bandwidth={"infiniband-200": 2e9}))
    slower = estimate(workload(), view, PLAIN)
    before, after = ({part.name: part.value for part in e.time} for e in (WORKED_OUT, slower))
    assert after["pp"] > 3 * before["pp"]
    assert after["compute"] == before["compute"]


def test_a_measured_part_is_marked():
    """A part that a run measured counts as measured; the others stay as they were."""
    found = measured_estimate(WORKED_OUT, Measurements(time_parts={"dp": 1.0}))
    origins = {part.name: part.origin for part in found.time}
    assert origins["dp"] == "measured"
    assert {origin for name, origin in origins.items() if name != "dp"} == {"static"}
    assert sum(part.value for part in found.time) == pytest.approx(found.step_seconds)
    assert found.p10 < found.step_seconds < found.p90


def test_a_measured_step_is_what_the_estimate_says():
    """The step of an equal run replaces the estimate and narrows its range."""
    found = measured_estimate(WORKED_OUT, Measurements(step_seconds=9.0, memory_bytes=4e10))
    assert found.step_seconds == 9.0
    assert sum(part.value for part in found.time) == pytest.approx(9.0)
    assert found.memory_bytes == 4e10
    assert sum(part.value for part in found.memory) == pytest.approx(4e10)
    assert found.p90 / found.p10 < WORKED_OUT.p90 / WORKED_OUT.p10


def test_devices_that_were_measured_slower():
    """A group at half speed computes for twice as long."""
    view = measured_cluster(cluster(), Measurements(device_efficiency={"a100": 0.5}))
    assert estimate(workload(), view, PLAIN).step_seconds > 1.5 * WORKED_OUT.step_seconds
