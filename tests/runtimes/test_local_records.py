"""What an agent left on record, where it is not true: forged, of another machine, of a number given away again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from airflow_training.agent.files import read_json, write_json
from airflow_training.agent.proc import boot_id, start_time
from airflow_training.errors import StillAlive
from airflow_training.runtimes.folders.paths import is_locked
from tests.contracts.runtime import Harness
from tests.runtimes.local_runs import agent_pid, attempt_folder, stopped
from tests.runtimes.local_trees import kill_and_wait, observe, start_sleeper
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e


async def test_a_reused_pid_is_never_mistaken(harness: Harness, tmp_path: Path) -> None:
    """After the agent is gone its number belongs to an innocent process."""
    await harness.runtime.create([harness.spec("sleeper")])
    folder = attempt_folder(tmp_path, harness, "sleeper")
    kill_and_wait(agent_pid(folder))
    innocent = start_sleeper()
    try:
        state = read_json(folder.state)
        assert state is not None
        for who in ("agent", "child"):  # the number of the innocent, the start time of the dead
            state[who]["pid"] = innocent.pid
        write_json(folder.state, state)
        await harness.runtime.delete([harness.ref("sleeper")], grace_seconds=0)
        await harness.runtime.remove(harness.run)
        assert innocent.poll() is None
    finally:
        innocent.kill()
        innocent.wait()


async def test_a_number_that_was_given_away_again_is_no_agent(
    harness: Harness, tmp_path: Path
) -> None:
    await harness.runtime.create([harness.spec("sleeper")])
    folder = attempt_folder(tmp_path, harness, "sleeper")
    record = read_json(folder.state)
    assert record is not None
    kill_and_wait(record["agent"]["pid"])
    write_json(folder.state, {**record, "agent": {**record["agent"], "pid": os.getpid()}})
    found = await observe(harness)
    write_json(folder.state, record)
    assert (found.state, found.reason) == ("failed", "AgentLost")


@pytest.mark.parametrize(
    ("forged", "state", "reason"),
    [
        pytest.param({"boot_id": "another"}, "failed", "NodeLost", id="rebooted"),
        pytest.param({"boot_id": "x", "host": "far"}, "unknown", "OtherHost", id="other-machine"),
        pytest.param({"pid_ns": 1, "host": "far"}, "unknown", "OtherHost", id="other-container"),
        pytest.param({"pid_ns": 1}, "failed", "AgentLost", id="same-container-restarted"),
    ],
)
async def test_what_a_record_from_elsewhere_means(
    harness: Harness, tmp_path: Path, forged: dict[str, object], state: str, reason: str
) -> None:
    await harness.runtime.create([harness.spec("sleeper")])
    folder = attempt_folder(tmp_path, harness, "sleeper")
    kill_and_wait(agent_pid(folder))
    wait_until(lambda: not is_locked(folder.lock))  # a child that it had just forked holds it too
    record = read_json(folder.state)
    assert record is not None
    write_json(folder.state, {**record, "agent": {**record["agent"], **forged}})
    found = await observe(harness)
    assert (found.state, found.reason) == (state, reason)
    if state == "unknown":
        assert "far" in found.message
        refused = (await harness.runtime.create([harness.spec("sleeper", attempt=1)]))[0]
        assert refused.result == "refused"
        assert "far" in refused.message
        with pytest.raises(StillAlive, match="far"):
            await harness.runtime.remove(harness.run)
        write_json(folder.state, record)


async def test_the_lock_of_a_living_agent_in_another_container_counts(
    harness: Harness, tmp_path: Path
) -> None:
    await harness.runtime.create([harness.spec("sleeper")])
    folder = attempt_folder(tmp_path, harness, "sleeper")
    with stopped(agent_pid(folder)):  # or it may write its own record over this one
        record = read_json(folder.state)
        assert record is not None
        write_json(folder.state, {**record, "agent": {**record["agent"], "pid_ns": 1}})
        found = await observe(harness)
        write_json(folder.state, record)
    assert found.state == "unknown"
    assert record["agent"]["host"] in found.message


def test_a_process_is_known_by_more_than_its_number() -> None:
    assert start_time(os.getpid()) == start_time(os.getpid()) is not None
    assert start_time(2**22 + 1) is None
    assert len(boot_id()) == 36
