"""A run that was refused after its data was shared leaves no process, and may be started again."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_training.cloud.protocol import CloudRunState
from airflow_training.cloud.service.run_data import DataPlace, RunData
from airflow_training.remote_data.manifest import DataFile, DataManifest, DataRoot
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

FILE = DataFile(path="data/a.csv", size=3, mtime_ns=5)
SHARED = DataManifest(
    source="", roots=[DataRoot(name="project", path="/home/user/project", files=[FILE])]
)


@pytest.fixture
def data(tmp_path: Path, airflow_home: Path) -> RunData:
    """Of a run that its instances fetch for."""
    storage = (tmp_path / "storage").as_uri()
    return RunData(
        run_id="train-0",
        uid="u",
        folder=tmp_path / "run",
        state=tmp_path / "state",
        place=DataPlace(storage=storage, is_here=False),
    )


def test_it_leaves_no_process_and_may_be_started_again(data):
    refused = CloudRunState(
        run_id="train-0", uid="u", state="Failed", over=True, exit_code=2, message="refused"
    )
    for _ in range(2):
        data.start(SHARED, wait_hours=1.0)
        assert data.is_hosted()
        data.abandon()
        wait_until(lambda: not data.is_hosted(), "nothing fetches for a run that there is not")
        data.revive()
        assert not data.is_hosted()
        assert data.described(refused) == refused, "nobody waits for its data"
