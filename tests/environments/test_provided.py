"""The environments that jobs may name: which there are, and what is said of those that there are not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_training.checkpoints.store import LocalStore, open_store
from airflow_training.environments.addresses import storage_address
from airflow_training.environments.builtin import script_for
from airflow_training.environments.model import InstalledDistribution, PythonEnvironment
from airflow_training.environments.named import NamedEnvironment, PackageFile
from airflow_training.environments.orders import BuiltinSource, EnvironmentOrder
from airflow_training.environments.provided import EnvironmentDescription, find_environment
from airflow_training.errors import InputError

WHEEL = PackageFile(name="tinyone-1.0-py3-none-any.whl", sha256="a" * 64, size=3)


def add(folder: Path, version: str, image: str = "") -> NamedEnvironment:
    record = PythonEnvironment(
        python="3.11.7", distributions=[InstalledDistribution(name="tinyone", version="1.0")]
    )
    named = NamedEnvironment(
        name="tiny", version=version, record=record, files=[WHEEL], image=image
    )
    LocalStore(folder).create(named.key, json.dumps(named.to_json()).encode())
    return named


def find(folder: Path, name: str, version: str) -> EnvironmentDescription:
    return find_environment(name, version, storage=str(folder), open_storage=open_store)


def test_a_named_one_is_described(tmp_path: Path):
    named = add(tmp_path, "1", image="tiny:1")
    found = find(tmp_path, "tiny", "1")
    assert (found.title, found.digest, found.python) == ("tiny@1", named.digest, "3.11.7")
    assert (found.packages, found.image, found.bytes) == (["tinyone==1.0"], "tiny:1", 3)


def test_its_image_is_part_of_what_it_is(tmp_path: Path):
    assert add(tmp_path, "1").digest == add(tmp_path, "2").digest
    assert add(tmp_path, "3", image="tiny:1").digest != add(tmp_path, "4", image="tiny:2").digest


@pytest.mark.parametrize(
    ("name", "version", "field", "allowed"),
    [
        ("tiny", "7", "NAME@VERSION", ["tiny@1", "tiny@2"]),
        ("tiny", "", "version", ["1", "2"]),
        ("other", "1", "NAME@VERSION", ["tiny@1", "tiny@2"]),
    ],
)
def test_what_is_not_there_is_told_with_what_is(
    tmp_path: Path, name: str, version: str, field: str, allowed: list[str]
):
    add(tmp_path, "1")
    add(tmp_path, "2")
    with pytest.raises(InputError) as refused:
        find(tmp_path, name, version)
    (problem,) = refused.value.problems
    assert (problem.field, list(problem.allowed)) == (field, allowed)


def test_without_a_storage_only_the_built_in_one_may_be_named():
    with pytest.raises(InputError, match="no storage of named ones is set") as refused:
        find_environment("tiny", "1", storage="", open_storage=open_store)
    assert refused.value.problems[0].allowed == ("builtin",)


def test_an_order_arrives_as_it_was_sent():
    source = BuiltinSource(package="/p", paths=["/a", "/b"], python="/usr/bin/python3")
    for each in (None, source):
        order = EnvironmentOrder(name="tiny", version="1", digest="1" * 64, source=each)
        assert EnvironmentOrder.from_json(json.loads(json.dumps(order.to_json()))) == order


@pytest.mark.parametrize(
    "head",
    [
        b"#!/usr/bin/python3\n",
        b"#!/usr/bin/env python3.11\n",
        b"#!/bin/sh\n'''exec' \"/x y/python\" \"$0\" \"$@\"\n' '''\n",
    ],
)
def test_scripts_start_the_interpreter_of_their_environment(head: bytes):
    made = script_for(Path("/home/user/my cache/bin/python"), head + b"import sys\n")
    assert made.endswith(b"' '''\nimport sys\n")
    assert made.splitlines()[1] == b'\'\'\'exec\' "/home/user/my cache/bin/python" "$0" "$@"'


def test_programs_that_are_no_scripts_stay_as_they_are():
    assert script_for(Path("/p"), b"\x7fELF python") == b"\x7fELF python"


@pytest.mark.parametrize(
    "address", ["sftp://me:" + "hun" + "ter2@host/e", "https://host/e?sig=" + "hun" + "ter2"]
)
def test_a_storage_with_a_secret_in_its_address_is_refused_without_it(address: str):
    with pytest.raises(InputError, match="has a password or a query") as refused:
        storage_address(address)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "address", ["", "s3://bucket/e", "abfs://box@account.example/e", "sftp://me@host/e"]
)
def test_an_address_without_secrets_stays_as_it_is(address: str):
    assert storage_address(address) == address
