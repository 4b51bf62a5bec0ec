"""What is found in runs that went wrong, and that nothing is found in healthy ones."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_training.logs.health import assess
from airflow_training.logs.health.balance import distribution, imbalance
from airflow_training.logs.health.progress import progress
from tests.examples import examples
from tests.logs.health.simulation import START, a_series, a_training


def changed(series, metric, change, *, rank=0):
    """Return a run with the values of one metric replaced."""
    return [
        dataclasses.replace(each, values=change(each.values.copy()))
        if (each.metric, each.rank) == (metric, rank)
        else each
        for each in series
    ]


def kinds(findings) -> list[str]:
    return [each.kind for each in findings]


# healthy ---------------------------------------------------------------------------------------
@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    ranks=st.integers(1, 5),
    reports=st.integers(0, 1500),
    noise=st.sampled_from([0.0, 0.02, 0.1, 0.3]),
    jitter=st.sampled_from([0.0, 0.02, 0.1, 0.3]),
)
def test_a_healthy_run_raises_no_alarm(seed, ranks, reports, noise, jitter):
    run = a_training(seed=seed, ranks=ranks, reports=reports, noise=noise, jitter=jitter)
    ends = {each.file: float(each.times[-1]) + 25 for each in run if len(each.times)}
    assert [each for each in assess(run, until=ends) if each.severity != "info"] == []


@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), sigma=st.sampled_from([0.1, 0.3, 0.6]))
def test_noise_with_heavy_tails_is_no_spike(seed, sigma):
    dice = np.random.default_rng(seed)
    loss = np.exp(sigma * dice.laplace(size=3000))
    assert "loss-spike" not in kinds(assess([a_series("loss", loss)]))


def test_few_values_say_nothing():
    assert assess([]) == ()
    assert assess([a_series("loss", [3.0])]) == ()
    assert assess([a_series("loss", [])]) == ()


# losses ------------------------------------------------------------------------------------------
def test_a_loss_that_became_nan_says_where():
    run = changed(a_training(seed=1), "loss", lambda v: np.where(np.arange(600) >= 400, np.nan, v))
    first = assess(run)[0]
    assert (first.kind, first.severity, first.metric) == ("nan", "error", "loss")
    assert (first.rank, first.step, first.line, first.offset) == (0, 4010, 401, 40_000)
    assert first.file == "rank0.log"
    assert first.time == run[0].times[400]


def test_an_infinite_loss_that_recovered_is_a_warning():
    run = changed(a_training(seed=1), "loss", lambda v: np.where(np.arange(600) == 30, np.inf, v))
    found = [each for each in assess(run) if each.kind == "nan"]
    assert [(each.severity, each.line) for each in found] == [("warning", 31)]


def test_a_skipped_overflow_of_mixed_precision_is_normal():
    run = changed(
        a_training(seed=2), "grad_norm", lambda v: np.where(np.arange(600) % 200 == 0, np.inf, v)
    )
    assert kinds(each for each in assess(run) if each.severity != "info") == []
    run = changed(
        a_training(seed=2), "grad_norm", lambda v: np.where(np.arange(600) > 590, np.nan, v)
    )
    assert [(each.kind, each.metric) for each in assess(run)][:1] == [("nan", "grad_norm")]


@pytest.mark.parametrize("seed", range(5))
def test_a_spike_is_found_once_where_it_begins(seed):
    def spike(values):
        values[300:312] *= np.linspace(3, 1.2, 12)
        return values

    run = changed(a_training(seed=seed), "loss", spike)
    found = [each for each in assess(run) if each.kind == "loss-spike"]
    assert [(each.line, each.rank) for each in found] == [(301, 0)]
    assert "loss jumped from" in found[0].message


def test_a_divergence_is_a_spike():
    run = changed(
        a_training(seed=3), "loss", lambda v: np.where(np.arange(600) > 500, 11.0, v), rank=2
    )
    found = [each for each in assess(run) if each.kind == "loss-spike"]
    assert [(each.line, each.rank) for each in found] == [(502, 2)]


def test_a_loss_that_stays_is_a_plateau_and_one_that_falls_slowly_is_none():
    dice = np.random.default_rng(1)
    flat = 2 + 0.02 * dice.standard_normal(1000)
    found = assess([a_series("loss", flat)])
    assert [(each.kind, each.severity, each.line) for each in found] == [("plateau", "info", 501)]
    slow = (np.arange(1000) + 5.0) ** -0.1 + 0.02 * dice.standard_normal(1000)
    assert assess([a_series("loss", slow)]) == ()


# ranks against each other ------------------------------------------------------------------------
@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize("printed", [True, False])
def test_a_straggler_is_named(ranks, printed):
    run = a_training(seed=5, ranks=ranks, jitter=0.03)

    def slower(each):
        if each.rank != 1:
            return each
        if each.metric == "step_time_seconds":
            return dataclasses.replace(
                each, values=each.values * np.where(np.arange(600) >= 200, 1.4, 1.0)
            )
        between = np.diff(each.times, prepend=each.times[0])
        lag = np.where((np.arange(600) >= 200) & (between < 20), 2.0, 0.0)
        return dataclasses.replace(each, times=each.times + np.cumsum(lag))

    run = [slower(each) for each in run]
    if not printed:
        run = [each for each in run if each.metric != "step_time_seconds"]
    found = [each for each in assess(run) if each.kind == "straggler"]
    assert [each.rank for each in found] == [1]
    assert 180 <= (found[0].line or 0) <= 240
    assert "rank 1 needs 4" in found[0].message


def test_a_rank_that_is_slow_for_a_moment_is_no_straggler():
    def slow(values):
        values[300:320] *= 5
        return values

    run = changed(a_training(seed=6), "step_time_seconds", slow, rank=2)
    assert "straggler" not in kinds(assess(run))


def test_cold_caches_at_the_beginning_are_no_straggler():
    run = changed(
        a_training(seed=6),
        "step_time_seconds",
        lambda v: v * np.where(np.arange(600) < 55, 3, 1),
        rank=2,
    )
    assert "straggler" not in kinds(assess(run))


def test_an_evaluator_is_not_compared():
    run = a_training(seed=7, ranks=3)
    odd = [
        dataclasses.replace(each, rank=None, role="evaluator", values=each.values * 9)
        for each in run
        if each.rank == 0
    ]
    assert "straggler" not in kinds(assess([*run, *odd]))


# silence -----------------------------------------------------------------------------------------
def test_a_rank_that_went_silent_hangs():
    run = a_training(seed=8, evaluate_seconds=5.0)
    last = float(run[0].times[-1])
    run = [each for each in run if each.metric != "total_steps"]
    silent = {f"rank{rank}.log": last + 28 for rank in range(4)}
    assert "hang" not in kinds(assess(run, until=silent))
    silent["rank2.log"] = last + 120
    found = [each for each in assess(run, until=silent) if each.kind == "hang"]
    assert [(each.rank, each.severity, each.line) for each in found] == [(2, "error", 600)]
    assert "no progress for 120 s" in found[0].message
    assert assess(run) == (), "nobody says that the log is at its end"


def test_what_is_finished_or_announces_a_pause_does_not_hang():
    done = a_training(seed=8, ranks=1, evaluate_seconds=5.0)
    later = {"rank0.log": float(done[0].times[-1]) + 300}
    assert "hang" not in kinds(assess(done, until=later))
    run = [each for each in done if each.metric != "total_steps"]
    said = {"rank0.log": ["step 6000", "Saving checkpoint to /ckpt/step_6000"]}
    assert "hang" not in kinds(assess(run, until=later, last_lines=said))
    assert "hang" in kinds(assess(run, until=later, last_lines={"rank0.log": ["step 6000"]}))


def test_pauses_that_the_rank_has_come_back_from_are_no_hang():
    run = [
        each
        for each in a_training(seed=9, ranks=1, evaluate_seconds=400)
        if each.metric != "total_steps"
    ]
    last = float(run[0].times[-1])
    assert "hang" not in kinds(assess(run, until={"rank0.log": last + 500}))
    assert "hang" in kinds(assess(run, until={"rank0.log": last + 3000}))


# throughput and memory ----------------------------------------------------------------------------
def test_throughput_that_falls_says_from_when():
    run = changed(
        a_training(seed=10),
        "tokens_per_second",
        lambda v: v * np.where(np.arange(600) > 299, 0.5, 1),
    )
    found = [each for each in assess(run) if each.kind == "throughput-drop"]
    assert [(each.rank, each.line) for each in found] == [(0, 301)]
    assert re.search(r"fell by (49|50|51)%", found[0].message)


def test_a_leak_is_found_and_a_cache_that_fills_is_none():
    grows = 1e10 * (1 + np.arange(600) / 1000) + 1e8 * np.random.default_rng(1).random(600)
    run = changed(a_training(seed=11), "memory_bytes", lambda v: grows, rank=3)
    found = [each for each in assess(run) if each.kind == "memory-growth"]
    assert [each.rank for each in found] == [3]
    assert "GiB" in found[0].message


# progress -----------------------------------------------------------------------------------------
def test_progress_and_the_end():
    run = a_training(seed=12, reports=300)
    run = [
        dataclasses.replace(each, values=np.full(300, 6000.0))
        if each.metric == "total_steps"
        else each
        for each in run
    ]
    found = progress(run)
    assert [(each.rank, each.step, each.total_steps) for each in found] == [
        (rank, 3000, 6000) for rank in range(4)
    ]
    first = found[0]
    assert 0.4 < (first.step_seconds or 0) < 1.2
    told = [first.at, first.done_earliest, first.done_at, first.done_latest]
    assert told == sorted(each for each in told if each is not None)


def test_the_interval_holds_the_end_most_of_the_time():
    held = 0
    for seed in range(100):
        run = a_training(seed=seed, ranks=1, reports=600, jitter=0.3)
        end = float(run[0].times[-1])
        cut = [
            dataclasses.replace(
                each,
                steps=each.steps[:300],
                values=each.values[:300],
                times=each.times[:300],
                offsets=each.offsets[:300],
                lines=each.lines[:300],
            )
            for each in run
        ]
        known = progress(cut)[0]
        held += (known.done_earliest or 0) <= end <= (known.done_latest or 0)
    assert held >= 80


def test_a_log_without_times_or_total_still_tells_the_step():
    series = a_series("loss", np.ones(50), times=np.full(50, np.nan))
    (known,) = progress([series])
    assert (known.step, known.step_seconds, known.done_at, known.at) == (49, None, None, None)


def test_steps_that_start_again_after_a_restart():
    steps = np.concatenate([np.arange(100), np.arange(50, 120)]).astype(float)
    times = START + 2 * np.arange(170.0)
    times[100:] += 600  # until it was back
    series = [
        a_series("loss", np.ones(170), steps=steps, times=times),
        a_series("total_steps", np.full(170, 219.0), steps=steps, times=times),
    ]
    (known,) = progress(series)
    assert known.step == 119
    assert known.step_seconds == pytest.approx(2.0)
    assert known.done_at == pytest.approx(times[-1] + 200)


# spread -------------------------------------------------------------------------------------------
def test_counts_as_a_distribution():
    found = distribution({"worker-0": 100, "worker-1": 300, "worker-2": 110})
    assert (found.total, found.median, found.most, found.fullest) == (510, 110, 300, "worker-1")
    assert found.emptiest == "worker-0"


@pytest.mark.parametrize(
    ("counts", "uneven"),
    [
        ([1000, 1010, 990, 1000], False),
        ([1000, 1000, 1000, 2000], True),
        ([1000, 1000, 1000, 100], True),
        ([1, 2, 1, 1], False),
        ([1000], False),
        ([], False),
        ([0, 0, 400], True),
    ],
)
def test_imbalance(counts, uneven):
    named = {f"worker-{number}": count for number, count in enumerate(counts)}
    finding = imbalance(named, of="samples", per="instance")
    assert (finding is not None) == uneven
    if finding is not None:
        assert finding.kind == "imbalance"
        assert "samples per instance are uneven: worker-" in finding.message


def test_files_that_do_not_divide_are_even():
    assert imbalance({"a": 2, "b": 1}, of="files", per="instance", fewest=0) is None
    assert imbalance({"a": 9, "b": 1, "c": 2}, of="files", per="instance", fewest=0) is not None
