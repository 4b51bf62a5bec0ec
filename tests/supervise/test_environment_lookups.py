"""While a document is typed, the storage of environments is asked once in a while; what it does not have is told all the same."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_training.admission.environment_lookups import EnvironmentLookups
from airflow_training.environments import provided
from airflow_training.errors import InputError
from tests.state.samples import Clock


class Storage:
    """Has one environment and counts who asks."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.versions = {"1"}

    def find(self, name: str, version: str, **_: Any) -> str:
        self.asked.append(version)
        if version == "away":
            raise ConnectionError("the storage is away")
        if version not in self.versions:
            raise InputError.of(code="bad_reference", field="version", message="is not there")
        return f"{name}@{version}"


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> Storage:
    found = Storage()
    monkeypatch.setattr(provided, "find_environment", found.find)
    return found


def test_it_is_asked_once_in_a_while_and_by_whoever_begins_a_run(storage: Storage):
    clock = Clock()
    lookups = EnvironmentLookups(clock=clock)

    def find(version: str, age: float = 30.0, where: str = "s3://environments") -> Any:
        return lookups.find("tiny", version, storage=where, age=age)

    assert {find("1") for _ in range(5)} == {"tiny@1"}
    assert storage.asked == ["1"]
    assert find("1", where="s3://others") == "tiny@1"
    assert find("1", age=0) == "tiny@1"
    assert storage.asked == ["1"] * 3
    for _ in range(3):
        with pytest.raises(InputError, match="is not there"):
            find("2")
        with pytest.raises(ConnectionError):
            find("away")
    assert storage.asked[3:] == ["2", "away"]
    storage.versions.add("2")
    with pytest.raises(InputError):
        find("2")
    clock.advance(31)
    assert find("2") == "tiny@2"


def test_no_number_of_names_fills_the_memory(storage: Storage):
    lookups = EnvironmentLookups(clock=Clock())
    for number in range(1000):
        with pytest.raises(InputError):
            lookups.find("tiny", f"x{number}", storage="", age=30)
    assert len(lookups._answers) <= 200
