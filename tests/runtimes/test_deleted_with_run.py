"""What ttlSecondsAfterFinished deletes with the folder of a run is told before it starts."""

from __future__ import annotations

import dataclasses

import pytest

from airflow_training.documents.resolved_blocks import ResolvedCheckpoint
from airflow_training.runtimes.registry import adapter_of
from tests.frameworks.samples import a_resolved_job


@pytest.mark.parametrize("runtime", ["local", "slurm"])
@pytest.mark.parametrize(
    ("output", "checkpoints", "base_dir", "told"),
    [
        ("", "", "", ["TRAINING_OUTPUT_DIR"]),
        ("models/digits", "", "", ["TRAINING_OUTPUT_DIR"]),
        ("models/digits", "checkpoints", "", ["TRAINING_OUTPUT_DIR", "the checkpoints"]),
        ("s3://models", "checkpoints", "", ["the checkpoints"]),
        ("models/digits", "checkpoints", "/home/user", []),
        ("/srv/models", "s3://checkpoints", "", []),
        ("{{ params.models }}", "", "", []),
    ],
)
def test_outputs_and_checkpoints_in_the_folder_of_the_run_are_told(
    runtime: str, output: str, checkpoints: str, base_dir: str, told: list[str]
):
    job = dataclasses.replace(
        a_resolved_job("custom", {"a": 1}, runtime=runtime),
        output_uri=output,
        base_dir=base_dir,
        checkpoint=ResolvedCheckpoint(uri=checkpoints) if checkpoints else None,
    )
    kept = adapter_of(runtime).warnings(job)
    found = adapter_of(runtime).warnings(dataclasses.replace(job, ttl_seconds_after_finished=60.0))
    ours = [each for each in found if each not in kept]
    assert {(each.code, each.field) for each in ours} <= {
        ("conflict", "spec.ttlSecondsAfterFinished")
    }
    assert [each.message.partition(" with ")[2] for each in ours] == [
        {"TRAINING_OUTPUT_DIR": "everything that was written to TRAINING_OUTPUT_DIR"}.get(one, one)
        for one in told
    ]
