"""Which run may start next: priority, then first come. Holds runs back, never starts anything.

Strict order: a run starts only if everything that waits before it keeps its place. Those that run
and those before it have a slot each of `max_running_jobs`. Of what is free on the same runtime,
those before it and those that have started but are not complete have what they want. So a small
late run cannot starve a large early one, and fills the gaps that it leaves.
A run counts as running from its start until the job is over and nothing of it is alive, also
while nobody holds its lease, unless somebody has seen that nothing of it lives (`give_back`): then it
waits again, under its old number. A run that nobody waits for (its holder died in the queue) keeps its
number but holds nobody back.

The first in line may preempt: runs of a lower priority are asked to give up their places, as few as are
enough, and wait again under their old numbers (`give_up`) once nothing of them is alive.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, and_, delete, exists, func, insert, not_, or_, select, update

from airflow_training.control.model import TERMINAL_JOB_STATES
from airflow_training.control.queueing import QueueEntry, StartClaim, choose_preempted
from airflow_training.control.reasons import QUEUE_PREEMPTED
from airflow_training.state.database import StorePart
from airflow_training.state.history import add_request
from airflow_training.state.models import (
    LeaseRow,
    MetaRow,
    QueueRow,
    RequestRow,
    RunRow,
    UsageRow,
)
from airflow_training.state.run_lookup import unknown_run

__all__ = ["PATIENCE_SECONDS", "QueueStanding", "RunQueue", "SlotHolder", "enqueue", "leave"]

PATIENCE_SECONDS = 10.0
"""Who has not asked to start for this long is not waiting any more."""
_ENDING_SECONDS = 60.0
"""How long the instances of a run that is over may take to end, before another run is asked for its place instead: twice
the usual grace."""

_TERMINAL = RunRow.state.in_(sorted(TERMINAL_JOB_STATES))
# The row of a run that is over and drained is gone (`leave`).
_TAKES_A_PLACE = and_(QueueRow.started_at.is_not(None), not_(and_(_TERMINAL, RunRow.tombstone)))
_COLUMNS = (
    QueueRow.run,
    QueueRow.priority,
    QueueRow.ticket,
    QueueRow.started_at,
    QueueRow.runtime,
    QueueRow.wants,
    RunRow.state,
    RunRow.source,
    RunRow.dag_id,
    RunRow.run_id,
)


def enqueue(connection: Connection, uid: str, *, priority: int, runtime: str, now: float) -> None:
    """Put a run at the end of those with its priority; one that is there keeps its place."""
    _one_at_a_time(connection)
    known = select(QueueRow.run).where(QueueRow.run == uid)
    if connection.execute(known).first() is not None:
        return
    last = connection.execute(select(func.coalesce(func.max(QueueRow.ticket), 0))).scalar_one()
    row = {
        "run": uid,
        "priority": priority,
        "ticket": last + 1,
        "runtime": runtime,
        "wants": None,
        "polled_at": now,
        "started_at": None,
    }
    connection.execute(insert(QueueRow), row)


def leave(connection: Connection, uid: str) -> None:
    """Free the place of a run that is over."""
    connection.execute(delete(QueueRow).where(QueueRow.run == uid))


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotHolder:
    """A run that takes a place, and who drives it."""

    uid: str
    runtime: str
    owner: str
    """Of its newest lease; empty: it was given up, or nobody ever held one."""
    generation: int
    expires_at: float
    started_at: float
    now: float
    """When this was read; all by the store's clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStanding:
    """Who is before a run that waits. The ids are of runs of the same DAG, or of the command line too."""

    running: int
    running_ids: Sequence[str]
    waiting: int
    waiting_ids: Sequence[str]
    kept: int = 0
    """Runs that have ended, of which an instance stays for a look inside and keeps its place."""
    kept_ids: Sequence[str] = ()


