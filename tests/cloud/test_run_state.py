"""What the service says of a run is of one moment."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from airflow_training.cloud.service.launching import RunLauncher
from airflow_training.cloud.service.runs import run_state
from airflow_training.documents.resolved import RunKey
from airflow_training.state.store import open_store
from airflow_training.supervise.status import run_status
from tests.state.samples import a_job, a_ledger, worker


class Launcher:
    def key(self, run_id: str) -> RunKey:
        return RunKey(source="here", dag_id="", run_id=run_id)


def test_a_run_that_ends_while_it_is_asked_about_never_ended_as_running(
    airflow_home: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, launcher = open_store(), cast("RunLauncher", Launcher())
    stopping = a_ledger(worker(0), state="Stopped", reason="Stopped", running_at=1.0)
    uid = store.create_run(
        launcher.key("r"), a_job(replicas=1), stopping, controller="here", queue=False
    ).uid
    lease = store.acquire(uid, owner="driver")
    assert lease is not None

    def read_before_the_last_process_is_gone(*args: Any) -> dict[str, Any]:
        status = run_status(*args)
        old = store.ledger(uid)
        ended = replace(old, job=replace(old.job, drained=True))
        store.commit(uid, lease=lease, old=old, new=ended, events=[])
        return status

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(
            "airflow_training.cloud.service.runs.run_status", read_before_the_last_process_is_gone
        )
        state = run_state(launcher, "r")
    assert (state.state, state.over, state.exit_code) == ("Running", False, None)
    state = run_state(launcher, "r")
    assert (state.state, state.over, state.exit_code) == ("Stopped", True, 1)
