"""Who waits for data is not taken for one that hangs, by the same watch that ends those that do."""

from __future__ import annotations

import json

import pytest

from airflow_training.agent.progress_tail import NewestProgress
from airflow_training.agent.stalls import StallWatch
from airflow_training.interception.asking import HEARTBEAT_SECONDS, tell_wait


@pytest.mark.parametrize("waits", [True, False])
def test_a_wait_of_ten_minutes_after_many_steps(tmp_path, waits):
    path = tmp_path / "progress.jsonl"
    path.write_text("".join(json.dumps({"time": step, "step": step}) + "\n" for step in range(50)))
    watch = StallWatch(NewestProgress(path), {"stallSeconds": 30})
    found = []
    for beat in range(int(600 / HEARTBEAT_SECONDS)):
        if waits:
            tell_wait(str(path), "/data/a", "the data's machine does not answer")
        found.append(watch.poll(now=beat * HEARTBEAT_SECONDS))
    assert any(found) is not waits
    assert NewestProgress(path).poll()["step"] == 49
