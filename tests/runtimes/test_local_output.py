"""What becomes of an instance's output and predictions."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from airflow_training.control.run_output import RunOutput
from airflow_training.runtimes.port import Cursor
from tests.contracts.runtime import Harness, watching

pytestmark = pytest.mark.e2e

WRITE_OUTPUT = ("sh", "-c", "cd $TRAINING_OUTPUT_DIR; mkdir a; printf 12 > a/b; printf 345 > c")


@pytest.mark.parametrize("scheme", ["", "file://"])
async def test_output_is_uploaded_and_described(
    harness: Harness, tmp_path: Path, scheme: str
) -> None:
    target = tmp_path / "models" / "final"
    uri = f"{scheme}{target}"
    async with watching(harness.runtime, harness.run) as seen:
        await harness.runtime.create([harness.spec("quick", command=WRITE_OUTPUT, output_uri=uri)])
        found = await seen.state("quick", 0, "succeeded")
    assert (target / "a" / "b").read_text() == "12"
    lines = [("12", "a/b"), ("345", "c")]
    listing = "".join(f"{hashlib.sha256(t.encode()).hexdigest()}  {n}\n" for t, n in lines)
    digest = f"sha256:{hashlib.sha256(listing.encode()).hexdigest()}"
    assert found.output == RunOutput(uri=uri, bytes=5, digest=digest)


async def test_output_goes_through_fsspec_elsewhere(harness: Harness, tmp_path: Path) -> None:
    """`local://` is an address that only fsspec knows."""
    target = tmp_path / "far"
    async with watching(harness.runtime, harness.run) as seen:
        spec = harness.spec("quick", command=WRITE_OUTPUT, output_uri=f"local://{target}")
        await harness.runtime.create([spec])
        await seen.state("quick", 0, "succeeded")
    assert (target / "a" / "b").read_text() == "12"


@pytest.mark.parametrize(
    "uri", [pytest.param("/proc/nowhere", id="refused"), pytest.param("nope://x", id="unknown")]
)
async def test_a_failed_upload_fails_the_instance(
    harness: Harness, tmp_path: Path, uri: str
) -> None:
    async with watching(harness.runtime, harness.run) as seen:
        await harness.runtime.create([harness.spec("quick", command=WRITE_OUTPUT, output_uri=uri)])
        found = await seen.state("quick", 0, "failed")
        assert (found.reason, found.exit_code, found.output) == ("OutputFailed", 0, None)
        assert uri in found.message


@pytest.mark.parametrize(("code", "state"), [(0, "succeeded"), (4, "failed")])
async def test_a_framework_may_fetch_what_rank_0_has_written_elsewhere(
    harness: Harness, tmp_path: Path, code: int, state: str
) -> None:
    script = tmp_path / "fetch.sh"
    script.write_text(f"#!/bin/sh\necho model > $TRAINING_OUTPUT_DIR/model; exit {code}\n")
    script.chmod(0o755)
    target = tmp_path / "models"
    env = {"TRAINING_OUTPUT_COMMAND": str(script)}
    async with watching(harness.runtime, harness.run) as seen:
        await harness.runtime.create([harness.spec("quick", env=env, output_uri=str(target))])
        found = await seen.state("quick", 0, state)
    if code:
        assert found.reason == "OutputFailed"
        assert "exit code 4" in found.message
    else:
        assert (target / "model").read_text() == "model\n"


async def test_an_output_folder_that_stays_empty_is_told(harness: Harness, tmp_path: Path) -> None:
    async with watching(harness.runtime, harness.run) as seen:
        await harness.runtime.create([harness.spec("quick", output_uri=str(tmp_path / "models"))])
        found = await seen.state("quick", 0, "succeeded")
    assert found.message == "the output folder is empty"
    assert found.output is not None
    assert found.output.bytes == 0


async def test_nothing_is_uploaded_of_a_failure(harness: Harness, tmp_path: Path) -> None:
    target = tmp_path / "models"
    async with watching(harness.runtime, harness.run) as seen:
        await harness.runtime.create([harness.spec("broken", output_uri=str(target))])
        await seen.state("broken", 0, "failed")
    assert not target.exists()


async def test_predictions_are_published_while_it_runs_and_at_the_end(
    harness: Harness, tmp_path: Path
) -> None:
    there = tmp_path / "there" / "sleeper-0"
    script = f"""
cd $TRAINING_PREDICTIONS_DIR
echo 1 > .step-1.tmp; mv .step-1.tmp step-1.csv
ln -s /etc/passwd link.csv
until [ -e {there}/step-1.csv ]; do sleep 0.05; done
echo 2 > step-2.csv
exit 3
"""
    async with watching(harness.runtime, harness.run) as seen:
        command = ("sh", "-c", script)
        spec = harness.spec("sleeper", command=command, predictions_uri=str(there))
        await harness.runtime.create([spec])
        found = await seen.state("sleeper", 0, "failed")
        assert found.exit_code == 3
    assert sorted(each.name for each in there.iterdir()) == ["step-1.csv", "step-2.csv"]
    chunk = await harness.runtime.read_log(spec.ref, Cursor(), limit=1 << 16)
    assert chunk.data.count(b"'link.csv' is not published: it is no plain file") == 1


async def test_an_instance_ends_though_its_predictions_reach_nobody(
    harness: Harness, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    command = ("sh", "-c", "echo 1 > $TRAINING_PREDICTIONS_DIR/step-1.csv")
    spec = harness.spec("quick", command=command, predictions_uri=f"{tmp_path}/file/no")
    async with watching(harness.runtime, harness.run) as seen:
        await harness.runtime.create([spec])
        await seen.state("quick", 0, "succeeded")
    chunk = await harness.runtime.read_log(spec.ref, Cursor(), limit=1 << 16)
    assert b"cannot publish predictions" in chunk.data
