"""Records of what instances had around them: the last ten, the newest exit, what saves name, the software."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, or_, select

from airflow_training.documents.instances import InstanceKey
from airflow_training.state import system_metrics
from airflow_training.state.database import StorePart, clean, upsert
from airflow_training.state.models import EnvironmentRow, table_of
from airflow_training.state.records import EnvironmentRecord
from airflow_training.state.run_lookup import must_exist

__all__ = ["LONGEST_LINE", "EnvironmentRecords", "digest_of"]

LONGEST_LINE = 8192
"""As agents write them."""
LONGEST_SOFTWARE = 24 << 10

_NEWEST = 10
_EXIT = 10
"""Slot of the newest exit, behind those of the newest records."""
_NAMED = range(11, 14)
_SOFTWARE = 14
_RECORD = (
    EnvironmentRow.role,
    EnvironmentRow.index,
    EnvironmentRow.number,
    EnvironmentRow.digest,
    EnvironmentRow.body,
)


def digest_of(line: str) -> str:
    """Return the digest by which a checkpoint names a record."""
    return f"sha256:{hashlib.sha256(line.encode()).hexdigest()}"


class EnvironmentRecords(StorePart):
    """What the instances of runs had around them."""

    def save(self, uid: str, lines: Mapping[InstanceKey, Sequence[str]]) -> None:
        """Keep what agents recorded, oldest first, per (role, index); what is there stays as it is.

        Of each instance the last ten records are kept, the newest of an exit, and what was named.
        """
        with self._db.write() as connection:
            must_exist(connection, uid)
            known = _slots(connection, uid, lines.keys())
            rows: dict[tuple[str, int, int], dict[str, Any]] = {}
            newest: dict[InstanceKey, list[Mapping[str, Any]]] = {}
            before: dict[InstanceKey, int] = {}
            """The number of the record before the one that is new."""
            for key, new in lines.items():
                role, index = key
                slots = known.get(key, {})
                digests = {digest for _, digest in slots.values()}
                number = max((each for each, _ in slots.values()), default=0)
                for line in new:
                    record, digest = _object(line), digest_of(line)
                    if record is None or digest in digests:
                        continue
                    digests.add(digest)
                    if record.get("on") == "software":
                        order, places = 0, [_SOFTWARE]
                    else:
                        before[key], number = number, number + 1
                        newest[key] = [*newest.get(key, ())[-1:], record]
                        ends = [_EXIT] if record.get("on") == "exit" else []
                        order, places = number, [number % _NEWEST, *ends]
                    row = {
                        "run": uid,
                        "role": role,
                        "index": index,
                        "number": order,
                        "digest": digest,
                        "body": clean(line),
                    }
                    for slot in places:
                        rows[role, index, slot] = {**row, "slot": slot}
            single = {key: before[key] for key, records in newest.items() if len(records) == 1}
            for key, earlier in _numbered(connection, uid, single).items():
                newest[key].insert(0, earlier)
            upsert(connection, table_of(EnvironmentRow), [*rows.values()])
            system_metrics.save(connection, uid, newest)

    def name(self, uid: str, digests: Mapping[InstanceKey, str]) -> None:
        """Keep the records that the newest saves of instances name: the last three of each."""
        with self._db.write() as connection:
            known = _slots(connection, uid, digests.keys())
            rows = []
            for key, digest in digests.items():
                slots = known.get(key, {})
                found = [slot for slot, (_, each) in slots.items() if each == digest]
                if not found or max(found) in _NAMED:
                    continue
                oldest = min(_NAMED, key=lambda slot: slots[slot][0] if slot in slots else 0)
                row = connection.execute(
                    select(*table_of(EnvironmentRow).columns).where(
                        EnvironmentRow.run == uid,
                        EnvironmentRow.role == key.role,
                        EnvironmentRow.index == key.index,
                        EnvironmentRow.slot == found[0],
                    )
                ).one()
                rows.append({**row._mapping, "slot": oldest})
            upsert(connection, table_of(EnvironmentRow), rows)

    def reference(self, uid: str) -> str:
        """Return the digest that names the newest record of every instance; "" without any."""
        with self._db.read() as connection:
            rows = connection.execute(
                select(
                    EnvironmentRow.role,
                    EnvironmentRow.index,
                    EnvironmentRow.number,
                    EnvironmentRow.digest,
                ).where(EnvironmentRow.run == uid, EnvironmentRow.slot < _NEWEST)
            )
            newest: dict[InstanceKey, tuple[int, str]] = {}
            for role, index, number, digest in rows:
                key = InstanceKey(role, index)
                newest[key] = max(newest.get(key, (0, "")), (number, digest))
            if not newest:
                return ""
            return digest_of(
                "\n".join(f"{key} {digest}" for key, (_, digest) in sorted(newest.items()))
            )

    def ends(
        self, uid: str, *, known: Mapping[InstanceKey, str]
    ) -> Mapping[InstanceKey, EnvironmentRecord]:
        """Return the newest exit record of each instance, but for those whose digest is `known`."""
        with self._db.read() as connection:
            at = select(EnvironmentRow.role, EnvironmentRow.index, EnvironmentRow.digest).where(
                EnvironmentRow.run == uid, EnvironmentRow.slot == _EXIT
            )
            news = {
                key
                for role, index, digest in connection.execute(at)
                if known.get(key := InstanceKey(role, index)) != digest
            }
            return _newest(connection, uid, news, EnvironmentRow.slot == _EXIT)

    def newest(
        self, uid: str, keys: Collection[InstanceKey]
    ) -> Mapping[InstanceKey, EnvironmentRecord]:
        """Return the newest record of each of these instances' environments."""
        with self._db.read() as connection:
            return _newest(connection, uid, keys, EnvironmentRow.slot < _NEWEST)

    def last_two(self, uid: str) -> Mapping[InstanceKey, Sequence[EnvironmentRecord]]:
        """Return the newest two records of every instance, oldest first."""
        with self._db.read() as connection:
            return _last_two(connection, uid)

    def software(self, uid: str) -> Mapping[InstanceKey, Mapping[str, Any]]:
        """Software of each instance that has reported it: its Python, and that Python's packages."""
        with self._db.read() as connection:
            rows = connection.execute(
                select(EnvironmentRow.role, EnvironmentRow.index, EnvironmentRow.body).where(
                    EnvironmentRow.run == uid, EnvironmentRow.slot == _SOFTWARE
                )
            )
            return {InstanceKey(role, index): json.loads(body) for role, index, body in rows}

    def of_run(self, uid: str) -> Mapping[InstanceKey, Sequence[EnvironmentRecord]]:
        """Return the records of every instance, oldest first."""
        with self._db.read() as connection:
            rows = connection.execute(
                select(*_RECORD)
                .where(EnvironmentRow.run == uid, EnvironmentRow.slot != _SOFTWARE)
                .order_by(EnvironmentRow.role, EnvironmentRow.index, EnvironmentRow.number)
            )
            found: dict[InstanceKey, dict[int, EnvironmentRecord]] = {}
            for key, record in _records(rows):
                found.setdefault(key, {})[record.number] = record
            return {key: [*records.values()] for key, records in found.items()}


