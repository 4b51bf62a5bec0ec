"""What `run` prints where nobody looks at a terminal: a line now and then that says where the roles are."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from airflow_training.cli import live
from airflow_training.control.model import Ledger, RoleEntry
from airflow_training.control.reports import ProgressReport
from airflow_training.documents.instances import InstanceKey
from airflow_training.runtimes.clock import VirtualClock
from tests.builders import entry

LINE = "worker: 1/2 running, step 30/900, loss 0.31; ps: 0/1 running"


@dataclass(frozen=True)
class Watched:
    ledger: Ledger | None
    progress: Mapping[InstanceKey, ProgressReport]


def driven(ledger: Ledger | None) -> Watched:
    far = ProgressReport(step=40, total_steps=900, metrics={"loss": 0.29})
    near = ProgressReport(step=30, total_steps=900, metrics={"loss": 0.31})
    return Watched(
        ledger=ledger, progress={InstanceKey("worker", 0): far, InstanceKey("worker", 1): near}
    )


LEDGER = Ledger(
    roles={"worker": RoleEntry(role="worker", replicas=2), "ps": RoleEntry(role="ps", replicas=1)},
    instances={
        InstanceKey("worker", 0): entry("worker", 0, state="running"),
        InstanceKey("worker", 1): entry("worker", 1, state="pending"),
    },
)


def shown(
    ledger: Ledger | None, *, seconds: float, as_json: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Show a run for so long, by a clock that jumps."""
    clock = VirtualClock()
    monkeypatch.setattr(asyncio, "sleep", clock.sleep)

    async def run() -> None:
        async with live.make_event_printer(as_json=as_json).following(driven(ledger)):
            await clock.sleep(seconds)

    clock.run(run())


def test_a_line_every_thirty_seconds_says_where_the_slowest_is(capfd, monkeypatch):
    shown(LEDGER, seconds=90.5, as_json=False, monkeypatch=monkeypatch)
    out, err = capfd.readouterr()
    assert out == ""
    assert err.splitlines() == [LINE] * 3


def test_in_json_it_is_a_note_among_the_events(capfd, monkeypatch):
    shown(LEDGER, seconds=35.0, as_json=True, monkeypatch=monkeypatch)
    (line,) = capfd.readouterr().err.splitlines()
    told = json.loads(line)
    assert (told["reason"], told["level"], told["message"]) == ("Note", "info", LINE)


@pytest.mark.parametrize(("ledger", "seconds"), [(LEDGER, 29.0), (None, 300.0)])
def test_nothing_is_said_before_or_of_what_this_process_does_not_drive(
    ledger, seconds, capfd, monkeypatch
):
    shown(ledger, seconds=seconds, as_json=False, monkeypatch=monkeypatch)
    assert capfd.readouterr().err == ""
