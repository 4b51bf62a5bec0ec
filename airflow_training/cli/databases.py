"""`db`: the store's own schema and size. Knows no run."""

from __future__ import annotations

from typing import Annotated

import typer

from airflow_training.cli.context import open_store, settings
from airflow_training.cli.documents import OutputOption
from airflow_training.cli.output import OutputFormat, next_step, note, print_json, print_table
from airflow_training.cli.program import command_group
from airflow_training.cli.times import age_seconds
from airflow_training.documents.text import counted

__all__ = ["app"]

app = command_group("db", "The store: upgrade, check, prune.")


@app.command()
def upgrade(output: OutputOption = OutputFormat.table) -> None:
    """Bring the store to the newest schema.

    Every command does it on first use, too.
    """
    from airflow_training.state import store

    url = settings().sql_alchemy_conn
    store.upgrade(url)
    _print(*store.check(url), output=output)


@app.command()
def check(output: OutputOption = OutputFormat.table) -> None:
    """Tell the schema's revision.

    Exit 0 when it is the newest, 1 otherwise.
    """
    from airflow_training.state import store

    current, newest = store.check(settings().sql_alchemy_conn)
    _print(current, newest, output=output)
    if current != newest:
        if _is_newer(current, newest):
            note("next: pip install --upgrade airflow-training")
        else:
            next_step("db", "upgrade")
        raise typer.Exit(1)


@app.command()
def prune(
    older_than: Annotated[
        str, typer.Option(help="Age of the runs' end: a number and s, m, h, d or w, as in 30d.")
    ],
    output: OutputOption = OutputFormat.table,
) -> None:
    """Delete finished runs from the store.

    With their events, metrics and usage. Files of runs stay, and what accounts were charged for them.
    """
    from airflow_training.accounts.operations import settle

    store = open_store()
    settle(store)
    deleted = store.prune(older_than_seconds=age_seconds(older_than, option="--older-than"))
    if output is OutputFormat.json:
        print_json({"deleted": deleted})
    else:
        print(f"deleted {counted(deleted, 'run')}")


def _print(current: str | None, newest: str, *, output: OutputFormat) -> None:
    if output is OutputFormat.json:
        print_json({"revision": current, "newest": newest, "current": current == newest})
    else:
        state = "current" if current == newest else "to be upgraded"
        if _is_newer(current, newest):
            state = "newer than this version knows"
        print_table(["revision", "newest", "state"], [[current or "empty", newest, state]])


def _is_newer(current: str | None, newest: str) -> bool:
    return current is not None and current > newest  # revisions are numbers with leading zeros
