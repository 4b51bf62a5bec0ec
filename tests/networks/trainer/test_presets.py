"""The presets that train a network are good jobs, and say what they are."""

from __future__ import annotations

from pathlib import Path

import pytest

import airflow_training
from airflow_training.admission.check import check_file

FOLDER = Path(airflow_training.__file__).parent / "presets"


@pytest.mark.parametrize(
    "name", ["image-classification", "language-model", "ranking", "tabular-classification"]
)
def test_a_preset_is_valid_everywhere(name):
    path = FOLDER / f"{name}.yaml"
    for runtime in ("local", "kubernetes"):
        (found,) = check_file(path, runtime=runtime)
        assert found.problems == []
    title, description, *_ = path.read_text().splitlines()
    assert title.startswith("# ")
    assert len(description) > 20
