"""`accounts` as an administrator types it."""

from __future__ import annotations

import csv
import io
from decimal import Decimal
from pathlib import Path

import pytest

from airflow_training.accounts.operations import authenticate, reserve, reserved_roles
from airflow_training.state.store import open_store
from tests.cli.conftest import home, typed

__all__ = ["home", "typed"]


def test_an_account_with_its_team_and_limits(typed):
    assert typed("accounts", "add", "research", "--kind", "team").code == 0
    done = typed("accounts", "add", "alice", "--member-of", "research", "--at-limit", "kill")
    assert "at limit   kill" in done.stdout
    done = typed("accounts", "limit", "alice", "gpu_hours", "100", "--per", "month")
    assert done.stdout.split()[-6:] == ["hours", "month", "100", "0", "0", "100"]
    assert "next:" not in done.stdout
    told = typed("accounts", "show", "alice", "-o", "json").json
    assert (told["teams"], told["at_limit"]) == (["research"], "kill")
    assert told["limits"] == [{"kind": "gpu_hours", "period": "month", "amount": "100"}]
    typed("accounts", "add", "alice", "--prepaid", "--threshold", "5", "--leave", "research")
    told = typed("accounts", "show", "alice", "-o", "json").json
    assert (told["prepaid"], told["threshold"], told["teams"]) == (True, "5", [])
    assert told["at_limit"] == "kill"
    typed("accounts", "limit", "alice", "gpu_hours", "none", "--per", "month")
    assert typed("accounts", "show", "alice", "-o", "json").json["limits"] == []
    names = [each["name"] for each in typed("accounts", "list", "-o", "json").json["accounts"]]
    assert names == ["alice", "research"]


def test_a_key_is_shown_once_and_revoked(typed):
    typed("accounts", "add", "alice")
    key = typed("accounts", "key", "alice", "--expires", "30d").stdout.strip()
    assert authenticate(open_store(), key).name == "alice"
    told = typed("accounts", "show", "alice", "-o", "json").json
    assert [each["prefix"] for each in told["keys"]] == [key[:12]]
    assert key not in str(told)
    assert typed("accounts", "revoke", key).stdout == f"{key[:12]} is revoked\n"
    assert typed("accounts", "show", "alice", "-o", "json").json["keys"][0]["revoked_at"]
    done = typed("accounts", "revoke", "atk_00000000")
    assert (done.code, "there is no such key" in done.stderr) == (2, True)


def test_prices_have_one_currency(typed):
    assert typed("accounts", "price", "--currency", "USD").code == 0
    done = typed("accounts", "price", "nvidia.com/gpu", "2.50", "--node-label", "gpu.product=H100")
    assert "2.50 USD" in done.stdout
    done = typed("accounts", "price", "cpu", "0.04", "--from", "2026-01-01", "-o", "json").json
    assert [(each["resource"], each["hourly"]) for each in done["prices"]] == [
        ("cpu", "0.04"), ("nvidia.com/gpu", "2.50"),
    ]  # fmt: skip
    done = typed("accounts", "price", "--currency", "EUR")
    assert (done.code, "prices and payments are in USD" in done.stderr) == (2, True)


def test_a_payment_with_a_reference_counts_once(typed):
    typed("accounts", "add", "alice")
    for _ in range(2):
        done = typed("accounts", "pay", "alice", "12.50", "--reference", "invoice 7")
        assert "the balance of alice is 12.5" in done.stdout
    assert typed("accounts", "usage", "alice", "-o", "json").json["balance"] == "12.5"


def test_money_is_paid_back(typed):
    typed("accounts", "add", "alice")
    typed("accounts", "pay", "alice", "12.50")
    assert "the balance of alice is 10" in typed("accounts", "pay", "alice", "-2.5").stdout


def test_a_reference_is_of_one_payment(typed):
    typed("accounts", "add", "alice")
    typed("accounts", "pay", "alice", "5", "--reference", "invoice 7")
    done = typed("accounts", "pay", "alice", "6", "--reference", "invoice 7")
    assert (done.code, "'invoice 7' was paid already, with 5" in done.stderr) == (2, True)


