"""What a path is to a training."""

from __future__ import annotations

import os

import pytest

from airflow_training.interception.classification import (
    Places,
    classify,
    is_secret_like,
    name_api,
    writes,
)

PLACES = Places(
    code_roots=["/home/user/project"],
    dependencies=["/opt/python/lib/python3.11", "/home/user/.venv/lib/python3.11/site-packages"],
)
READ = os.O_RDONLY | os.O_CLOEXEC
WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
UPDATE = os.O_RDWR


@pytest.mark.parametrize(
    ("path", "flags", "api", "expected"),
    [
        ("/home/user/project/train.py", READ, "open", "program"),
        ("/home/user/project/config/base.yaml", READ, "open", "program"),
        ("/home/user/project/net/_ops.so", READ, "open", "program"),
        ("/opt/python/lib/python3.11/json/decoder.py", READ, "open", "dependency"),
        ("/home/user/.venv/lib/python3.11/site-packages/torch/version.py", READ, "open", "dependency"),
        ("/srv/env/lib/python3.9/site-packages/sklearn/data/iris.csv", READ, "pandas.read_csv", "dependency"),
        ("/data/train.csv", READ, "pandas.io.parsers.readers.read_csv", "data"),
        ("/data/train.npy", READ, "numpy.load", "data"),
        ("/data/train.raw", UPDATE, "numpy.memmap.__new__", "data"),
        ("/home/user/project/data/0.jpg", READ, "PIL.Image.open", "data"),
        ("/data/shard-000.tar", READ, "webdataset.gopen", "data"),
        ("/data/table.parquet", READ, "pyarrow.parquet.core.read_table", "data"),
        ("/data/a.h5", READ, "h5py._hl.files.File", "data"),
        ("/models/base.safetensors", READ, "safetensors.safe_open", "model"),
        ("/models/base.pt", READ, "torch.serialization.load", "model"),
        ("/models/script.ts", READ, "torch.jit.load", "model"),
        ("/models/pytorch_model.bin", READ, "torch.serialization.load", "model"),
        ("/models/bert/config.json", READ, "transformers.configuration_utils.from_pretrained", "model"),
        ("/models/bert/tokenizer.json", READ, "tokenizers.from_file", "model"),
        ("/models/net.onnx", READ, "open", "model"),
        ("/models/forest.joblib", READ, "joblib.numpy_pickle.load", "model"),
        ("/home/user/project/out/model.pt", WRITE, "torch.serialization.save", "output"),
        ("/home/user/project/log.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT, "open", "output"),
        ("/home/user/.aws/credentials", READ, "open", "secret"),
        ("/home/user/project/.env", READ, "open", "secret"),
        ("/home/user/project/key.pem", WRITE, "open", "secret"),
    ],
)  # fmt: skip
def test_a_path_is_told_by_where_it_lies_and_who_opens_it(path, flags, api, expected):
    assert classify(path, places=PLACES, flags=flags, api=api) == expected


def test_tensors_that_a_data_set_reads_are_data():
    callers = ("data.__getitem__", "torch.utils.data._utils.fetch.fetch")
    api = "torch.serialization.load"
    assert classify("/data/0.pt", places=PLACES, api=api, callers=callers) == "data"
    assert classify("/data/0.safetensors", places=PLACES, api=api, callers=callers) == "data"


@pytest.mark.parametrize(
    "path",
    [
        ".env", "a/.env.production", "/home/user/.ssh/config", "id_rsa", "deploy/id_ed25519", "tls/server.key",
        "cert.pem", ".netrc", "/home/user/.kube/config", ".docker/config.json", ".git-credentials", "client_secret_1.json",
        "service-account.json", "secrets.yaml", "credentials.json", "/home/user/.cache/huggingface/token", "vault.kdbx",
    ],
)  # fmt: skip
def test_what_looks_like_a_secret(path):
    assert is_secret_like(path)


@pytest.mark.parametrize(
    "path",
    [
        "data/keys.csv", ".env.example", "tokenizer.json", "token_counts.npy", "monkey", "train/secret_garden.txt",
        "keyboard.png", "config.json", "docker/config.json", "idx_rsa.bin", "environment.yml", "a.pempek.jpg", "",
    ],
)  # fmt: skip
def test_what_only_sounds_like_a_secret(path):
    assert not is_secret_like(path)


def test_a_memory_map_that_could_write_does_not_count_as_writing():
    assert not writes(os.O_RDWR)
    assert writes(os.O_RDWR | os.O_CREAT)
    assert writes(os.O_WRONLY)
    assert not writes(READ)


@pytest.mark.parametrize(
    ("callers", "expected"),
    [
        ([], "open"),
        ([("gzip", "__init__"), ("gzip", "open")], "gzip.open"),
        ([("pathlib", "open"), ("PIL.Image", "open")], "PIL.Image.open"),
        ([("torch.serialization", "_open_file"), ("torch.serialization", "load"), ("transformers.modeling", "load")], "torch.serialization.load"),
        ([("gzip", "open"), ("pandas.io", "get"), ("pandas", "read_csv"), ("lightning", "fit")], "pandas.read_csv"),
    ],
)  # fmt: skip
def test_the_function_that_a_program_calls_has_opened_it(callers, expected):
    assert name_api(callers, standard=["gzip", "pathlib"]) == expected
