"""A path in a pod that nothing outlives is told before training is lost there."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_training.runtimes.registry import adapter_of
from tests.frameworks.samples import a_document, a_job, resolve_job

CLAIM = {"name": "kept", "persistentVolumeClaim": {"claimName": "kept"}}
FOLDER = {"name": "kept", "emptyDir": {}}


def warned(runtime: str = "kubernetes", **spec: Any) -> list[tuple[str, Any]]:
    document = a_document("custom", {"a": 1, "b": 1}, **spec)
    job = type(a_job("custom", {"a": 1})).model_validate(document, by_alias=True)
    made, _ = resolve_job(job, runtime=runtime, document=document)
    return [
        (each.field, each.value)
        for each in adapter_of(runtime).warnings(made)
        if "lost" in each.message
    ]


@pytest.mark.parametrize(
    ("uri", "volume", "told"),
    [
        pytest.param("ckpt", None, True, id="relative"),
        pytest.param("/data/ckpt", None, True, id="no-volume"),
        pytest.param("file:///data/ckpt", None, True, id="file"),
        pytest.param("/data/ckpt", FOLDER, True, id="emptyDir"),
        pytest.param("/database", CLAIM, True, id="beside-the-volume"),
        pytest.param("/data/ckpt", CLAIM, False, id="claim"),
        pytest.param("file:///data", CLAIM, False, id="the-volume-itself"),
        pytest.param("s3://models/ckpt", None, False, id="object-storage"),
        pytest.param("{{ params.where }}/ckpt", None, False, id="not-known-yet"),
    ],
)
def test_checkpoints_in_a_pod(uri, volume, told):
    spec: dict[str, Any] = {"checkpoint": {"uri": uri}}
    if volume is not None:
        spec |= {"volumes": [volume], "volumeMounts": [{"name": "kept", "mountPath": "/data"}]}
    assert warned(**spec) == ([("spec.checkpoint.uri", uri)] if told else [])


def test_the_output_is_told_too():
    output = {"uri": "/models", "role": "a"}
    assert warned(output=output) == [("spec.output.uri", "/models")]


def test_on_this_machine_paths_stay():
    assert warned("local", checkpoint={"uri": "ckpt"}, output={"uri": "/models"}) == []
