"""The service of this machine stays for the next command, and ends when nobody comes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from airflow_training.cloud.client import CloudClient
from airflow_training.cloud.local_service import LocalService
from airflow_training.cloud.service_record import find_service, starting_conditions
from airflow_training.cloud.targets import cloud_folder
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.filterwarnings("ignore:subprocess:ResourceWarning"),  # which it is to survive
]


@contextlib.contextmanager
def used() -> Iterator[LocalService]:
    service = LocalService()
    try:
        with CloudClient.at(service.url(), service.key, local=service) as client:
            assert client.runs() == []
            yield service
    finally:
        service.close()


def records() -> list[Path]:
    return [*(cloud_folder() / "client" / "services").glob("*.json")]


@pytest.fixture
def staying(airflow_home, monkeypatch):
    monkeypatch.setenv("AIRFLOW__TRAINING__CLOUD_IDLE_SECONDS", "600")
    yield
    for each in records():
        pid = json.loads(each.read_text())["pid"]
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        wait_until(partial(_has_ended, pid), "it has ended")


def _has_ended(pid: int) -> bool:
    return not _runs(pid)


def _runs(pid: int) -> bool:
    try:
        return "zombie" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_the_next_client_uses_the_service_of_the_one_before(staying):
    with used() as first:
        pass
    [record] = records()
    assert record.stat().st_mode & 0o777 == 0o600
    with used() as second:
        assert (second.url(), second.key) == (first.url(), first.key)


def test_a_client_with_other_variables_starts_one_of_its_own(staying, monkeypatch):
    with used() as first:
        pass
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    with used() as second:
        assert second.url() != first.url()


def test_two_at_once_are_both_served(staying):
    first, second = LocalService(), LocalService()
    try:
        for each in (first, second):
            with CloudClient.at(each.url(), each.key, local=each) as client:
                assert client.runs() == []
    finally:
        first.close()
        second.close()
    assert len(records()) == 1


def test_it_ends_once_nobody_has_asked_for_so_long(airflow_home, monkeypatch):
    monkeypatch.setenv("AIRFLOW__TRAINING__CLOUD_IDLE_SECONDS", "1")
    with used():
        pass
    conditions = starting_conditions()
    known = find_service(conditions)
    wait_until(lambda: find_service(conditions) is None, "nobody finds it")
    wait_until(lambda: not records(), "its record is gone")
    if known is not None:  # else it has ended before we looked
        wait_until(partial(_has_ended, known.pid), "it ends before this test does")


def test_what_a_dead_service_has_left_is_not_asked(staying):
    with used():
        pass
    dead = find_service(starting_conditions())
    assert dead is not None
    os.kill(dead.pid, signal.SIGKILL)
    wait_until(lambda: find_service(starting_conditions()) is None, "it is gone")
    with used() as living:
        assert living.key != dead.key


def test_zero_ends_it_with_its_client(airflow_home, monkeypatch):
    monkeypatch.setenv("AIRFLOW__TRAINING__CLOUD_IDLE_SECONDS", "0")
    with used():
        assert records() == []


def test_what_is_installed_meanwhile_counts(staying, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    (tmp_path / "site").mkdir()
    before = starting_conditions()
    assert starting_conditions() == before
    (tmp_path / "site" / "torch-2.13.0.dist-info").mkdir()
    assert starting_conditions() != before


def test_who_gives_up_before_it_serves_does_not_wait_for_it(staying):
    LocalService().close()  # a refusal, Ctrl-C; would wait for 600 seconds
    wait_until(records, "it serves nevertheless")
    with used():
        assert len(records()) == 1


def test_one_that_would_not_stay_ends_with_who_gives_up(airflow_home, monkeypatch):
    monkeypatch.setenv("AIRFLOW__TRAINING__CLOUD_IDLE_SECONDS", "0")
    service = LocalService()
    process = service._process
    assert process is not None
    service.close()
    assert process.returncode is not None, "it has ended"
    assert records() == []
