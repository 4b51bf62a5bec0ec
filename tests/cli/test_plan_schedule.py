"""The pipeline of a plan's picture: every pass once, in an order that can run."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from airflow_training.cli.plan_schedule import timeline


def plan(**strategy: Any) -> dict[str, Any]:
    split = {
        "pp": 4,
        "dp": 1,
        "virtual_stages": 1,
        "micro_batch": 1,
        "global_batch": 8,
        "recompute": "none",
        "schedule": "1f1b",
        "stage_layers": None,
        **strategy,
    }
    return {"strategy": split, "breakdown": {"time_s": [{"name": "compute", "value": 24.0}]}}


CASES = [
    pytest.param({}, id="1f1b"),
    pytest.param({"schedule": "gpipe"}, id="gpipe"),
    pytest.param({"virtual_stages": 3, "schedule": "interleaved"}, id="interleaved"),
    pytest.param({"pp": 1}, id="one-stage"),
    pytest.param({"pp": 8, "global_batch": 3}, id="fewer-batches-than-stages"),
    pytest.param({"stage_layers": [1, 2, 2, 1]}, id="uneven"),
    pytest.param({"virtual_stages": 2, "global_batch": 6}, id="a-group-that-is-not-full"),
]


@pytest.mark.parametrize("strategy", CASES)
def test_every_micro_batch_passes_every_stage_forward_and_backward_once(strategy):
    boxes, drawn, _ = timeline(plan(**strategy))
    split = plan(**strategy)["strategy"]
    passes = {(b.stage, b.chunk, b.micro_batch, b.forward) for b in boxes}
    assert len(passes) == len(boxes) == 2 * drawn * split["pp"] * split["virtual_stages"]


@pytest.mark.parametrize("strategy", CASES)
def test_a_stage_does_one_thing_at_a_time_and_nothing_before_its_input(strategy):
    boxes, _, _ = timeline(plan(**strategy))
    ends = {(b.stage, b.chunk, b.micro_batch, b.forward): b.end for b in boxes}
    for stage in {box.stage for box in boxes}:
        own = sorted((b for b in boxes if b.stage == stage), key=lambda b: b.begin)
        assert all(a.end <= b.begin + 1e-9 for a, b in itertools.pairwise(own))
    for box in boxes:
        if box.stage and box.forward:
            assert ends[box.stage - 1, box.chunk, box.micro_batch, True] <= box.begin + 1e-9
        if not box.forward:
            assert ends[box.stage, box.chunk, box.micro_batch, True] <= box.begin + 1e-9


def test_1f1b_takes_as_long_as_its_formula_says():
    """(m + p - 1) passes of the slowest stage: Narayanan et al. 2021, section 2.2."""
    boxes, drawn, _ = timeline(plan())
    one = 24.0 / 8
    assert max(box.end for box in boxes) == pytest.approx((drawn + 4 - 1) * one)
