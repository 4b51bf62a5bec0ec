"""Which run may start next: priority, then first come. Holds runs back, never starts anything.

Strict order: a run starts only if everything that waits before it keeps its place. Those that run
and those before it have a slot each of `max_running_jobs`. Of what is free on the same runtime,
those before it and those that have started but are not complete have what they want. So a small
late run cannot starve a large early one, and fills the gaps that it leaves.
A run counts as running from its start until the job is over and nothing of it is alive, also
while nobody holds its lease. A run that nobody waits for (its holder died in the queue) keeps its
number but holds nobody back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, and_, delete, func, insert, not_, or_, select, update

from airflow_training.control.model import TERMINAL_JOB_STATES
from airflow_training.state.database import StorePart
from airflow_training.state.models import MetaRow, QueueRow, RunRow
from airflow_training.state.run_lookup import unknown_run

__all__ = ["PATIENCE_SECONDS", "RunQueue", "enqueue", "leave"]

PATIENCE_SECONDS = 10.0
"""Who has not asked to start for this long is not waiting any more."""

_TERMINAL = RunRow.state.in_(sorted(TERMINAL_JOB_STATES))
# The row of a run that is over and drained is gone (`leave`).
_TAKES_A_PLACE = and_(QueueRow.started_at.is_not(None), not_(and_(_TERMINAL, RunRow.tombstone)))
_VISIBLE = frozenset({"Running", *TERMINAL_JOB_STATES})
"""States in which a runtime sees all that a started run has of its machine; before that (and when
it is paused or restarts) some of its processes do not exist now, but will."""


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
    ) -> bool:
        """Take the run off the queue when it is its turn (priority, then first come).

        True also when it has started before, or never had to queue; False for a tombstoned run.
        `wants`/`free`: resources of a local machine (cpu, memory) that hold the run back. `free`
        is what the runtime sees unused now; what runs that have just started on the same
        `runtime` are about to take is subtracted here. What it does not name holds nothing back.
        That the job is larger than the whole machine is checked by the caller. Ask again at least every few seconds: whoever is silent for
        `PATIENCE_SECONDS` does not hold back the runs behind it.
        """
        with self._db.write() as connection:
            now = self._db.now(connection)
            _one_at_a_time(connection)
            run = connection.execute(
                select(RunRow.tombstone, QueueRow.priority, QueueRow.ticket, QueueRow.started_at)
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
            ahead = connection.execute(
                select(QueueRow.runtime, QueueRow.wants)
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
            ).all()
            running = _running(connection)
            if max_running_jobs and len(running) + len(ahead) >= max_running_jobs:
                return False
            claims = [*ahead, *(row for row in running if row.state not in _VISIBLE)]
            claimed = [row.wants for row in claims if row.runtime == runtime]
            if not _fits(claimed, wants=wants, free=free):
                return False
            connection.execute(update(QueueRow).where(QueueRow.run == uid).values(started_at=now))
            return True


def _fits(
    claimed: Sequence[str | None],
    *,
    wants: Mapping[str, float] | None,
    free: Mapping[str, float] | None,
) -> bool:
    """Return whether what is free holds this run beside what others have claimed of it."""
    if not wants or free is None:
        return True
    if None in claimed:  # enqueued a moment ago; what it wants is known when it first asks
        return False
    reserved = [json.loads(each or "{}") for each in claimed]
    return all(
        amount + sum(each.get(name, 0.0) for each in reserved) <= free[name]
        for name, amount in wants.items()
        if name in free  # what the machine does not count cannot hold anything back
    )


def _running(connection: Connection) -> Sequence[Any]:
    """Return (runtime, wants, state) of every run that started and is not over."""
    return connection.execute(
        select(QueueRow.runtime, QueueRow.wants, RunRow.state)
        .join(RunRow, RunRow.uid == QueueRow.run)
        .where(_TAKES_A_PLACE)
    ).all()


def _one_at_a_time(connection: Connection) -> None:
    """Lock the queue until the end of the transaction: two runs never take one place."""
    connection.execute(update(MetaRow).where(MetaRow.name == "queue").values(value=MetaRow.value))