def _records(
    rows: Iterable[tuple[str, int, int, str, str]],
) -> Iterator[tuple[InstanceKey, EnvironmentRecord]]:
    """Read what `select(*_RECORD)` found."""
    for role, index, number, digest, body in rows:
        record = EnvironmentRecord(number=number, digest=digest, body=json.loads(body))
        yield InstanceKey(role, index), record


def _newest(
    connection: Connection, uid: str, keys: Collection[InstanceKey], where: ColumnElement[bool]
) -> Mapping[InstanceKey, EnvironmentRecord]:
    if not keys:
        return {}
    rows = connection.execute(
        select(*_RECORD)
        .where(
            EnvironmentRow.run == uid, EnvironmentRow.role.in_({role for role, _ in keys}), where
        )
        .order_by(EnvironmentRow.number)
    )
    return dict(_records(row for row in rows if InstanceKey(*row[:2]) in keys))


def _numbered(
    connection: Connection, uid: str, numbers: Mapping[InstanceKey, int]
) -> Mapping[InstanceKey, Mapping[str, Any]]:
    """Return the record of each of these instances that has its number; most are in step, so slots are few."""
    slots: dict[int, set[InstanceKey]] = {}
    for key, number in numbers.items():
        if number:
            slots.setdefault(number % _NEWEST, set()).add(key)
    if not slots:
        return {}
    rows = connection.execute(
        select(
            EnvironmentRow.role, EnvironmentRow.index, EnvironmentRow.slot, EnvironmentRow.body
        ).where(
            EnvironmentRow.run == uid,
            or_(
                *(
                    (EnvironmentRow.slot == slot)
                    & EnvironmentRow.role.in_({key.role for key in keys})
                    & EnvironmentRow.index.in_({key.index for key in keys})
                    for slot, keys in slots.items()
                )
            ),
        )
    )
    return {
        key: json.loads(body)
        for role, index, slot, body in rows
        if (key := InstanceKey(role, index)) in slots[slot]
    }


def _last_two(
    connection: Connection, uid: str
) -> Mapping[InstanceKey, Sequence[EnvironmentRecord]]:
    """Return the newest two records of every instance, oldest first."""
    rolling = [EnvironmentRow.run == uid, EnvironmentRow.slot < _NEWEST]
    last = (
        select(
            EnvironmentRow.role, EnvironmentRow.index, func.max(EnvironmentRow.number).label("last")
        )
        .where(*rolling)
        .group_by(EnvironmentRow.role, EnvironmentRow.index)
        .subquery()
    )
    rows = connection.execute(
        select(*_RECORD)
        .join(
            last, (EnvironmentRow.role == last.c.role) & (EnvironmentRow.index == last.c["index"])
        )
        .where(*rolling, EnvironmentRow.number > last.c.last - 2)
        .order_by(EnvironmentRow.number)
    )
    found: dict[InstanceKey, list[EnvironmentRecord]] = {}
    for key, record in _records(rows):
        found.setdefault(key, []).append(record)
    return found


def _slots(
    connection: Connection, uid: str, keys: Collection[InstanceKey]
) -> Mapping[InstanceKey, Mapping[int, tuple[int, str]]]:
    """Return (role, index) -> slot -> (number, digest)."""
    rows = connection.execute(
        select(
            EnvironmentRow.role,
            EnvironmentRow.index,
            EnvironmentRow.slot,
            EnvironmentRow.number,
            EnvironmentRow.digest,
        ).where(EnvironmentRow.run == uid, EnvironmentRow.role.in_({role for role, _ in keys}))
    )
    found: dict[InstanceKey, dict[int, tuple[int, str]]] = {}
    for role, index, slot, number, digest in rows:
        found.setdefault(InstanceKey(role, index), {})[slot] = (number, digest)
    return found


def _object(line: str) -> dict[str, Any] | None:
    if len(line) > LONGEST_SOFTWARE:
        return None
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(line)
        if isinstance(found, dict) and (len(line) <= LONGEST_LINE or found.get("on") == "software"):
            return found
    return None
