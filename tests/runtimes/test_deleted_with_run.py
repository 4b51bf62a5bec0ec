"""What ttlSecondsAfterFinished deletes with the folder of a run is told before it starts."""

from __future__ import annotations

import dataclasses

import pytest

from airflow_training.documents.resolved_blocks import ResolvedCheckpoint
from airflow_training.runtimes.registry import adapter_of
from tests.frameworks.samples import a_resolved_job


@pytest.mark.parametrize("runtime", ["local", "slurm"])
@pytest.mark.parametrize(
    ("output", "told"),
    [("", True), ("models/digits", False), ("s3://models", False), ("{{ params.models }}", False)],
)
def test_outputs_that_no_address_names_are_told(runtime: str, output: str, told: bool):
    """What an address names stays, in the folder of the run too; so do checkpoints."""
    job = dataclasses.replace(
        a_resolved_job("custom", {"a": 1}, runtime=runtime),
        output_uri=output,
        checkpoint=ResolvedCheckpoint(uri="checkpoints"),
    )
    kept = adapter_of(runtime).warnings(job)
    found = adapter_of(runtime).warnings(dataclasses.replace(job, ttl_seconds_after_finished=60.0))
    ours = [each for each in found if each not in kept]
    assert [(each.code, each.field) for each in ours] == [
        ("conflict", "spec.ttlSecondsAfterFinished")
    ] * told
    assert all("TRAINING_OUTPUT_DIR" in each.message for each in ours)
