"""`accounts`: who may train, how much, and what it costs. Decides nothing; see `airflow_training.accounts`."""

from __future__ import annotations

import dataclasses
import re
import sys
from enum import Enum
from typing import Annotated, Any

import typer

from airflow_training.cli.account_numbers import parse_money, parse_number
from airflow_training.cli.account_tables import (
    account_json,
    charge_json,
    key_json,
    print_account,
    print_bill,
    print_standings,
    usage_json,
)
from airflow_training.cli.context import RunArgument, open_store
from airflow_training.cli.documents import CsvOption, OutputOption
from airflow_training.cli.output import (
    OutputFormat,
    fail,
    next_step,
    note,
    print_json,
    print_table,
    time_text,
)
from airflow_training.cli.program import command_group
from airflow_training.cli.times import age_seconds, parse_moment
from airflow_training.settings import user_name

__all__ = ["app"]

app = command_group("accounts", "Who may train, how much, and what it costs.")


class _Kind(str, Enum):
    user = "user"
    team = "team"


class _AtLimit(str, Enum):
    finish = "finish"
    checkpoint_and_pause = "checkpoint_and_pause"
    kill = "kill"


class _TokenScope(str, Enum):
    submit = "submit"
    read = "read"


class _LimitKind(str, Enum):
    instance_hours = "instance_hours"
    gpu_hours = "gpu_hours"
    concurrent_gpus = "concurrent_gpus"
    money = "money"


class _Period(str, Enum):
    total = "total"
    month = "month"


_LONGEST_KEY_SECONDS = 36_500 * 86_400.0
_MONTH = re.compile(r"\d{4}-(0[1-9]|1[0-2])")
AccountArgument = Annotated[str, typer.Argument(metavar="ACCOUNT", help="Name of a user or team.")]


