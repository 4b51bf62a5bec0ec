"""The environments that a form offers, and the one that a run was admitted with."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from airflow_training.checkpoints.store import LocalStore
from airflow_training.documents.resolved_blocks import ResolvedEnvironment
from airflow_training.environments.model import InstalledDistribution, PythonEnvironment
from airflow_training.environments.named import NamedEnvironment, PackageFile
from airflow_training.state.store import open_store
from tests.web.conftest import a_run

WHEEL = PackageFile(name="tinyone-1.0-py3-none-any.whl", sha256="a" * 64, size=3)


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The storage that `[training] environments` names, with `tiny@1`."""
    folder = tmp_path / "environments"
    record = PythonEnvironment(
        python="3.11.7", distributions=[InstalledDistribution(name="tinyone", version="1.0")]
    )
    named = NamedEnvironment(name="tiny", version="1", record=record, files=[WHEEL], image="tiny:1")
    LocalStore(folder).create(named.key, json.dumps(named.to_json()).encode())
    monkeypatch.setenv("AIRFLOW__TRAINING__ENVIRONMENTS", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def listed(client: Any) -> Any:
    answer = client.get("/api/environments")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_those_of_the_storage_are_listed_beside_the_built_in_one(client: Any, storage: Path):
    assert storage.is_dir()
    answer = listed(client)
    by_name = {each["name"]: each for each in answer["environments"]}
    assert (answer["problem"], set(by_name)) == (None, {"builtin", "tiny"})
    tiny = by_name["tiny"]
    assert (tiny["version"], tiny["python"], tiny["image"]) == ("1", "3.11.7", "tiny:1")
    assert (tiny["packages"], tiny["cached"], tiny["pinned"]) == (["tinyone==1.0"], False, False)
    assert any(row.startswith("airflow-training==") for row in by_name["builtin"]["packages"])


def test_a_damaged_storage_hides_no_built_in_one(client: Any, storage: Path):
    (storage / "tiny" / "1.json").write_text("{")
    answer = listed(client)
    assert [each["name"] for each in answer["environments"]] == ["builtin"]
    assert "is damaged" in answer["problem"]


def test_a_stranger_is_told_nothing(client: Any):
    assert client.get("/api/environments", headers={"user": ""}).status_code == 401


def test_a_run_tells_which_one_it_was_admitted_with(client: Any):
    run = a_run("named")
    told = client.get(f"/api/dags/digits/trainings/{run.uid}/environment").json()
    assert told["environment"] is None
    named = ResolvedEnvironment(name="tiny", version="1", digest="1" * 64, image="tiny:1")
    job = dataclasses.replace(open_store().job(run.uid), environment=named)
    other = a_run("other", job=job)
    told = client.get(f"/api/dags/digits/trainings/{other.uid}/environment").json()
    wanted = {"name": "tiny", "version": "1", "digest": "1" * 64, "image": "tiny:1"}
    assert told["environment"] == wanted
