"""The address book: fixed addresses from `prepare`, live ones from the ledger's changes."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, delete, select

from airflow_training.control.model import InstanceEntry
from airflow_training.state.database import StorePart, clean, upsert
from airflow_training.state.models import AddressRow, RunRow, table_of
from airflow_training.state.run_lookup import set_columns

__all__ = ["AddressBook", "fixed", "follow", "forget"]

Book = Mapping[str, Sequence[Mapping[str, Any]]]
"""Role -> `{host, ports}` by index."""


class AddressBook(StorePart):
    """Where instances are reached."""

    def fix(self, uid: str, book: Book) -> None:
        """Record the addresses that `prepare` fixed for the present job attempt."""
        with self._db.write() as connection:
            set_columns(connection, uid, revision=RunRow.revision + 1)
            rows = [
                {
                    "run": uid,
                    "role": role,
                    "index": index,
                    "fixed": json.dumps(dict(address)),
                    "live": "",
                }
                for role, addresses in book.items()
                for index, address in enumerate(addresses)
            ]
            upsert(connection, table_of(AddressRow), rows, update=("fixed",))

    def live(self, uid: str) -> Mapping[str, Mapping[int, str]]:
        """Return role -> index -> `host:port` of the instances that answer now."""
        with self._db.read() as connection:
            book: dict[str, dict[int, str]] = defaultdict(dict)
            rows = connection.execute(
                select(AddressRow.role, AddressRow.index, AddressRow.live)
                .where(AddressRow.run == uid, AddressRow.live != "")
                .order_by(AddressRow.role, AddressRow.index)
            )
            for role, index, address in rows:
                book[role][index] = address
            return dict(book)


def follow(
    connection: Connection,
    uid: str,
    changes: Iterable[tuple[InstanceEntry | None, InstanceEntry | None]],
) -> None:
    """Write what is live after these ledger changes, remove what is not any more."""
    rows = [
        {"run": uid, "role": entry.role, "index": entry.index, "fixed": None, "live": _live(after)}
        for before, after in changes
        if _live(before) != _live(after) and (entry := after or before) is not None
    ]
    upsert(connection, table_of(AddressRow), rows, update=("live",))


def forget(connection: Connection, uid: str) -> None:
    """Remove the run's whole book."""
    connection.execute(delete(AddressRow).where(AddressRow.run == uid))


def fixed(connection: Connection, uids: Iterable[str]) -> Mapping[str, Book]:
    """Return the fixed addresses of many runs in one query."""
    books: dict[str, dict[str, list[Mapping[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    rows = connection.execute(
        select(AddressRow.run, AddressRow.role, AddressRow.fixed)
        .where(AddressRow.run.in_(list(uids)), AddressRow.fixed.is_not(None))
        .order_by(AddressRow.run, AddressRow.role, AddressRow.index)
    )
    for run, role, address in rows:
        books[run][role].append(json.loads(address or "{}"))
    return {run: dict(book) for run, book in books.items()}


def _live(entry: InstanceEntry | None) -> str:
    return clean(entry.address) if entry is not None and entry.phase.readiness.address_live else ""
