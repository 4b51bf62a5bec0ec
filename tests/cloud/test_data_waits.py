"""What becomes of a run whose data does not come, moment by moment."""

from __future__ import annotations

import pytest

from airflow_training.cloud.service.data_waits import DataFacts, DataWait, judge_data_wait

CHANGED = ("DataSourceChanged", "/data/7.csv: it has changed")


def at(
    now: float,
    *,
    seen: float,
    wanted: bool = True,
    state: str = "Running",
    failure: tuple[str, str] | None = None,
) -> DataFacts:
    return DataFacts(now=now, seen_at=seen, is_wanted=wanted, run_state=state, failure=failure)


@pytest.mark.parametrize(
    ("moments", "story"),
    [
        pytest.param([at(100, seen=99), at(101, seen=100)], [], id="it comes"),
        pytest.param([at(100, seen=10, wanted=False)], [], id="nobody wants anything"),
        pytest.param([at(104, seen=100)], [], id="a few seconds are no absence"),
        pytest.param(
            [at(100, seen=10), at(160, seen=10)], ["WaitingForData"], id="away: told once"
        ),
        pytest.param(
            [at(100, seen=10), at(160, seen=159), at(161, seen=160)],
            ["WaitingForData", "DataAvailable"],
            id="back",
        ),
        pytest.param(
            [at(100, seen=10), at(160, seen=159), at(300, seen=160)],
            ["WaitingForData", "DataAvailable", "WaitingForData"],
            id="away again",
        ),
        pytest.param(
            [
                at(100, seen=10),
                at(3611, seen=10),
                at(3612, seen=10),
                at(3613, seen=10, state="Paused"),
            ],
            ["WaitingForData", "pause"],
            id="gone for an hour: one pause",
        ),
        pytest.param(
            [
                at(100, seen=10),
                at(3611, seen=10),
                at(3613, seen=10, state="Paused"),
                at(9000, seen=10, state="Paused"),
                at(9006, seen=10),
                at(9007, seen=10),
                at(12_000, seen=10),
                at(12_700, seen=10),
            ],
            ["WaitingForData", "pause", "pause"],
            id="resumed without its data: an hour more",
        ),
        pytest.param(
            [at(100, seen=10), at(3611, seen=10), at(5000, seen=4999, state="Paused")],
            ["WaitingForData", "pause", "DataAvailable"],
            id="back while it is paused",
        ),
        pytest.param(
            [
                at(100, seen=99, failure=CHANGED),
                at(110, seen=109, failure=CHANGED),
                at(120, seen=119, failure=CHANGED),
                at(130, seen=129, failure=CHANGED),
            ],
            ["DataSourceChanged", "stop"],
            id="what will not come: a script that goes on all the same is stopped",
        ),
        pytest.param(
            [at(100, seen=99, failure=CHANGED), at(120, seen=119, state="Failed", failure=CHANGED)],
            ["DataSourceChanged"],
            id="the script has ended by itself",
        ),
        pytest.param([at(9000, seen=10, state="Succeeded")], [], id="over"),
    ],
)
def test_the_story_of_a_wait(moments, story):
    known, told = DataWait(), []
    for facts in moments:
        known, events, asked = judge_data_wait(facts, known, patience_seconds=3600)
        told += [each.reason for each in events]
        told += [asked.kind] if asked is not None else []
    assert told == story


def test_what_is_told_says_since_when_and_what_to_do():
    known, [event], _ = judge_data_wait(at(100, seen=10), DataWait(), patience_seconds=60)
    assert event.message == (
        "nobody shares the run's data since 1970-01-01 00:00:10Z;"
        " where it was sent from: airflow-training cloud share RUN"
    )
    assert event.data == {"since": 10}
    _, _, asked = judge_data_wait(at(100, seen=10), known, patience_seconds=60)
    assert asked is not None
    assert (asked.kind, asked.reason) == (
        "pause",
        "DataSourceGone: nobody has shared the run's data since 1970-01-01 00:00:10Z; where it was sent from:"
        " airflow-training cloud share RUN, and then airflow-training resume RUN; or airflow-training stop RUN",
    )
