"""A file of an instance that runs is another one from one look to the next, and never half of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_training.runtimes.port import ReplacesFiles
from tests.contracts.runtime import watching
from tests.runtimes.local_runs import local_harness

pytestmark = pytest.mark.e2e

LOOKS = """
import json, os, time
path = os.path.join(os.environ["TRAINING_INSTANCE_DIR"], "plan", "plan.json")
while json.load(open(path))["number"] < 50:
    time.sleep(0.001)
"""


async def test_a_command_finds_what_was_given_to_it_while_it_runs(tmp_path: Path) -> None:
    async with local_harness(tmp_path) as harness, watching(harness.runtime, harness.run) as seen:
        path = "plan/plan.json"
        command = ("python3", "-c", LOOKS)
        await harness.runtime.create(
            [harness.spec("sleeper", command=command, files={path: '{"number": 0}'})]
        )
        old = await seen.state("sleeper", 0, "running")
        ref = harness.ref("sleeper", uid=old.uid)
        assert isinstance(harness.runtime, ReplacesFiles)
        for number in range(1, 51):
            text = f'{{"number": {number}, "filler": "{"x" * 100_000}"}}'
            await harness.runtime.replace_files([(ref, {path: text})])
        done = await seen.state("sleeper", 0, "succeeded", uid=old.uid)
        assert done.exit_code == 0
