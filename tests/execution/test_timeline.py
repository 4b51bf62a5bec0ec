"""Where a step's time went, from records made up by hand: each gap and wait is what it is by the schedule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_training.execution.timeline import (
    RankRecord,
    StagePass,
    StepFractions,
    Timeline,
    TracedEvent,
    chrome_trace,
    mean_fractions,
    planned_fractions,
    step_fractions,
)


def one(stage, micro_batch, kind, begin, end):
    return StagePass(stage=stage, micro_batch=micro_batch, kind=kind, begin=begin, end=end)


def event(name, begin, end, thread=1):
    return TracedEvent(name=name, thread=thread, begin=begin, end=end)


def gpipe(stages, micro_batches, *, transfer=0.0, backward=2.0):
    """Record a schedule of equal stages that do all forward passes before the backward ones."""
    ends: dict[tuple[int, int, str], float] = {}
    passes: list[list[Any]] = [[] for _ in range(stages)]
    at = [0.0] * stages
    for m in range(micro_batches):
        for s in range(stages):
            ready = ends[s - 1, m, "forward"] + transfer if s else 0.0
            begin = max(at[s], ready)
            at[s] = ends[s, m, "forward"] = begin + 1.0
            passes[s].append(one(s, m, "forward", begin, at[s]))
    for m in range(micro_batches):
        for s in reversed(range(stages)):
            last = s == stages - 1
            ready = ends[s, m, "forward"] if last else ends[s + 1, m, "backward"] + transfer
            begin = max(at[s], ready)
            at[s] = ends[s, m, "backward"] = begin + backward
            passes[s].append(one(s, m, "backward", begin, at[s]))
    end = max(at)
    return [
        RankRecord(rank=s, pipeline=0, stages=stages, steps=[(0.0, end)], passes=passes[s])
        for s in range(stages)
    ]


@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 2), (2, 8), (4, 4), (4, 16)])
def test_the_bubble_of_equal_stages_is_that_of_the_formula(stages, micro_batches):
    for found in step_fractions(gpipe(stages, micro_batches)):
        expected = (stages - 1) / (micro_batches + stages - 1)
        assert found.bubble == pytest.approx(expected)
        assert found.computing == pytest.approx(1 - expected)
        assert found.communicating == pytest.approx(0)


def test_a_transfer_that_is_waited_for_is_communication_and_no_bubble():
    first, second = step_fractions(gpipe(2, 1, transfer=0.5))
    # rank 1: bubble 1, transfer 0.5, forward 1, backward 2, then the transfer and the pass of rank 0
    assert second.computing == pytest.approx(3 / 7)
    assert second.communicating == pytest.approx(0.5 / 7)
    assert second.bubble == pytest.approx(3.5 / 7)
    assert second.other == pytest.approx(0)
    # rank 0 cannot know more than that rank 1 was not done: 3.5 of bubble, and 0.5 until the gradient came
    assert first.communicating == pytest.approx(0.5 / 7)
    assert first.bubble == pytest.approx(3.5 / 7)


def test_a_collective_is_communication_only_where_no_operator_runs_beside_it():
    record = RankRecord(
        rank=0,
        pipeline=0,
        stages=1,
        steps=[(0.0, 10.0)],
        passes=[one(0, 0, "forward", 1, 4), one(0, 0, "backward", 4, 8)],
        operators=[event("aten::mm", 1, 4), event("aten::mm", 4, 6), event("aten::add_", 9, 9.5)],
        collectives=[event("gloo:all_reduce", 5, 9, thread=2)],
    )
    [found] = step_fractions([record])
    assert found.communicating == pytest.approx(0.3)  # 6 to 8 in the pass, and 8 to 9 after it
    assert found.computing == pytest.approx(0.55)
    assert found.bubble == 0
    assert found.other == pytest.approx(0.15)


def test_pipelines_of_two_replicas_do_not_wait_for_each_other():
    slow = gpipe(2, 2, backward=8.0)
    quick = [
        RankRecord(rank=each.rank + 2, pipeline=1, stages=2, steps=each.steps, passes=each.passes)
        for each in gpipe(2, 2)
    ]
    together = step_fractions([*slow, *quick])
    assert together[2:] == step_fractions(quick)


def test_steps_are_weighed_by_their_length_and_ranks_alike():
    record = RankRecord(
        rank=0,
        pipeline=0,
        stages=1,
        steps=[(0.0, 1.0), (2.0, 5.0)],
        passes=[one(0, 0, "forward", 0, 1)],
    )
    idle = RankRecord(rank=1, pipeline=1, stages=1, steps=record.steps)
    found = step_fractions([record, idle])
    assert [each.computing for each in found] == [0.25, 0.0]
    assert mean_fractions(found).computing == 0.125


@pytest.mark.parametrize("counts", [(0, 0), (1, 2)])
def test_unlike_numbers_of_steps_are_refused(counts):
    records = [
        RankRecord(rank=rank, pipeline=0, stages=1, steps=[(0.0, 1.0)] * count)
        for rank, count in enumerate(counts)
    ]
    with pytest.raises(ValueError, match="different numbers of steps"):
        step_fractions(records)


def test_what_the_plan_expects_stands_beside():
    lines = {"compute": 6.0, "launch": 1.0, "pp": 1.0, "dp": 0.5, "bubble": 1.0, "runtime": 0.5}
    document = {
        "breakdown": {"time_s": [{"name": name, "value": value} for name, value in lines.items()]}
    }
    planned = planned_fractions(document)
    assert planned is not None
    assert planned == replace(
        StepFractions(computing=0.7, communicating=0.15, bubble=0.1, other=0.0), other=planned.other
    )
    assert planned.other == pytest.approx(0.05)
    assert planned_fractions({"strategy": {}}) is None
    timeline = Timeline(path="x", fractions=planned, planned=planned)
    assert str(timeline).splitlines()[1] == "computing          70.0%    70.0%"
    assert str(Timeline(path="x")) == "nothing was recorded"


def test_the_trace_has_a_process_for_each_rank_with_passes_and_events():
    records = gpipe(2, 1)
    records[0] = RankRecord(
        rank=0,
        pipeline=0,
        stages=2,
        steps=records[0].steps,
        passes=records[0].passes,
        transfers=[event("gloo:send", 1.0, 1.25, thread=7)],
    )
    trace = chrome_trace(records)
    names = {
        each["pid"]: each["args"]["name"] for each in trace["traceEvents"] if each["ph"] == "M"
    }
    assert names == {0: "rank 0, stages [0]", 1: "rank 1, stages [1]"}
    [sent] = [each for each in trace["traceEvents"] if each["name"] == "gloo:send"]
    assert (sent["ts"], sent["dur"], sent["tid"], sent["cat"]) == (1e6, 2.5e5, 7, "transfer")
    passes = [each["name"] for each in trace["traceEvents"] if each.get("cat") == "pass"]
    assert sorted(passes) == [
        "backward 0 of stage 0",
        "backward 0 of stage 1",
        "forward 0 of stage 0",
        "forward 0 of stage 1",
    ]