@app.command()
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the user or team.")],
    kind: Annotated[
        _Kind | None, typer.Option(help="Of a new account.", show_default="user")
    ] = None,
    member_of: Annotated[
        list[str] | None, typer.Option(metavar="TEAM", help="Put the user into this team.")
    ] = None,
    leave: Annotated[
        list[str] | None, typer.Option(metavar="TEAM", help="Take the user out of this team.")
    ] = None,
    prepaid: Annotated[
        bool | None,
        typer.Option("--prepaid/--postpaid", help="Whether trainings need a balance."),
    ] = None,
    threshold: Annotated[
        str, typer.Option(metavar="MONEY", help="Nothing may bring a prepaid balance below.")
    ] = "",
    at_limit: Annotated[
        _AtLimit | None,
        typer.Option(help="What becomes of runs at a limit.", show_default="checkpoint_and_pause"),
    ] = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Add a user or a team, or change one: what is not given stays as it is."""
    from airflow_training.state.account_records import Account

    if not name or len(name) > 100 or name != name.strip():
        raise fail("NAME", "1 to 100 characters, no space around them", value=name)
    store = open_store()
    known = store.accounts.get(name) or Account(name=name)
    changes: dict[str, Any] = {}
    if kind is not None:
        changes["kind"] = kind.value
    if prepaid is not None:
        changes["prepaid"] = prepaid
    if threshold:
        changes["threshold"] = parse_money(threshold, option="--threshold")
    if at_limit is not None:
        changes["at_limit"] = at_limit.value
    account = store.accounts.save(dataclasses.replace(known, **changes))
    for team in member_of or ():
        store.accounts.add_member(team, name)
    for team in leave or ():
        store.accounts.remove_member(team, name)
    print_account(store, account, output=output)
    next_step("accounts", "limit", name, "gpu_hours", "100")


@app.command("list")
def list_accounts(output: OutputOption = OutputFormat.table) -> None:
    """List users and teams."""
    store = open_store()
    found, members = store.accounts.all(), store.accounts.members()
    if output is OutputFormat.json:
        print_json({"accounts": [account_json(store, each) for each in found]})
        return
    print_table(
        ["name", "kind", "pays", "at limit", "members"],
        [
            [
                each.name,
                each.kind,
                "before" if each.prepaid else "after",
                each.at_limit.replace("_", " "),
                ", ".join(members.get(each.name, ())),
            ]
            for each in found
        ],
    )


@app.command()
def show(account: AccountArgument, output: OutputOption = OutputFormat.table) -> None:
    """Tell all about one account: teams, limits, keys, payments."""
    store = open_store()
    print_account(store, store.accounts.find(account), output=output)
    next_step("accounts", "usage", account)


@app.command()
def key(
    account: AccountArgument,
    scope: Annotated[_TokenScope, typer.Option(help="`submit` reads, too.")] = _TokenScope.submit,
    expires: Annotated[
        str, typer.Option(metavar="AGE", help="After what time, as in 90d; empty: never.")
    ] = "90d",
    output: OutputOption = OutputFormat.table,
) -> None:
    """Make a key for a user. It is printed once, and only a digest of it is kept."""
    from airflow_training.accounts.operations import add_key

    seconds = age_seconds(expires, option="--expires") if expires else None
    if seconds is not None and not 0 < seconds <= _LONGEST_KEY_SECONDS:
        raise fail(
            "--expires", "more than nothing, at most 36500d", code="out_of_range", value=expires
        )
    days = None if seconds is None else seconds / 86_400.0
    text, kept = add_key(open_store(), account, scope=scope.value, days=days)
    if output is OutputFormat.json:
        print_json({"key": text, **key_json(kept)})
    else:
        print(text)
        note(f"it is shown this once; it ends {time_text(kept.expires_at) or 'when it is revoked'}")
    next_step("accounts", "revoke", kept.prefix)


@app.command()
def revoke(
    prefix: Annotated[str, typer.Argument(metavar="KEY", help="The key, or its prefix.")],
    output: OutputOption = OutputFormat.table,
) -> None:
    """End a key now."""
    from airflow_training.accounts.keys import key_prefix

    shown = key_prefix(prefix) or prefix
    if not open_store().accounts.revoke_key(shown):
        raise fail(
            "KEY",
            "there is no such key",
            code="bad_reference",
            hint="`airflow-training accounts show ACCOUNT` lists prefixes",
        )
    if output is OutputFormat.json:
        print_json({"revoked": shown})
    else:
        print(f"{shown} is revoked")


@app.command()
def limit(
    account: AccountArgument,
    kind: Annotated[_LimitKind, typer.Argument(help="What is limited.")],
    amount: Annotated[
        str, typer.Argument(metavar="AMOUNT", help="Hours, GPUs or money; `none`: no limit.")
    ],
    per: Annotated[
        _Period, typer.Option(help="A month is one of the calendar (UTC).")
    ] = _Period.total,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Set what an account may use at most, or take a limit away."""
    from airflow_training.state.account_records import AccountLimit

    if kind is _LimitKind.concurrent_gpus and per is _Period.month:
        raise fail("--per", "GPUs at a time have no period", value=per.value, allowed=["total"])
    store = open_store()
    store.accounts.find(account)
    if amount == "none":
        store.accounts.remove_limit(account, kind.value, per.value)
    else:
        store.accounts.set_limit(
            AccountLimit(
                account=account,
                kind=kind.value,
                period=per.value,
                amount=parse_number(amount, option="AMOUNT"),
            )
        )
    print_standings(store, account, output=output)


