"""How the commands of `accounts` show an account, and how it stands. Decides nothing."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from airflow_training.cli.output import OutputFormat, note, print_json, print_table, time_text
from airflow_training.documents.text import counted
from airflow_training.state.account_records import Account, AccountKey, Charge

if TYPE_CHECKING:
    from airflow_training.accounts.limits import LimitStanding
    from airflow_training.state.store import Store

__all__ = [
    "account_json",
    "charge_json",
    "key_json",
    "print_account",
    "print_bill",
    "print_standings",
    "usage_json",
]


def print_account(store: Store, account: Account, *, output: OutputFormat) -> None:
    """Print all about one account."""
    document = account_json(store, account)
    if output is OutputFormat.json:
        print_json(document)
        return
    words = {
        "name": account.name,
        "kind": account.kind,
        "teams": ", ".join(document["teams"]),
        "members": ", ".join(document["members"]),
        "pays": "before" if account.prepaid else "after",
        "threshold": f"{account.threshold:f} {document['currency']}" if account.prepaid else "",
        "paid": f"{document['paid']} {document['currency']}",
        "at limit": account.at_limit.replace("_", " "),
        "limits": ", ".join(
            f"{each['kind'].replace('_', ' ')} {each['amount']}"
            + (" a month" if each["period"] == "month" else "")
            for each in document["limits"]
        ),
        "keys": ", ".join(each["prefix"] for each in document["keys"] if not each["revoked_at"]),
    }
    print_table(["what", "value"], [[name, value] for name, value in words.items() if value])


def account_json(store: Store, account: Account) -> dict[str, Any]:
    """Return an account with stable keys; money as text."""
    name = account.name
    return {
        "name": name,
        "kind": account.kind,
        "teams": list(store.accounts.teams_of(name)),
        "members": list(store.accounts.members().get(name, ())),
        "prepaid": account.prepaid,
        "threshold": f"{account.threshold:f}",
        "paid": f"{sum((each.amount for each in store.accounts.payments(name)), Decimal(0)):f}",
        "currency": store.accounts.currency(),
        "at_limit": account.at_limit,
        "created_at": time_text(account.created_at),
        "limits": [
            {"kind": each.kind, "period": each.period, "amount": f"{each.amount:f}"}
            for each in store.accounts.limits(name)
        ],
        "keys": [key_json(each) for each in store.accounts.keys(name)],
    }


def key_json(kept: AccountKey) -> dict[str, Any]:
    """The public fields of a key, never the key itself."""
    return {
        "prefix": kept.prefix,
        "account": kept.account,
        "scope": kept.scope,
        "created_at": time_text(kept.created_at),
        "expires_at": time_text(kept.expires_at) or None,
        "revoked_at": time_text(kept.revoked_at) or None,
    }


def usage_json(store: Store, account: str) -> dict[str, Any]:
    """Return how an account stands to its limits; numbers as text."""
    from airflow_training.accounts.limits import balance_of, standings
    from airflow_training.accounts.refusals import number_text

    facts = store.reservations.facts(account)

    def row(standing: LimitStanding) -> dict[str, str]:
        numbers = ("amount", "used", "reserved", "free")
        told = {name: number_text(getattr(standing, name)) for name in numbers}
        return {"limit": standing.kind, "period": standing.period, **told}

    return {
        "account": account,
        "currency": facts.currency,
        "balance": f"{balance_of(facts):f}",
        "prepaid": facts.account.prepaid,
        "limits": [row(each) for each in standings(facts)],
    }


def print_bill(document: Mapping[str, Any], *, output: OutputFormat) -> None:
    """Print a bill; `document`: as `Bill.to_json` makes it."""
    if output is OutputFormat.json:
        print_json(document)
        return
    rows = [
        [
            each["month"],
            each["role"],
            " ".join(f"{name}={value}" for name, value in sorted(each["resources"].items())),
            each["instance_seconds"],
            each["gpu_seconds"],
            each["price_per_instance_hour"],
            each["amount"],
        ]
        for each in document["rows"]
    ]
    totals = [document[name] for name in ("instance_seconds", "gpu_seconds", "total")]
    rows.append(["total", "", "", *totals[:2], "", totals[2]])
    print_table(
        ["month", "role", "resources", "instance-s", "gpu-s", "an hour", document["currency"]],
        rows,
    )
    charged = document["team"] or document["account"]
    note(f"charged to {charged}" if charged else "nobody reserved for it: it is charged to nobody")
    if not document["final"]:
        note("the run goes on: what it uses counts until now")


def print_standings(store: Store, account: str, *, output: OutputFormat) -> None:
    """Print how an account stands to its limits."""
    document = usage_json(store, account)
    if output is OutputFormat.json:
        print_json(document)
        return
    print_table(
        ["limit", "per", "amount", "used", "reserved", "free"],
        [
            [
                each["limit"].replace("_", " "),
                each["period"],
                *(each[name] for name in ("amount", "used", "reserved", "free")),
            ]
            for each in document["limits"]
        ],
    )
    note(
        f"{counted(len(document['limits']), 'limit')}; the balance of {account} is "
        f"{document['balance']} {document['currency']}"
    )


def charge_json(charge: Charge) -> dict[str, Any]:
    """The charge of a run in a month."""
    return {
        "month": charge.month,
        "run": charge.run,
        "account": charge.account,
        "team": charge.team or None,
        "instance_seconds": round(charge.instance_seconds, 3),
        "gpu_seconds": round(charge.gpu_seconds, 3),
        "cost": f"{charge.money:f}",
    }
