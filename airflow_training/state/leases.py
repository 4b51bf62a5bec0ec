"""Who may write a run's ledger: owner, generation, end by the store's clock. Writes only leases.

`fence` is the one guard of everything a holder writes: in the same transaction, it locks the lease
row and finds it only while the generation is still the holder's.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, insert, or_, select, tuple_, update

from airflow_training.errors import LeaseLost
from airflow_training.state.models import LeaseRow
from airflow_training.state.records import Driver, Lease

__all__ = ["acquire", "add", "driver", "fence", "find", "give_up", "renew_all"]

_AT_ONCE = 200
"""Leases per statement: databases bound the number of parameters."""
_FENCE = (
    update(LeaseRow)
    .where(LeaseRow.run == bindparam("uid"), LeaseRow.generation == bindparam("mine"))
    .values(generation=LeaseRow.generation)
)


def add(connection: Connection, uid: str) -> None:
    """Give a new run a lease that nobody holds."""
    connection.execute(
        insert(LeaseRow), {"run": uid, "owner": "", "generation": 0, "expires_at": 0}
    )


def find(connection: Connection, uid: str) -> Lease | None:
    """Return the newest lease, also when it has run out; None where nobody ever held one."""
    row = connection.execute(
        select(LeaseRow.owner, LeaseRow.generation, LeaseRow.expires_at).where(
            LeaseRow.run == uid, LeaseRow.owner != ""
        )
    ).first()
    return (
        None if row is None else Lease(run=uid, owner=row[0], generation=row[1], expires_at=row[2])
    )


def driver(connection: Connection, uid: str) -> Driver:
    """Return who drives a run, or did last."""
    row = connection.execute(
        select(LeaseRow.owner, LeaseRow.expires_at).where(LeaseRow.run == uid)
    ).first()
    return Driver() if row is None else Driver(owner=row.owner, until=row.expires_at)


def acquire(
    connection: Connection,
    uid: str,
    *,
    owner: str,
    seconds: float,
    dead_owners: Sequence[str],
    now: float,
) -> Lease | None:
    """Take a lease that is free, over, dead or already ours; always with the next generation."""
    if not owner:
        raise ValueError("a lease needs an owner")
    taken = connection.execute(
        update(LeaseRow)
        .where(
            LeaseRow.run == uid,
            or_(
                LeaseRow.expires_at <= now,
                LeaseRow.owner.in_(["", owner, *dead_owners]),
            ),
        )
        .values(owner=owner, generation=LeaseRow.generation + 1, expires_at=now + seconds)
    )
    return find(connection, uid) if taken.rowcount == 1 else None


def renew_all(
    connection: Connection, held: Sequence[Lease], *, seconds: float, now: float
) -> Sequence[Lease | None]:
    """Move the end of many leases with few statements; None in the place of each that is lost.

    One that is over but that nobody took is still ours.
    """
    expires_at = now + seconds
    kept: set[tuple[str, str, int]] = set()
    for start in range(0, len(held), _AT_ONCE):
        mine = tuple_(LeaseRow.run, LeaseRow.owner, LeaseRow.generation).in_(
            [_identity(lease) for lease in held[start : start + _AT_ONCE]]
        )
        connection.execute(update(LeaseRow).where(mine).values(expires_at=expires_at))
        found = connection.execute(
            select(LeaseRow.run, LeaseRow.owner, LeaseRow.generation).where(mine)
        )
        kept.update((row[0], row[1], row[2]) for row in found)
    return [
        Lease(run=lease.run, owner=lease.owner, generation=lease.generation, expires_at=expires_at)
        if _identity(lease) in kept
        else None
        for lease in held
    ]


def _identity(lease: Lease) -> tuple[str, str, int]:
    return lease.run, lease.owner, lease.generation


def give_up(connection: Connection, lease: Lease, *, now: float) -> None:
    """Let others in at once; the generation stays, so that it never comes back."""
    connection.execute(
        update(LeaseRow)
        .where(
            LeaseRow.run == lease.run,
            LeaseRow.owner == lease.owner,
            LeaseRow.generation == lease.generation,
        )
        .values(owner="", expires_at=now)
    )


def fence(connection: Connection, uid: str, *, generation: int) -> None:
    """Lock the lease until the end of the transaction; LeaseLost unless `generation` is its own."""
    if connection.execute(_FENCE, {"uid": uid, "mine": generation}).rowcount != 1:
        raise LeaseLost(f"run {uid}: another holder owns it, generation {generation} is over")
