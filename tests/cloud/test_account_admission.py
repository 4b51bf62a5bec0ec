"""A service that asks the accounts of its store: login, quota and balance before content, and one reservation for a run."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from airflow_training.accounts.operations import add_key
from airflow_training.cloud.service.account_admission import AccountAdmission
from airflow_training.cloud.service.launching import ProcessLauncher
from airflow_training.cloud.submit import submit
from airflow_training.errors import InputError
from airflow_training.state.account_records import Account, AccountLimit
from airflow_training.state.store import Store, open_store
from tests.cloud.conftest import LoopbackService, captured


@pytest.fixture
def store(airflow_home: Path) -> Store:
    found = open_store()
    found.accounts.save(Account(name="ada"))
    return found


@pytest.fixture
def served(store: Store, tmp_path: Path) -> LoopbackService:
    return LoopbackService(tmp_path / "service", AccountAdmission(store))


def limited(store: Store, kind: str, amount: int) -> None:
    store.accounts.set_limit(
        AccountLimit(account="ada", kind=kind, period="total", amount=Decimal(amount))  # type: ignore[arg-type]
    )


def test_what_is_reserved_is_the_run_s_and_reserved_once(served, store, project):
    limited(store, "instance_hours", 5)
    said: list[str] = []
    submission = captured(project, replicas=2, hours=2)
    client = served.client(key=add_key(store, "ada")[0])
    run = submit(client, submission, target="office", told=said.append).run_id
    held = store.reservations.of_run(ProcessLauncher().key(run).uid)
    assert held is not None
    assert (held.account, held.hours) == ("ada", Decimal(2))
    assert held.amounts.instance_hours == Decimal(4)
    assert [each for each in said if "4 instance-hours" in each]
    with pytest.raises(
        InputError, match=r"quota: ada may use 5 instance-hours in all: .* 4 reserved"
    ):
        submit(client, submission, target="office")
    assert len(store.reservations.live()) == 1


def test_what_a_limit_refuses_sends_nothing(served, store, project):
    limited(store, "gpu_hours", 10)
    client = served.client(key=add_key(store, "ada")[0])
    submission = captured(project, resources={"nvidia.com/gpu": 8}, hours=2)
    with pytest.raises(InputError, match=r"would fit for 1\.25 h\n.*accounts usage ada"):
        submit(client, submission, target="office")
    assert not (served.folder / "content").exists()
    assert store.reservations.live() == []


def test_what_a_service_gives_each_replica_is_reserved_and_run(store, tmp_path, project):
    limited(store, "gpu_hours", 10)
    given = {"nvidia.com/gpu": 4}
    served = LoopbackService(tmp_path / "service", AccountAdmission(store), resources=given)
    client = served.client(key=add_key(store, "ada")[0])
    run = submit(client, captured(project, hours=2), target="office").run_id
    assert served.runs.begun[run]["spec"]["resources"] == {"limits": {"nvidia.com/gpu": "4"}}
    held = store.reservations.of_run(ProcessLauncher().key(run).uid)
    assert held is not None
    assert held.amounts.gpu_hours == Decimal(8)
    with pytest.raises(InputError, match="quota: ada may use 10 GPU-hours"):
        submit(client, captured(project, hours=2, env=["A=1"]), target="office")
    named = captured(project, resources={"cpu": 1}, hours=2)
    run = submit(client, named, target="office").run_id
    assert served.runs.begun[run]["spec"]["resources"] == {"limits": {"cpu": "1"}}, "asked for"


def test_a_key_that_may_read_submits_nothing(served, store, project):
    client = served.client(key=add_key(store, "ada", scope="read")[0])
    assert client.runs() == []
    with pytest.raises(InputError, match=r"login: the key atk_.* may only read"):
        submit(client, captured(project), target="office")


def test_a_key_that_may_read_does_not_count_as_the_machine_that_shares(served, store):
    client = served.client(key=add_key(store, "ada", scope="read")[0])
    with pytest.raises(InputError, match="may only read"):
        client.data_requests("train-0", wait_seconds=0)


def test_a_refusal_for_another_reason_holds_nothing(served, store, project):
    admission = served.admission
    request = captured(project, hours=1).request
    admission.reserve("ada", "s" * 32, request)
    assert len(store.reservations.live()) == 1
    admission.release("ada", "s" * 32)
    assert store.reservations.live() == []
