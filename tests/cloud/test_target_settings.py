"""What a target runs on: read from a file or a login, with every mistake named."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_training.cloud.target_settings import is_direct, read_settings, settings_at
from airflow_training.errors import InputError
from airflow_training.settings import load_settings

GOOD = """\
apiVersion: airflow-training/v1
kind: CloudService
spec:
  runtime: {name: kubernetes, connection: prod}
  namespace: training
  storage: s3://bucket/training
  images: catalogue.yaml
  template: {spec: {serviceAccountName: trainer}}
"""


def test_a_file_of_a_service(tmp_path: Path):
    (tmp_path / "service.yaml").write_text(GOOD)
    found = read_settings(tmp_path / "service.yaml")
    assert (found.runtime.name, found.runtime.connection) == ("kubernetes", "prod")
    assert found.images == str(tmp_path / "catalogue.yaml")


@pytest.mark.parametrize(
    ("before", "after", "field", "words"),
    [
        ("storage: s3://bucket/training", "storge: x", "spec.storage", "is required"),
        ("s3://bucket/training", "bucket", "spec.storage", ""),
        ("name: kubernetes", "name: mesos", "spec.runtime.name", ""),
        ("  images: catalogue.yaml\n", "", "spec.image", "one of image and images"),
        ("images:", "image: x\n  images:", "spec.image", "one of image and images"),
        ("images:", "address: office:80\n  images:", "spec.address", ""),
        ("kind: CloudService", "kind: TrainingJob", "kind", ""),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, before, after, field, words):
    assert before in GOOD
    (tmp_path / "service.yaml").write_text(GOOD.replace(before, after))
    with pytest.raises(InputError) as refused:
        read_settings(tmp_path / "service.yaml")
    assert field in {each.field for each in refused.value.problems}
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("address", "direct"),
    [
        ("kubernetes:prod/training", True),
        ("kubernetes:/training", True),
        ("https://training.example.com", False),
        ("http://127.0.0.1:8740/prefix", False),
        ("mesos:prod/training", False),
        ("training.example.com", False),
    ],
)
def test_which_address_means_no_service(address, direct):
    assert is_direct(address) is direct


def test_a_context_may_have_slashes():
    given = {"storage": "/shared", "image": "torch:1"}
    found = settings_at("kubernetes:arn:aws:eks/prod/training", given)
    assert (found.runtime.connection, found.namespace) == ("arn:aws:eks/prod", "training")


@pytest.mark.parametrize(
    ("address", "given", "field"),
    [
        ("kubernetes:prod", {"storage": "/shared", "image": "torch:1"}, "URL"),
        ("kubernetes:prod/training", {"image": "torch:1"}, "--storage"),
        ("kubernetes:prod/training", {"storage": "/shared"}, "image"),
        ("kubernetes:prod/No_Name", {"storage": "/shared", "image": "torch:1"}, "namespace"),
    ],
)
def test_what_a_login_lacks_is_named(address, given, field):
    with pytest.raises(InputError) as refused:
        settings_at(address, given)
    assert [each.field for each in refused.value.problems] == [field]


def test_a_target_without_a_service_has_no_address_that_instances_could_ask():
    given = {
        "storage": "s3://bucket/t",
        "image": "torch:1",
        "address": "https://office.example.com",
    }
    with pytest.raises(InputError, match="this target has none"):
        settings_at("kubernetes:prod/training", given)


def test_an_airflow_says_the_resources_of_what_is_sent_to_it(monkeypatch):
    monkeypatch.setenv("AIRFLOW__TRAINING__CLOUD_RESOURCES", " cpu=4, nvidia.com/gpu = 1,")
    assert load_settings().cloud_resources == (("cpu", "4"), ("nvidia.com/gpu", "1"))
    monkeypatch.setenv("AIRFLOW__TRAINING__CLOUD_RESOURCES", "cpu=4, memory")
    with pytest.raises(
        ValueError, match=r"\[training\] cloud_resources: 'memory' is no NAME=VALUE"
    ):
        load_settings()
