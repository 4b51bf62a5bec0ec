"""Ranks that make no progress: who stopped first, and what it printed last."""

from __future__ import annotations

import dataclasses

import pytest

from airflow_training.logs.diagnosis.catalogue import load
from airflow_training.logs.diagnosis.diagnose import diagnose
from airflow_training.logs.model import FileScan, Finding, InstanceFact, Origin
from tests.logs.health.simulation import a_series

CATALOGUE = load()
RUNNING = [InstanceFact(role="worker", index=index, reason="Running") for index in range(2)]


def silent(rank: int, *, step: float, time: float) -> Finding:
    return Finding(
        kind="hang",
        message=f"rank {rank} has made no progress for 90 s",
        role="worker",
        index=rank,
        rank=rank,
        step=step,
        time=time,
        file=f"worker-{rank}",
        severity="error",
    )


def scan(index: int, *lines: str, ranks: tuple[int, ...] = ()) -> FileScan:
    series = tuple(
        dataclasses.replace(
            a_series("loss", [1.0, 0.5], rank=rank, role="worker", index=index),
            file=f"worker-{index}",
        )
        for rank in ranks
    )
    return FileScan(
        origin=Origin(file=f"worker-{index}", role="worker", index=index, rank=index),
        series=series,
        tail=lines,
        tail_line=11,
        tail_offsets=tuple(1000 + 100 * number for number in range(len(lines))),
    )


def test_the_rank_that_is_behind_the_others_is_the_root():
    """The other one waits for it, in the next step."""
    health = [silent(0, step=8, time=50.0), silent(1, step=7, time=51.0)]
    found = diagnose(
        [scan(0, "step 8"), scan(1, "step 7", "")], RUNNING, health, catalogue=CATALOGUE
    )
    (cause,) = found.causes
    assert (cause.id, cause.rank, cause.file) == ("hang", 1, "worker-1")
    assert (cause.line, cause.offset) == (11, 1000), "the last line that is not empty"
    assert cause.evidence.endswith("its process has not ended; its last line: step 7")
    assert "first of 2 ranks" in cause.evidence
    assert cause.confidence > 0.8
    assert cause.advice
    assert not found.healthy


def test_of_several_ranks_in_one_log_the_last_report_of_this_one_counts():
    both = scan(0, "of nobody", ranks=(0, 1))
    health = [dataclasses.replace(silent(1, step=1, time=2.0), file="worker-0")]
    (cause,) = diagnose([both], RUNNING, health, catalogue=CATALOGUE).causes
    assert (cause.rank, cause.line, cause.offset) == (1, 2, 100)


@pytest.mark.parametrize("facts", [RUNNING, []])
def test_what_makes_progress_is_healthy(facts):
    assert diagnose([scan(0, "step 8")], facts, catalogue=CATALOGUE).healthy


def test_what_ended_well_did_not_hang():
    ended = [InstanceFact(role="worker", index=0, exit_code=0, reason="Completed")]
    found = diagnose([scan(0, "x")], ended, [silent(0, step=1, time=1.0)], catalogue=CATALOGUE)
    assert found.healthy
