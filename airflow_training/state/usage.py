"""What each attempt of each instance used: rows from ledger changes, sums from rows. No policy.

A row opens when an instance has started and is closed by its end, by the attempt after it, or by
the end of the job. An open row counts until now, so sums grow continuously; as rows are written
with the ledger, a holder that dies leaves them open and the next one closes them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from sqlalchemy import Connection, and_, bindparam, case, func, select, update

from airflow_training.control.attempts import AttemptId
from airflow_training.control.model import TERMINAL_JOB_STATES, InstanceEntry, KeptInstance
from airflow_training.control.usage import AttemptUsage, ResourceUsage, is_gpu
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.quantities import bytes_text, parse_quantity
from airflow_training.state.database import StorePart, upsert
from airflow_training.state.models import RunRow, UsageRow, table_of
from airflow_training.state.records import UsageSpan

__all__ = ["UsageRecords", "close_all", "of_runs", "record", "record_kept", "totals"]

Change = tuple[InstanceEntry | None, InstanceEntry | None]
"""The ledger's entry before and after; None: there was none, there is none."""

_CLOSE_ALL = (
    update(UsageRow)
    .where(UsageRow.run == bindparam("uid"), UsageRow.finished_at.is_(None))
    .values(finished_at=bindparam("now"))
)


def record(
    connection: Connection,
    uid: str,
    *,
    changes: Sequence[Change],
    resources: Mapping[str, Mapping[str, str]] | None,
    now: float,
) -> None:
    """Open and close rows for changed ledger entries."""
    rows = [
        {
            "run": uid,
            "role": entry.role,
            "index": entry.index,
            "epoch": entry.epoch,
            "job_attempt": entry.job_attempt,
            "attempt": entry.attempt,
            "started_at": started_at,
            "finished_at": None if finished_at is None else max(started_at, finished_at),
            "resources": json.dumps(_asked(entry, (resources or {}).get(entry.role, {}))),
        }
        for entry, started_at, finished_at in _spans(changes, now=now)
    ]
    # A commit that was told no resources must not empty what an earlier one recorded.
    columns = ("started_at", "finished_at") + (() if resources is None else ("resources",))
    upsert(connection, table_of(UsageRow), rows, update=columns)


def _asked(entry: InstanceEntry, resources: Mapping[str, str]) -> Mapping[str, str]:
    """Return what an attempt asked for: its role's resources, and more memory where others ran out of it."""
    raised = entry.memory
    if raised is None or entry.attempt < raised.since_attempt:
        return dict(resources)
    return {**resources, "memory": bytes_text(raised.bytes)}


def _spans(
    changes: Sequence[Change], *, now: float
) -> Iterator[tuple[InstanceEntry, float, float | None]]:
    for before, after in changes:
        replaced = before is not None and (after is None or _attempt(before) != _attempt(after))
        if before is not None and replaced and before.started_at is not None:
            ended = before.finished_at
            yield before, before.started_at, now if ended is None else ended
        if after is not None and after.started_at is not None:
            ended = after.finished_at
            if ended is None and after.state in {"succeeded", "failed", "stopped"}:
                ended = after.last_transition_at  # it vanished, and nobody saw when
            yield after, after.started_at, ended


def _attempt(entry: InstanceEntry) -> tuple[int, int, int]:
    return entry.epoch, entry.job_attempt, entry.attempt


def close_all(connection: Connection, uid: str, *, now: float) -> None:
    """Close what is open: nothing of the run is alive any more."""
    connection.execute(_CLOSE_ALL, {"uid": uid, "now": now})


def record_kept(
    connection: Connection,
    uid: str,
    before: KeptInstance | None,
    after: KeptInstance | None,
    *,
    now: float,
) -> None:
    """Count an instance that stays until it goes: then its row ends, be that in the future."""
    kept = after or before
    if before == after or kept is None or kept.state not in ("stays", "ended"):
        return
    until = kept.until if after is not None else min(now, kept.until)
    connection.execute(
        update(UsageRow)
        .where(
            UsageRow.run == uid,
            UsageRow.role == kept.role,
            UsageRow.index == kept.index,
            UsageRow.epoch == kept.epoch,
            UsageRow.job_attempt == kept.job_attempt,
            UsageRow.attempt == kept.attempt,
        )
        .values(finished_at=until)
    )


def _record_spares(
    connection: Connection,
    uid: str,
    held: Mapping[str, Mapping[int, float]],
    resources: Mapping[str, Mapping[str, str]],
    *,
    now: float,
) -> None:
    """Open a row for each spare that is new, with its number below 0 as index, and close those of which nothing is left."""
    run = connection.execute(select(RunRow.state).where(RunRow.uid == uid)).first()
    over = run is None or run.state in TERMINAL_JOB_STATES  # nothing would close what is opened now
    for role, since in held.items():
        left = {} if over else since
        own = and_(UsageRow.run == uid, UsageRow.role == role, UsageRow.index < 0)
        gone = UsageRow.index.not_in([-number for number in left])
        connection.execute(
            update(UsageRow)
            .where(own, gone, UsageRow.finished_at.is_(None))
            .values(finished_at=now)
        )
        rows = [
            {
                "run": uid,
                "role": role,
                "index": -number,
                "epoch": 0,
                "job_attempt": 0,
                "attempt": 0,
                "started_at": at,
                "finished_at": None,
                "resources": json.dumps(dict(resources.get(role, {}))),
            }
            for number, at in left.items()
        ]
        upsert(connection, table_of(UsageRow), rows, update=("finished_at",))


