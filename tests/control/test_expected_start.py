"""An expected start: what earlier runs took, told as such."""

from __future__ import annotations

import pytest

from airflow_training.control.expected_start import expected_start, is_waiting, waited_seconds
from airflow_training.control.model import JobEntry


@pytest.mark.parametrize(
    ("waits", "told"),
    [
        pytest.param([90.0], "earlier runs waited 1.5 min (one run; no promise)", id="one"),
        pytest.param(
            [30.0, 7200.0, 60.0],
            "earlier runs waited 1 min (median of 3 runs, 30 s to 2 h; no promise)",
            id="median-and-range",
        ),
    ],
)
def test_earlier_waits_are_told_with_their_range(waits, told):
    assert str(expected_start(waits)) == told


def test_without_earlier_runs_nothing_is_expected():
    assert expected_start([]) is None


@pytest.mark.parametrize(
    ("entry", "seconds"),
    [
        pytest.param(JobEntry(submitted_at=10, running_at=70), 60.0, id="ran"),
        pytest.param(JobEntry(submitted_at=10), None, id="never-ran"),
        pytest.param(JobEntry(submitted_at=10, running_at=70, epoch=1), None, id="opened-anew"),
        pytest.param(JobEntry(submitted_at=1, running_at=7, paused_seconds=3), None, id="paused"),
    ],
)
def test_only_an_undisturbed_start_counts(entry, seconds):
    assert waited_seconds(entry) == seconds


def test_only_who_has_not_run_yet_expects_a_start():
    assert is_waiting(JobEntry(state="Queued"))
    assert not is_waiting(JobEntry(state="Running", running_at=1.0))
    assert not is_waiting(JobEntry(state="Failed"))