@app.command()
def price(
    resource: Annotated[
        str,
        typer.Argument(
            metavar="[RESOURCE]",
            help="instance, cpu (a core), memory (a GiB), or a device such as nvidia.com/gpu.",
        ),
    ] = "",
    hourly: Annotated[str, typer.Argument(metavar="[MONEY]", help="Of one an hour.")] = "",
    node_label: Annotated[
        str,
        typer.Option(
            metavar="KEY=VALUE", help="Only for roles that ask for such nodes (nodeSelector)."
        ),
    ] = "",
    since: Annotated[
        str, typer.Option("--from", metavar="TIME", help="From when on; empty: from now on.")
    ] = "",
    currency: Annotated[
        str, typer.Option(metavar="CODE", help="Of all money in the store; set it first.")
    ] = "",
    output: OutputOption = OutputFormat.table,
) -> None:
    """Set a price from a time on, or list all. What was used before keeps the price of its time."""
    from airflow_training.state.account_records import Price

    store = open_store()
    if currency:
        store.accounts.set_currency(currency)
    if bool(resource) != bool(hourly):
        raise fail("MONEY", f"name the price of {resource}", code="missing")
    if resource:
        if node_label and "=" not in node_label:
            raise fail("--node-label", "is KEY=VALUE", value=node_label)
        now = store.now()
        store.accounts.set_price(
            Price(
                resource=resource,
                node_label=node_label,
                valid_from=parse_moment(since, option="--from", now=now) if since else now,
                hourly=parse_number(hourly, option="MONEY"),
            )
        )
    found, name = store.accounts.prices(), store.accounts.currency()
    rows = [
        [each.resource, each.node_label, time_text(each.valid_from), f"{each.hourly:f} {name}"]
        for each in found
    ]
    if output is OutputFormat.json:
        keys = ("resource", "node_label", "valid_from", "hourly")
        values = [[*row[:3], f"{each.hourly:f}"] for row, each in zip(rows, found, strict=True)]
        prices = [dict(zip(keys, row, strict=True)) for row in values]
        print_json({"currency": name, "prices": prices})
    else:
        print_table(["resource", "node label", "from", "an hour"], rows)


@app.command(context_settings={"ignore_unknown_options": True})  # "-5" is no option
def pay(
    account: AccountArgument,
    money: Annotated[str, typer.Argument(metavar="MONEY", help="Below zero: paid back.")],
    reference: Annotated[
        str, typer.Option(help="Of the payment; the same again is counted once.")
    ] = "",
    output: OutputOption = OutputFormat.table,
) -> None:
    """Record a payment into an account."""
    from airflow_training.accounts.limits import balance_of

    store = open_store()
    amount = parse_money(money, option="MONEY")
    if not amount:
        raise fail("MONEY", "nothing is paid", value=money)
    paid = store.accounts.pay(account, amount, reference=reference, by=user_name())
    facts = store.reservations.facts(account)
    balance = f"{balance_of(facts):f}"
    if output is OutputFormat.json:
        row = {"id": paid.id, "account": account, "amount": f"{paid.amount:f}"}
        print_json(
            {**row, "at": time_text(paid.at), "balance": balance, "currency": facts.currency}
        )
    else:
        print(
            f"payment {paid.id} of {paid.amount:f} {facts.currency}; "
            f"the balance of {account} is {balance}"
        )
    next_step("accounts", "usage", account)


@app.command()
def usage(
    account: AccountArgument,
    month: Annotated[str, typer.Option(metavar="YYYY-MM", help="Runs of this month only.")] = "",
    csv: CsvOption = False,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Tell how an account stands to its limits, and what its runs used and cost by month."""
    from airflow_training.accounts.bills import charges_csv
    from airflow_training.accounts.operations import charges, settle

    if month and not _MONTH.fullmatch(month):
        raise fail("--month", "is no month", value=month, hint="for example 2026-11")
    store = open_store()
    settle(store)
    rows = charges(store, account, month=month)
    if csv:
        sys.stdout.write(charges_csv(rows, currency=store.accounts.currency()))
        return
    if output is OutputFormat.json:
        print_json({**usage_json(store, account), "runs": [charge_json(each) for each in rows]})
        return
    print_standings(store, account, output=output)
    name = store.accounts.currency()
    print()
    print_table(
        ["month", "run", "user", "team", "instance-hours", "gpu-hours", "cost"],
        [
            [
                each.month,
                each.run,
                each.account,
                each.team,
                f"{each.instance_seconds / 3600:.4f}",
                f"{each.gpu_seconds / 3600:.4f}",
                f"{each.money:f} {name}",
            ]
            for each in rows
        ],
    )
    if rows:
        next_step("accounts", "bill", rows[0].run)


@app.command()
def bill(
    run: RunArgument,
    csv: CsvOption = False,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Tell what a run costs until now: one row per role, price and month."""
    from airflow_training.accounts.bills import bill_csv
    from airflow_training.accounts.run_bills import bill as bill_of

    found = bill_of(open_store(), run)
    if csv:
        sys.stdout.write(bill_csv(found))
        return
    print_bill(found.to_json(), output=output)
