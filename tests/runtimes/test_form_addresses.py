"""Relative addresses of a document that lies in no folder, as one typed into a form."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_training.admission.check import check_text
from airflow_training.documents.resolved import ResolvedJob, RunRef
from airflow_training.runtimes.rendering import (
    checkpoint_address,
    expected_addresses,
    predictions_address,
    render_instance,
)

RUN = RunRef(uid="run-uid", job="digits", namespace="default", controller="")
JOB = """\
apiVersion: airflow-training/v1
kind: TrainingJob
metadata: {name: digits}
spec:
  framework: custom
  image: digits:1
  command: [python, train.py]
  runtime: {name: RUNTIME}
  checkpoint: {uri: checkpoints}
  output: {uri: OUTPUT}
  roles: [{name: worker}]
"""


@pytest.fixture(autouse=True)
def local_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AIRFLOW__TRAINING__LOCAL_DIR", str(tmp_path / "training"))
    return tmp_path / "training"


def resolved(runtime: str, *, output: str = "models/digits", base_dir: str = "") -> ResolvedJob:
    text = JOB.replace("RUNTIME", runtime).replace("OUTPUT", output)
    [checked] = check_text(text, base_dir=base_dir)
    assert checked.resolved is not None, checked.problems
    return checked.resolved


@pytest.mark.parametrize(("runtime", "folder"), [("local", "."), ("slurm", "slurm")])
def test_all_attempts_and_readers_find_them_in_one_folder_of_the_run(
    local_dir: Path, runtime: str, folder: str
):
    files = local_dir / folder / "run-uid" / "files"
    job = resolved(runtime)
    assert predictions_address(job, RUN) == f"{files}/models/digits.predictions/run-uid"
    assert checkpoint_address(job, RUN).startswith(f"{files}/checkpoints/")
    spec = render_instance(job, RUN, expected_addresses(job, RUN.prefix), role="worker", index=0)
    assert spec.predictions_uri == f"{predictions_address(job, RUN)}/worker-0"


def test_other_addresses_stay_as_they_are(tmp_path: Path):
    beside = resolved("local", base_dir=str(tmp_path))
    assert predictions_address(beside, RUN) == f"{tmp_path}/models/digits.predictions/run-uid"
    whole = resolved("local", output="/srv/models")
    assert predictions_address(whole, RUN) == "/srv/models.predictions/run-uid"
    stored = resolved("local", output="s3://models/digits")
    assert predictions_address(stored, RUN) == "s3://models/digits.predictions/run-uid"
    elsewhere = resolved("kubernetes")
    assert predictions_address(elsewhere, RUN) == "models/digits.predictions/run-uid"
