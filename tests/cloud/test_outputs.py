"""Which files of a run are its model."""

from __future__ import annotations

import pytest

from airflow_training.cloud.outputs import model_files


@pytest.mark.parametrize(
    ("written", "path", "expected"),
    [
        pytest.param(["out/model.pt", "out/log.txt"], "", ["out/model.pt"], id="torch-save"),
        pytest.param(["a.txt", "b.csv"], "", [], id="no-model"),
        pytest.param(
            ["m/config.json", "m/model.safetensors", "m/tokenizer.json", "m/notes.md", "x.json"],
            "",
            ["m/config.json", "m/model.safetensors", "m/tokenizer.json"],
            id="save-pretrained",
        ),
        pytest.param(
            ["m/model-00001-of-00002.safetensors", "m/model.safetensors.index.json", "m/config.json"],
            "",
            ["m/config.json", "m/model-00001-of-00002.safetensors", "m/model.safetensors.index.json"],
            id="shards",
        ),
        pytest.param(["config.json", "loss.json"], "", [], id="a-configuration-alone-is-none"),
        pytest.param(["model.json"], "", ["model.json"], id="xgboost"),
        pytest.param(["out/a.npy", "out/b.pt", "c.pt"], "out", ["out/a.npy", "out/b.pt"], id="folder"),
        pytest.param(["out/a.npy", "out/a.npy2"], "out/a.npy", ["out/a.npy"], id="file"),
        pytest.param(["out/a.npy"], "./out/", ["out/a.npy"], id="as-typed"),
    ],
)  # fmt: skip
def test_what_comes_back(written, path, expected):
    assert model_files(written, path=path) == expected
