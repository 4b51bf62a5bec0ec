"""How long pipelines take: closed forms against schedules that run event by event."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_training.planning.cost.pipeline import makespan
from tests.planning import schedules

SECONDS = st.floats(min_value=0.5, max_value=2.0)


def closed(forward, backward, micro_batches, **how):
    """Return the closed form of one pipeline."""
    found = makespan(
        np.array([forward]), np.array([backward]), micro_batches=np.array([micro_batches]), **how
    )
    return float(found[0])


def simulated(schedule, forward, backward, micro_batches):
    """Return what a schedule takes when it runs."""
    stages = len(forward)
    orders = [schedule(stage, stages, micro_batches) for stage in range(stages)]
    return schedules.run(orders, forward, backward)


@pytest.mark.parametrize(
    ("stages", "micro_batches", "seconds"),
    [
        pytest.param(1, 5, 15.0, id="one-stage-has-no-bubble"),
        pytest.param(4, 1, 12.0, id="one-micro-batch-visits-every-stage"),
        pytest.param(4, 8, 33.0, id="even-stages-wait-for-stages-minus-one-passes"),
    ],
)
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_even_pipelines(schedule, stages, micro_batches, seconds):
    """An even pipeline takes micro-batches plus stages minus one passes of a stage."""
    found = closed([1.0] * stages, [2.0] * stages, micro_batches, schedule=schedule)
    assert found == pytest.approx(seconds)


@given(st.data(), st.integers(1, 8), st.integers(1, 20))
def test_gpipe_is_exact_for_uneven_stages(data, stages, micro_batches):
    """GPipe's closed form is what the schedule takes, whatever its stages."""
    times = st.lists(SECONDS, min_size=stages, max_size=stages)
    forward, backward = data.draw(times), data.draw(times)
    ran = simulated(schedules.gpipe, forward, backward, micro_batches)
    assert closed(forward, backward, micro_batches, schedule="gpipe") == pytest.approx(ran)


@given(st.integers(1, 8), st.integers(1, 24), st.floats(1.0, 3.0), st.floats(1.0, 3.0))
def test_1f1b_is_exact_where_the_last_stage_is_slowest(stages, micro_batches, more, back):
    """A head on the last stage, the usual imbalance, is priced exactly."""
    forward = [1.0] * (stages - 1) + [more]
    backward = [back] * (stages - 1) + [back * more]
    ran = simulated(schedules.one_forward_one_backward, forward, backward, micro_batches)
    assert closed(forward, backward, micro_batches) == pytest.approx(ran)


@given(st.data(), st.integers(1, 8), st.integers(1, 24))
def test_1f1b_is_close_for_any_stages(data, stages, micro_batches):
    """For stages that vary up to four times, the closed form is at most a little too short."""
    times = st.lists(SECONDS, min_size=stages, max_size=stages)
    forward, backward = data.draw(times), data.draw(times)
    ran = simulated(schedules.one_forward_one_backward, forward, backward, micro_batches)
    assert 0.85 * ran <= closed(forward, backward, micro_batches) <= ran * (1 + 1e-9)


@pytest.mark.parametrize(("stages", "rounds", "chunks"), [(2, 3, 2), (4, 2, 3), (4, 4, 2)])
def test_virtual_stages_divide_the_bubble(stages, rounds, chunks):
    """Interleaving wastes what 1F1B wastes, divided by the chunks of a stage."""
    micro_batches = stages * rounds
    orders = [
        schedules.interleaved(stage, stages, micro_batches, chunks) for stage in range(stages)
    ]
    ran = schedules.run(orders, [1.0] * stages, [2.0] * stages, chunks=chunks)
    found = closed([1.0] * stages, [2.0] * stages, micro_batches, virtual_stages=chunks)
    assert found == pytest.approx(ran)
