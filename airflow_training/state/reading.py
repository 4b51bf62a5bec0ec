"""The batched read of many runs. Remembers what it decoded until the run's revision changes.

A triggerer reads its runs every two seconds and mostly nothing has changed: then one query is all.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from airflow_training.control.model import Ledger
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.state import addresses, ledger, run_lookup, runs
from airflow_training.state.codec import from_json
from airflow_training.state.models import LeaseRow, RunRow
from airflow_training.state.records import Driver, Lease, RunState

__all__ = ["Reader"]

_REMEMBERED_INSTANCES = 50_000
"""Ledger entries kept decoded, over all runs: some 50 MB at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunSnapshot:
    version: tuple[float, int]
    """(submitted at, revision): a run that was pruned and made again starts a new count."""
    job_revision: int
    job: ResolvedJob
    ledger: Ledger
    addresses: addresses.Book


class Reader:
    """Reads runs; safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._decoded: OrderedDict[str, _RunSnapshot] = OrderedDict()
        self._instances = 0

    def read(self, connection: Connection, uids: Sequence[str]) -> Mapping[str, RunState]:
        """Return the runs that exist, in a constant number of queries of one moment."""
        rows = {
            row.uid: row
            for row in connection.execute(
                run_lookup.select_runs()
                .add_columns(
                    RunRow.entry,
                    RunRow.revision,
                    RunRow.job_revision,
                    RunRow.last_seq,
                    LeaseRow.owner,
                    LeaseRow.generation,
                    LeaseRow.expires_at,
                )
                .join(LeaseRow, LeaseRow.run == RunRow.uid)
                .where(RunRow.uid.in_(list(dict.fromkeys(uids))))
            )
        }
        decoded = self._decode(connection, rows)
        return {
            uid: RunState(
                record=run_lookup.record_of(rows[uid]),
                job=decoded[uid].job,
                ledger=decoded[uid].ledger,
                lease=_lease(rows[uid]),
                last_seq=rows[uid].last_seq,
                addresses=decoded[uid].addresses,
                driver=Driver(owner=rows[uid].owner, until=rows[uid].expires_at),
            )
            for uid in uids
            if uid in rows
        }

    def _decode(
        self, connection: Connection, rows: Mapping[str, Any]
    ) -> Mapping[str, _RunSnapshot]:
        with self._lock:
            known = {uid: self._decoded[uid] for uid in rows if uid in self._decoded}
            for uid in known:
                self._decoded.move_to_end(uid)
        stale = [
            uid
            for uid, row in rows.items()
            if uid not in known or known[uid].version != _version(row)
        ]
        if not stale:
            return known
        ledgers = ledger.load(connection, {uid: rows[uid].entry for uid in stale})
        books = addresses.fixed(connection, stale)
        jobs = {
            uid: known[uid].job
            for uid in stale
            if uid in known
            and known[uid].version[0] == rows[uid].submitted_at
            and known[uid].job_revision == rows[uid].job_revision
        }
        missing = [uid for uid in stale if uid not in jobs]
        if missing:
            bodies = runs.bodies(connection, missing)
            jobs.update({uid: from_json(ResolvedJob, body) for uid, body in bodies.items()})
        fresh = {
            uid: _RunSnapshot(
                version=_version(rows[uid]),
                job_revision=rows[uid].job_revision,
                job=jobs[uid],
                ledger=ledgers[uid],
                addresses=books.get(uid, {}),
            )
            for uid in stale
        }
        self._remember(fresh)
        return {**known, **fresh}

    def _remember(self, fresh: Mapping[str, _RunSnapshot]) -> None:
        with self._lock:
            for uid, each in fresh.items():
                before = self._decoded.pop(uid, None)
                self._instances += len(each.ledger.instances)
                self._instances -= 0 if before is None else len(before.ledger.instances)
                self._decoded[uid] = each
            while self._instances > _REMEMBERED_INSTANCES and len(self._decoded) > 1:
                _, oldest = self._decoded.popitem(last=False)
                self._instances -= len(oldest.ledger.instances)


def _version(row: Any) -> tuple[float, int]:
    return row.submitted_at, row.revision


def _lease(row: Any) -> Lease | None:
    if not row.owner:
        return None
    return Lease(run=row.uid, owner=row.owner, generation=row.generation, expires_at=row.expires_at)
