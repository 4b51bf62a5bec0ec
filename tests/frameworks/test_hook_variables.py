"""A job may set what the hook in a training is told by: who starts its fetcher writes it there."""

from __future__ import annotations

import pytest

from airflow_training.admission.check import check_text
from airflow_training.interception.protocol import hook_environment

JOB = """\
apiVersion: airflow-training/v1
kind: TrainingJob
metadata: {{name: digits}}
spec:
  framework: custom
  runtime: {{name: local}}
  command: [python, train.py]
  env: [{{name: {name}, value: x}}]
  roles: [{{name: worker}}]
"""
ALL = hook_environment(
    loads_file="/l",
    socket="/s",
    data_roots=["/d"],
    guard="leases",
    code_roots=["/c"],
    ranges_from=1,
    parameters=True,
)


@pytest.mark.parametrize("name", ALL)
def test_it_is_none_that_only_we_may_set(name):
    [checked] = check_text(JOB.format(name=name))
    assert checked.problems == []