class RunQueue(StorePart):
    """The runs that wait for their turn."""

    def try_start(
        self,
        uid: str,
        *,
        max_running_jobs: int,
        runtime: str,
        free: Mapping[str, float] | None = None,
        wants: Mapping[str, float] | None = None,
        preempts: bool = False,
    ) -> bool:
        """Take the run off the queue when it is its turn (priority, then first come).

        True also when it has started before, or never had to queue; False for a tombstoned run.
        `wants`/`free`: resources of a local machine (cpu, memory) that hold the run back. `free`
        is what the runtime sees unused now; what runs that have just started on the same
        `runtime` are about to take is subtracted here. What it does not name holds nothing back.
        That the job is larger than the whole machine is checked by the caller.
        `preempts`: where it has to wait, and nobody waits before it, runs of a lower priority are
        asked for their places. Ask again at least every few seconds: whoever is silent for
        `PATIENCE_SECONDS` does not hold back the runs behind it.
        """
        with self._db.write() as connection:
            now = self._db.now(connection)
            _one_at_a_time(connection)
            run = connection.execute(
                select(
                    RunRow.tombstone,
                    RunRow.run_id,
                    QueueRow.priority,
                    QueueRow.ticket,
                    QueueRow.started_at,
                )
                .join(QueueRow, QueueRow.run == RunRow.uid, isouter=True)
                .where(RunRow.uid == uid)
            ).first()
            if run is None:
                raise unknown_run(connection, uid)
            tombstone, priority, started_at = run.tombstone, run.priority, run.started_at
            ticket: int | None = run.ticket
            if tombstone:
                return False
            # it never had to queue, or has started already
            if ticket is None or started_at is not None:
                return True
            connection.execute(
                update(QueueRow)
                .where(QueueRow.run == uid)
                .values(polled_at=now, runtime=runtime, wants=json.dumps(dict(wants or {})))
            )
            ahead = _ahead(connection, priority=priority, ticket=ticket, now=now)
            running = [_entry(row) for row in _running(connection)]
            claim = StartClaim(
                priority=priority,
                slots=max_running_jobs,
                ahead=[_entry(row) for row in ahead],
                runtime=runtime,
                wants=wants or {},
                free=free,
            )
            if not claim.is_met(running):
                if preempts and not ahead:
                    why = f"makes room for run {run.run_id}, whose priority is {priority}"
                    _preempt(connection, claim, running, why=why, now=now)
                return False
            connection.execute(update(QueueRow).where(QueueRow.run == uid).values(started_at=now))
            return True

    def give_up(self, uid: str, *, generation: int) -> bool:
        """Have a run of which nothing lives wait again, as who drives it wants; False for another lease than the newest."""
        with self._db.write() as connection:
            now = self._db.now(connection)
            _one_at_a_time(connection)
            driven = exists().where(LeaseRow.run == uid, LeaseRow.generation == generation)
            changed = connection.execute(
                update(QueueRow)
                .where(QueueRow.run == uid, driven)
                .values(started_at=None, polled_at=now)
            )
            return changed.rowcount == 1

    def holders(self) -> Sequence[SlotHolder]:
        """Return the runs that take a place."""
        with self._db.read() as connection:
            now = self._db.now(connection)
            rows = connection.execute(
                select(
                    QueueRow.run,
                    QueueRow.runtime,
                    QueueRow.started_at,
                    LeaseRow.owner,
                    LeaseRow.generation,
                    LeaseRow.expires_at,
                )
                .join(RunRow, RunRow.uid == QueueRow.run)
                .join(LeaseRow, LeaseRow.run == QueueRow.run)
                .where(_TAKES_A_PLACE)
            ).all()
        return [
            SlotHolder(
                uid=row.run,
                runtime=row.runtime,
                owner=row.owner,
                generation=row.generation,
                expires_at=row.expires_at,
                started_at=row.started_at,
                now=now,
            )
            for row in rows
        ]

    def give_back(self, holder: SlotHolder) -> bool:
        """Have a run that nobody drives, and of which nothing lives, wait again; False where somebody has taken it up."""
        with self._db.write() as connection:
            _one_at_a_time(connection)
            untouched = exists().where(
                LeaseRow.run == holder.uid,
                LeaseRow.owner == holder.owner,
                LeaseRow.generation == holder.generation,
                LeaseRow.expires_at == holder.expires_at,
            )
            changed = connection.execute(
                update(QueueRow)
                .where(QueueRow.run == holder.uid, QueueRow.started_at.is_not(None), untouched)
                # nobody waits for it now
                .values(started_at=None, polled_at=0.0)
            )
            return changed.rowcount == 1

    def standing(self, uid: str) -> QueueStanding:
        """Return who is before a run that waits."""
        with self._db.read() as connection:
            now = self._db.now(connection)
            own = connection.execute(
                select(RunRow.source, RunRow.dag_id, QueueRow.priority, QueueRow.ticket)
                .join(QueueRow, QueueRow.run == RunRow.uid)
                .where(RunRow.uid == uid)
            ).first()
            if own is None:
                raise unknown_run(connection, uid)
            running = _running(connection)
            ahead = _ahead(connection, priority=own.priority, ticket=own.ticket, now=now)
            kept = _kept(connection, now=now)
        # whoever may see a run need not be allowed to see those of other DAGs
        mine = (own.source, own.dag_id)
        return QueueStanding(
            running=len(running),
            running_ids=sorted(e.run_id for e in running if (e.source, e.dag_id) == mine),
            waiting=len(ahead),
            waiting_ids=[e.run_id for e in ahead if (e.source, e.dag_id) == mine],
            kept=len(kept),
            kept_ids=sorted(e.run_id for e in kept if (e.source, e.dag_id) == mine),
        )


