"""What can never stay for a look inside is told by whoever looks at a job, not only when it runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_training.admission.check import check_text

URL = "http://reports.example"
FIELD = "spec.restart.keepFailedSeconds"


def document(seconds: float = 600, **spec: Any) -> str:
    return json.dumps(
        {
            "apiVersion": "airflow-training/v1",
            "kind": "TrainingJob",
            "metadata": {"name": "digits"},
            "spec": {
                "framework": "custom",
                "image": "trainer:1",
                "command": ["python3", "train.py"],
                "restart": {"keepFailedSeconds": seconds},
                "roles": [{"name": "worker", "replicas": 2}],
                **spec,
            },
        }
    )


OWN_AGENT = {"metadata": {"annotations": {"airflow-training/agent": "false"}}}


@pytest.mark.parametrize(
    ("url", "spec", "runtime", "why"),
    [
        pytest.param("", {}, "kubernetes", "callback_url is not set", id="nobody-is-told"),
        pytest.param(URL, {}, "kubernetes", "", id="told"),
        pytest.param(URL, {"command": None}, "kubernetes", "not the parent", id="of-the-image"),
        pytest.param(
            URL,
            {"roles": [{"name": "worker", "template": OWN_AGENT}]},
            "kubernetes",
            "nothing of worker can stay",
            id="not-wanted",
        ),
        pytest.param(
            URL,
            {"command": None, "output": {"uri": "s3://models", "role": "worker"}},
            "kubernetes",
            "",
            id="for-its-output",
        ),
        pytest.param("", {}, "local", "", id="on-this-machine"),
    ],
)
def test_it_is_told_before_a_start(monkeypatch, url, spec, runtime, why):
    monkeypatch.setenv("AIRFLOW__TRAINING__CALLBACK_URL", url)
    (checked,) = check_text(document(**spec), runtime=runtime)
    assert not checked.problems
    found = [each for each in checked.warnings if each.field == FIELD]
    assert len(found) == bool(why)
    assert not found or why in found[0].message


def test_a_job_that_keeps_nothing_is_told_nothing(monkeypatch):
    monkeypatch.setenv("AIRFLOW__TRAINING__CALLBACK_URL", "")
    (checked,) = check_text(document(seconds=0), runtime="kubernetes")
    assert FIELD not in [each.field for each in checked.warnings]
