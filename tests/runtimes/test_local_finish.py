"""What becomes of a command that is told to finish: it is ended well, and its output is brought away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_training.control.observations import Observation
from airflow_training.runtimes.port import SupportsFinish
from tests.contracts.runtime import Harness, watching
from tests.runtimes.local_runs import python_script
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

HEAD = """
import os, pathlib, signal, sys, time
out = pathlib.Path(os.environ["TRAINING_OUTPUT_DIR"])
(out / "model.pt").write_text("early")
def begun():
    pathlib.Path(sys.argv[1]).touch()
"""
PLAIN = "begun(); time.sleep(600)"
EXITS = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); begun(); time.sleep(600)"
SAVES = """
def save(*_):
    (out / "model.pt").write_text("late")
    sys.exit(143)
signal.signal(signal.SIGTERM, save)
begun()
time.sleep(600)
"""
DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN); begun(); time.sleep(600)"
CHILDREN = """
if os.fork() == 0:
    def save(*_):
        time.sleep(1)
        (out / "model.pt").write_text("of the child")
        os._exit(0)
    signal.signal(signal.SIGTERM, save)
    begun()
    time.sleep(600)
time.sleep(600)
"""
WRITES = """
with (out / "big.pt").open("wb") as file:
    for number in range(20):
        file.write(b"x" * 1000)
        file.flush()
        if not number:
            begun()
        time.sleep(0.1)
time.sleep(600)
"""
KEEPS_OPEN = """
log = (out / "train.log").open("w")
still = (out / "weights.bin").open("w")
begun()
while True:
    print("step", file=log, flush=True)
    time.sleep(0.05)
"""


async def finished(
    harness: Harness, tmp_path: Path, script: str, *, state: str = "succeeded", **changes: Any
) -> Observation:
    begun, target = tmp_path / "begun", tmp_path / "there"
    command = (*python_script(HEAD + script), str(begun))
    changes = {"output_uri": str(target), "finishes": True, **changes}
    assert isinstance(harness.runtime, SupportsFinish)
    async with watching(harness.runtime, harness.run) as seen:
        await harness.runtime.create([harness.spec("sleeper", command=command, **changes)])
        await seen.state("sleeper", 0, "running")
        wait_until(begun.exists)
        refs = [harness.ref("sleeper", uid=seen.now["sleeper", 0].uid)]
        for _ in range(3):
            await harness.runtime.finish_early(refs, grace_seconds=changes.get("grace_seconds", 20))
        return await seen.state("sleeper", 0, state)


@pytest.mark.parametrize(
    ("script", "code", "model"),
    [
        pytest.param(PLAIN, 143, "early", id="dies"),
        pytest.param(EXITS, 7, "early", id="exits-as-it-likes"),
        pytest.param(SAVES, 143, "late", id="saves"),
        pytest.param(CHILDREN, 143, "of the child", id="children-save"),
    ],
)
async def test_however_it_ends_it_has_succeeded_and_its_output_is_away(
    harness, tmp_path, script, code, model
):
    found = await finished(harness, tmp_path, script)
    assert (found.exit_code, found.reason) == (0, "Completed")
    assert found.message == f"told to finish, and ended with exit code {code}"
    assert (tmp_path / "there" / "model.pt").read_text() == model
    assert found.output is not None
    assert found.output.bytes == len(model)


async def test_a_file_that_is_being_written_is_written_to_its_end(harness, tmp_path):
    await finished(harness, tmp_path, WRITES)
    assert (tmp_path / "there" / "big.pt").stat().st_size == 20_000


async def test_logs_and_what_only_stays_open_hold_nothing_up(harness, tmp_path):
    await finished(harness, tmp_path, KEEPS_OPEN)
    assert (tmp_path / "there" / "train.log").read_text().startswith("step")


async def test_what_does_not_end_is_killed_after_its_grace_and_that_is_told(harness, tmp_path):
    found = await finished(harness, tmp_path, DEAF, grace_seconds=1)
    assert "killed as it did not end within 1 s" in found.message
    assert (tmp_path / "there" / "model.pt").read_text() == "early"


async def test_an_output_that_cannot_be_uploaded_fails_it(harness, tmp_path):
    found = await finished(harness, tmp_path, PLAIN, state="failed", output_uri="/proc/nowhere")
    assert found.reason == "OutputFailed"


async def test_without_an_output_it_only_ends(harness, tmp_path):
    found = await finished(harness, tmp_path, PLAIN, output_uri="")
    assert (found.exit_code, found.output) == (0, None)
