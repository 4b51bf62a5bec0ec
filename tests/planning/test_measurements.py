"""What runs measured takes the place of what was worked out, and says so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_training.planning.cost import estimate
from airflow_training.planning.cost.constants import FROZEN
from airflow_training.planning.cost.measurements import (
    MeasuredStep,
    measured_estimate,
    steps_of,
    subject,
)
from airflow_training.planning.search import constraints, search
from airflow_training.planning.search.measured import measured_pricing
from airflow_training.planning.view.strategy import Strategy
from tests.planning.test_cost import PLAIN, cluster, workload

WORKED_OUT = estimate(workload(), cluster(), PLAIN)
SMALL = constraints.parse({"devices": 8, "pp": 1, "cp": 1, "recompute": "none"})


def found(*, pricing=None, top_k=5):
    options = {} if pricing is None else {"pricing": pricing}
    return search(workload(), cluster(), constraints=SMALL, top_k=top_k, **options)


def after(*steps: MeasuredStep):
    """Return what a search finds that knows of these steps."""
    pricing, _ = measured_pricing(FROZEN, workload(), cluster(), steps)
    return found(pricing=pricing)


def taking(plan, factor: float, **more) -> MeasuredStep:
    return MeasuredStep(strategy=plan.strategy, step_seconds=plan.step_seconds * factor, **more)


def origins(parts) -> set[str]:
    return {part.origin for part in parts}


# one estimate ---------------------------------------------------------------------------------------
def test_a_measured_step_is_what_the_estimate_says():
    """The step of an equal run replaces the estimate and narrows its range."""
    step = MeasuredStep(strategy=PLAIN, step_seconds=9.0, memory_bytes=4e10)
    said = measured_estimate(WORKED_OUT, step)
    assert said.step_seconds == 9.0
    assert sum(part.value for part in said.time) == pytest.approx(9.0)
    assert said.memory_bytes == 4e10
    assert sum(part.value for part in said.memory) == pytest.approx(4e10)
    assert origins(said.time) == origins(said.memory) == {"measured"}
    assert said.p90 / said.p10 < WORKED_OUT.p90 / WORKED_OUT.p10


def test_memory_that_nobody_measured_stays_worked_out():
    said = measured_estimate(WORKED_OUT, MeasuredStep(strategy=PLAIN, step_seconds=9.0))
    assert said.memory == WORKED_OUT.memory
    assert said.memory_bytes == WORKED_OUT.memory_bytes


def test_the_newest_runs_of_a_strategy_count_by_their_median():
    """One slow run does not, nor do those of long ago; of peaks the highest does."""
    took = [1.0, 1.1, 9.0, 1.2, 1.1, 50.0, 50.0, 50.0]
    runs = [
        MeasuredStep(strategy=PLAIN, step_seconds=seconds, memory_bytes=peak)
        for seconds, peak in zip(took, [None, 3e9, 2e9, None, None, 9e9, None, None], strict=True)
    ]
    other = MeasuredStep(strategy=replace(PLAIN, micro_batch=4), step_seconds=7.0)
    assert steps_of([*runs, other]) == [
        MeasuredStep(strategy=PLAIN, step_seconds=1.1, memory_bytes=3e9, runs=5),
        other,
    ]


# what a measurement is about ------------------------------------------------------------------------
def test_a_run_tells_something_about_the_cluster_that_lost_a_node_or_became_dearer():
    here = cluster()
    [group] = here.groups
    known = subject(workload(), here)
    fewer = replace(group, count=group.count - 1, price_per_device_hour=9.0, name="theirs")
    assert subject(workload(), replace(here, name="other", groups=(fewer,))) == known


@pytest.mark.parametrize("change", ["runtime", "view", "node", "network"])
def test_a_run_tells_nothing_about_another(change):
    ours, here = workload(), cluster()
    [group] = here.groups
    known = subject(ours, here)
    if change == "runtime":
        ours = replace(ours, runtime="fsdp")
    elif change == "view":
        ours = replace(ours, view=replace(ours.view, batch=2))
    elif change == "node":
        here = replace(here, groups=(replace(group, devices_per_node=4),))
    else:
        slower = replace(group.nic, bandwidth=group.nic.bandwidth / 10)
        here = replace(here, groups=(replace(group, nic=slower),))
    assert subject(ours, here) != known


# a search -------------------------------------------------------------------------------------------
def test_all_strategies_take_the_factor_of_the_one_that_was_measured():
    """So a split is not left because it is the one that was measured."""
    before = found()
    plans = after(taking(before.plans[0], 2.0)).plans
    assert [plan.strategy for plan in plans] == [plan.strategy for plan in before.plans]
    assert [plan.step_seconds for plan in plans] == pytest.approx(
        [2.0 * plan.step_seconds for plan in before.plans]
    )
    assert origins(plans[0].time) == {"measured"}
    assert {part.name for part in plans[1].time if part.origin == "measured"} == {"runtime"}
    assert plans[0].p10 < plans[0].step_seconds < plans[0].p90
    assert plans[1].p90 / plans[1].p10 > plans[0].p90 / plans[0].p10


def test_a_runtime_that_was_measured_here_has_the_range_of_known_ones():
    before = found().plans[1]
    plan = after(taking(found().plans[0], 1.0)).plans[1]
    low, high = FROZEN.spread_known
    assert (plan.p10, plan.p90) == pytest.approx(
        (plan.step_seconds * low, plan.step_seconds * high)
    )
    assert before.p90 / before.p10 > plan.p90 / plan.p10


def test_of_two_that_were_measured_the_quicker_wins():
    before = found().plans
    plans = after(taking(before[0], 1.5), taking(before[3], 0.8)).plans
    assert plans[0].strategy == before[3].strategy
    assert plans[0].step_seconds == pytest.approx(0.8 * before[3].step_seconds)
    assert before[0].strategy not in [plan.strategy for plan in plans[:2]]


def test_a_strategy_far_from_the_best_is_found_where_it_was_measured_to_be_quick():
    """No bound may cut it."""
    far = Strategy(global_batch=64, micro_batch=1, tp=8, pp=4, recompute="full")
    best, slow = search(workload(), cluster()).plans[0], estimate(workload(), cluster(), far)
    apart = 0.5 * best.step_seconds / slow.step_seconds  # the others take this factor
    steps = taking(best, 1.0), taking(slow, apart**2)
    pricing, _ = measured_pricing(FROZEN, workload(), cluster(), steps)
    [plan, *_] = search(workload(), cluster(), pricing=pricing).plans
    assert plan.strategy == far
    assert plan.step_seconds == pytest.approx(apart**2 * slow.step_seconds)


def test_steps_of_another_precision_tell_nothing():
    step = MeasuredStep(strategy=replace(PLAIN, precision="fp32"), step_seconds=99.0)
    pricing, correction = measured_pricing(FROZEN, workload(), cluster(), [step])
    assert correction is None
    assert pricing.estimate(workload(), cluster(), PLAIN) == WORKED_OUT