def test_a_price_from_before_all_times_is_from_the_first_on(typed):
    done = typed("accounts", "price", "cpu", "1", "--from", "99999999d", "-o", "json").json
    assert [each["valid_from"] for each in done["prices"]] == ["1970-01-01T00:00:00.000Z"]


def test_the_bill_of_a_run(typed):
    Path("job.yaml").write_text(JOB)
    typed("accounts", "add", "alice")
    typed("accounts", "price", "cpu", "3600", "--from", "2020-01-01")
    Path("faults.yaml").write_text("roles: {worker: {runSeconds: 60}}\n")
    assert typed("run", "job.yaml", "--run-id", "tuesday", "--simulate", "faults.yaml").code == 0
    store = open_store()
    run = store.find_run("tuesday")
    ledger = sum(each.seconds for each in store.usage.of_run(run.uid))
    told = typed("accounts", "bill", "tuesday", "-o", "json").json
    assert abs(float(told["instance_seconds"]) - ledger) < 1.0
    assert abs(float(told["total"]) - 2 * ledger) < 0.01
    assert (told["account"], told["final"]) == (None, True)
    table = [*csv.DictReader(io.StringIO(typed("accounts", "bill", "tuesday", "--csv").stdout))]
    assert [each["role"] for each in table] == ["worker", ""]
    assert table[-1]["amount"] == told["total"]
    done = typed("accounts", "bill", "tuesday")
    assert done.stdout.split()[-1] == told["total"]
    assert "nobody reserved for it" in done.stderr
    job = store.job(run.uid)
    held = reserve(
        store,
        account="alice",
        roles=reserved_roles(job, {"worker": {"cpu": "2"}}),
        hours=Decimal(1),
        key="k",
    )
    store.reservations.attach(held.id, run.uid)
    told = typed("accounts", "usage", "alice", "-o", "json").json
    assert [each["run"] for each in told["runs"]] == [run.uid]
    table = typed("accounts", "usage", "alice", "--csv").stdout
    rows = [*csv.DictReader(io.StringIO(table))]
    assert [each["run"] for each in rows] == [run.uid, ""]
    assert rows[0]["amount"] == rows[1]["amount"]
    assert typed("db", "prune", "--older-than", "0s").code == 0
    assert typed("accounts", "usage", "alice", "-o", "json").json["runs"] == told["runs"]


JOB = """\
apiVersion: airflow-training/v1
kind: TrainingJob
metadata: {name: digits}
spec:
  framework: {name: custom}
  roles:
    - name: worker
      replicas: 2
      template:
        spec:
          containers:
            - name: main
              command: [python, train.py]
              resources: {requests: {cpu: "2"}}
"""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["usage", "bob"], "no account is called 'bob'"),
        (["usage", "alcie"], "did you mean 'alice'?"),
        (["pay", "alice", "ten"], "'ten' is no number"),
        (["pay", "alice", "0.00001"], "money has at most four places"),
        (["pay", "alice", "0"], "nothing is paid"),
        (["limit", "alice", "gpu_hours", "nan"], "is too large or too long"),
        (["limit", "alice", "gpu_hours", "-1"], "No such option: -1"),
        (
            ["limit", "alice", "concurrent_gpus", "4", "--per", "month"],
            "GPUs at a time have no period",
        ),
        (["limit", "alice", "hours", "4"], "'hours' is not one of"),
        (["price", "cpu"], "name the price of cpu"),
        (["price", "cpu", "1", "--node-label", "H100"], "is KEY=VALUE"),
        (["add", " "], "1 to 100 characters"),
        (["add", "alice", "--kind", "team"], "alice is the name of a user already"),
        (["add", "bob", "--member-of", "alice"], "alice is a user, no team"),
        (["bill", "friday"], "no run is called 'friday'"),
        (["key", "alice", "--expires", "soon"], "'soon' is no age"),
        (["key", "alice", "--expires", "99999999d"], "at most 36500d"),
        (["key", "alice", "--expires", "0d"], "more than nothing"),
        (["usage", "alice", "--month", "2026-1"], "is no month"),
        (["pay", "alice", "5", "--reference", "x" * 129], "has at most 128 characters"),
    ],
)
def test_a_mistake_is_named_with_the_way_out(typed, words, message):
    typed("accounts", "add", "alice")
    done = typed("accounts", *words)
    assert done.code == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