def _ahead(connection: Connection, *, priority: int, ticket: int, now: float) -> Sequence[Any]:
    """Return the runs that wait before one with these numbers, the first in line first."""
    return connection.execute(
        select(*_COLUMNS)
        .join(RunRow, RunRow.uid == QueueRow.run)
        .where(
            QueueRow.started_at.is_(None),
            not_(RunRow.tombstone),
            not_(_TERMINAL),
            QueueRow.polled_at > now - PATIENCE_SECONDS,
            or_(
                QueueRow.priority > priority,
                and_(QueueRow.priority == priority, QueueRow.ticket < ticket),
            ),
        )
        .order_by(QueueRow.priority.desc(), QueueRow.ticket)
    ).all()


def _kept(connection: Connection, *, now: float) -> Sequence[Any]:
    """Return the runs that are over of which something stays: what they use ends in the future."""
    return connection.execute(
        select(RunRow.source, RunRow.dag_id, RunRow.run_id)
        .join(UsageRow, UsageRow.run == RunRow.uid)
        .where(UsageRow.finished_at > now, _TERMINAL)
        .distinct()
    ).all()


def _preempt(
    connection: Connection,
    claim: StartClaim,
    running: Sequence[QueueEntry],
    *,
    why: str,
    now: float,
) -> None:
    """Ask runs of a lower priority for their places, where that is enough."""
    ledgers = _ledgers(connection, running)
    leaving = {run.uid for run in running if _is_leaving(connection, run, ledgers[run.uid])}
    finishing = {run.uid for run in running if _is_finishing(run.state, ledgers[run.uid], now=now)}
    for run in choose_preempted(claim, running, leaving=leaving, finishing=finishing):
        add_request(
            connection,
            run.uid,
            "preempt",
            role="",
            replicas=None,
            reason=why,
            by="queue",
            seen=None,
            key="",
            event=None,
            now=now,
        )


def _ledgers(
    connection: Connection, running: Sequence[QueueEntry]
) -> Mapping[str, Mapping[str, Any]]:
    """Return the job's own line of each run's ledger."""
    rows = connection.execute(
        select(RunRow.uid, RunRow.entry).where(RunRow.uid.in_([run.uid for run in running]))
    )
    return {row.uid: json.loads(row.entry) for row in rows}


def _is_finishing(state: str, entry: Mapping[str, Any], *, now: float) -> bool:
    """Return whether a run ends by itself: it has what it trains for, or is over and its instances are about to end.

    One whose instances do not end (on a node that is lost) counts as staying after a while.
    """
    if state not in TERMINAL_JOB_STATES:
        return bool(entry.get("stop"))
    ended = entry.get("finished_at") or 0.0
    return bool(now - ended < _ENDING_SECONDS)


def _is_leaving(connection: Connection, run: QueueEntry, entry: Mapping[str, Any]) -> bool:
    """Return whether a run was asked for its place and has not given it up yet."""
    if run.state in ("Paused", "Queued"):
        return bool(entry.get("reason") == QUEUE_PREEMPTED)
    asked = select(RequestRow.id).where(
        RequestRow.run == run.uid,
        RequestRow.kind == "preempt",
        RequestRow.id > entry.get("seen_request", 0),
    )
    return connection.execute(asked).first() is not None


def _entry(row: Any) -> QueueEntry:
    return QueueEntry(
        uid=row.run,
        priority=row.priority,
        ticket=row.ticket,
        runtime=row.runtime,
        wants=None if row.wants is None else json.loads(row.wants),
        state=row.state,
        started_at=row.started_at or 0.0,
    )


def _running(connection: Connection) -> Sequence[Any]:
    """Return every run that started and is not over."""
    return connection.execute(
        select(*_COLUMNS).join(RunRow, RunRow.uid == QueueRow.run).where(_TAKES_A_PLACE)
    ).all()


def _one_at_a_time(connection: Connection) -> None:
    """Lock the queue until the end of the transaction: two runs never take one place."""
    connection.execute(update(MetaRow).where(MetaRow.name == "queue").values(value=MetaRow.value))