def of_runs(
    connection: Connection, uids: Collection[str], *, now: float
) -> Mapping[str, Sequence[AttemptUsage]]:
    """Usage of each attempt of the runs, oldest first; runs without any are left out."""
    rows = connection.execute(
        select(
            UsageRow.run,
            UsageRow.role,
            UsageRow.index,
            UsageRow.epoch,
            UsageRow.job_attempt,
            UsageRow.attempt,
            UsageRow.started_at,
            UsageRow.finished_at,
            UsageRow.resources,
            RunRow.finished_at.label("over"),
        )
        .join(RunRow, RunRow.uid == UsageRow.run)
        .where(UsageRow.run.in_(list(uids)))
        .order_by(UsageRow.started_at, UsageRow.role, UsageRow.index)
    )
    found: dict[str, list[AttemptUsage]] = {}
    for row in rows:
        until = max(now, row.over or now)  # the clock of a simulation is ahead
        found.setdefault(row.run, []).append(
            AttemptUsage(
                # a tuple has a method of the name of its third column
                key=InstanceKey(row.role, row[2]),
                attempt_id=AttemptId(row.epoch, row.job_attempt, row.attempt),
                started_at=row.started_at,
                finished_at=None
                if row.finished_at is None or row.finished_at > until
                else row.finished_at,
                resources=json.loads(row.resources),
                seconds=max(0.0, min(row.finished_at or until, until) - row.started_at),
            )
        )
    return found


class UsageRecords(StorePart):
    """What attempts of instances used."""

    def of_run(self, uid: str, *, spares: bool = False) -> Sequence[AttemptUsage]:
        """Usage of each attempt of the run, oldest first; of a living one until now.

        `spares`: those of its warm spares too, whose indexes are below 0.
        """
        with self._db.read() as connection:
            found = of_runs(connection, [uid], now=self._db.now(connection)).get(uid, [])
        return [each for each in found if spares or each.key.index >= 0]

    def record_spares(
        self,
        uid: str,
        held: Mapping[str, Mapping[int, float]],
        resources: Mapping[str, Mapping[str, str]],
    ) -> None:
        """Count spares as instances of their role; `held`: role -> the numbers of those that have a place -> since when."""
        with self._db.write() as connection:
            now = self._db.now(connection)
            _record_spares(connection, uid, held, resources, now=now)

    def between(
        self,
        start: float,
        end: float,
        *,
        sources: Collection[str] | None = None,
        dag_ids: Collection[str] | None = None,
    ) -> Sequence[UsageSpan]:
        """Return attempts of instances that ran at some time between, of runs with these keys."""
        with self._db.read() as connection:
            now = self._db.now(connection)
            known = func.coalesce(UsageRow.finished_at, RunRow.finished_at, now)
            ended = case(
                (known > now, now), else_=known
            )  # what stays for a look inside will end later
            question = (
                select(
                    UsageRow.run,
                    RunRow.dag_id,
                    RunRow.job,
                    RunRow.submitted_by,
                    UsageRow.role,
                    UsageRow.resources,
                    UsageRow.started_at,
                    ended.label("finished_at"),
                )
                .join(RunRow, RunRow.uid == UsageRow.run)
                .where(UsageRow.started_at < end, ended > start)
            )
            if sources is not None:
                question = question.where(RunRow.source.in_(list(sources)))
            if dag_ids is not None:
                question = question.where(RunRow.dag_id.in_(list(dag_ids)))
            asked: dict[str, Mapping[str, str]] = {}
            found = []
            for row in connection.execute(question):
                values = row._asdict()
                text = values.pop("resources")
                if text not in asked:
                    asked[text] = json.loads(text)
                found.append(UsageSpan(**values, resources=asked[text]))
            return found


def totals(rows: Iterable[ResourceUsage]) -> Mapping[str, float]:
    """Return `cpu_seconds`, `memory_byte_seconds`, `gpu_seconds` and `instance_seconds` of rows.

    GPUs are what `is_gpu` takes for one.
    """
    sums = {
        "instance_seconds": 0.0,
        "cpu_seconds": 0.0,
        "memory_byte_seconds": 0.0,
        "gpu_seconds": 0.0,
    }
    names = {"cpu": "cpu_seconds", "memory": "memory_byte_seconds"}
    for row in rows:
        sums["instance_seconds"] += row.seconds
        for name, amount in row.resources.items():
            if (key := "gpu_seconds" if is_gpu(name) else names.get(name)) is not None:
                sums[key] += parse_quantity(amount) * row.seconds
    return sums
