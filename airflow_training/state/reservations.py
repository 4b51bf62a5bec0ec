"""What is held for runs, and what they were charged. How much is decided elsewhere: `decide` and `charge` are told.

Whoever decides about an account holds its row until the end of the transaction. So two decisions
never count on the same rest of a limit.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeVar, cast

from sqlalchemy import ColumnElement, Connection, and_, delete, func, insert, or_, select, update

from airflow_training.control.model import TERMINAL_JOB_STATES, RequestKind
from airflow_training.errors import InputError
from airflow_training.state import accounts, usage
from airflow_training.state.account_models import ChargeRow, ReservationRow
from airflow_training.state.account_records import (
    AccountFacts,
    Charge,
    ChargedAmounts,
    LiveReservation,
    Price,
    Reservation,
    ReservedAmounts,
    ReservedRole,
)
from airflow_training.state.database import StorePart, clean
from airflow_training.state.models import RequestRow, RunRow

__all__ = ["Reservations", "forget_runs", "unsettled_runs"]

Refusal = TypeVar("Refusal")

_STARTED_AGAIN = or_(
    and_(RunRow.finished_at.is_(None), RunRow.tombstone.is_(False)),
    RunRow.finished_at != ReservationRow.ended_at,  # clocks of hosts differ, so neither comes first
)
_LIVE = or_(ReservationRow.ended_at.is_(None), _STARTED_AGAIN)
_COLUMNS = [getattr(ReservationRow, name) for name in Reservation.__dataclass_fields__]


def unsettled_runs() -> Any:
    """Return the select of the uids of all runs whose usage was not charged yet."""
    return (
        select(ReservationRow.run)
        .join(RunRow, RunRow.uid == ReservationRow.run)
        .where(_LIVE, ReservationRow.run.is_not(None))
    )


def forget_runs(connection: Connection, uids: Collection[str]) -> None:
    """Let no reservation speak of runs that are deleted: another run of the same name has none of them."""
    connection.execute(
        update(ReservationRow).where(ReservationRow.run.in_(list(uids))).values(run=None)
    )


class Reservations(StorePart):
    """What is held for runs that are to come or go on, and what those that are over were charged."""

    def reserve(
        self,
        *,
        account: str,
        team: str,
        key: str,
        decide: Callable[[Sequence[AccountFacts]], Reservation | Refusal],
    ) -> Reservation | Refusal:
        """Keep what `decide` makes of the facts of user and team, who count alone meanwhile.

        The same key of the same user again returns what is there, and nothing is decided. Raises
        InputError for an account that does not exist.
        """
        names = [account, team] if team else [account]
        with self._db.write() as connection:
            accounts.lock(
                connection, names
            )  # before anything is read: what is read is what others left
            for name in names:
                accounts.find(connection, name)
            known = _reservations(
                connection, ReservationRow.account == account, ReservationRow.key == key
            )
            now = self._db.now(connection)
            if known and (_waits(known[0], now=now) or _was_used(connection, known[0])):
                return known[0]
            answer = decide([_facts(connection, name, now=now) for name in names])
            if isinstance(answer, Reservation):
                for gone in known:  # it ended before its run was there: somebody asks again
                    connection.execute(delete(ReservationRow).where(ReservationRow.id == gone.id))
                connection.execute(insert(ReservationRow), _row(answer))
            return answer

    def facts(self, account: str) -> AccountFacts:
        """Facts for a decision about an account; InputError where there is none."""
        with self._db.read() as connection:
            return _facts(connection, account, now=self._db.now(connection))

    def get(self, number: str) -> Reservation | None:
        """Return the reservation of this id."""
        with self._db.read() as connection:
            found = _reservations(connection, ReservationRow.id == number)
            return found[0] if found else None

    def of_key(self, account: str, key: str) -> Reservation | None:
        """Reservation of a user under an idempotency key; None: there is none."""
        with self._db.read() as connection:
            found = _reservations(
                connection, ReservationRow.account == account, ReservationRow.key == key
            )
            return found[0] if found else None

    def of_run(self, uid: str) -> Reservation | None:
        """Reservation of a run; None: it has none."""
        with self._db.read() as connection:
            found = _reservations(connection, ReservationRow.run == uid)
            return found[0] if found else None

    def live(self, *, account: str = "") -> Sequence[LiveReservation]:
        """Return all that are not settled; with `account`, only those of that user or team."""
        holds = or_(ReservationRow.account == account, ReservationRow.team == account)
        with self._db.read() as connection:
            return _live(connection, *([holds] if account else []), now=self._db.now(connection))

    def attach(self, number: str, uid: str) -> Reservation:
        """Say which run a reservation is for, also before it exists; again for the same changes nothing.

        Raises InputError where there is no such reservation, it has ended, or is another run's.
        """
        with self._db.write() as connection:
            found = _reservations(connection, ReservationRow.id == number)
            if not found:
                raise _unusable(number, "there is no such reservation")
            (mine,) = found
            if mine.run == uid:
                return mine
            if mine.run is not None:
                raise _unusable(number, f"it is that of run {mine.run}")
            if not _waits(mine, now=self._db.now(connection)):
                raise _unusable(number, "it has ended")
            if _reservations(connection, ReservationRow.run == uid):
                raise _unusable(number, f"run {uid} has another one")
            if connection.execute(select(ChargeRow.run).where(ChargeRow.run == uid)).first():
                raise _unusable(
                    number,
                    f"run {uid} was charged before it was pruned, which stays",
                    hint="take another run id",
                )
            changed = connection.execute(
                update(ReservationRow)
                .where(
                    ReservationRow.id == number,
                    ReservationRow.run.is_(None),
                    ReservationRow.ended_at.is_(None),
                )
                .values(run=uid)
            )
            if not changed.rowcount:
                raise _unusable(number, "somebody else was faster")
            return dataclasses.replace(mine, run=uid)

    def release(self, number: str) -> None:
        """Give up what waits for its run; silent where that is there already, or all is gone."""
        with self._db.write() as connection:
            connection.execute(
                update(ReservationRow)
                .where(
                    ReservationRow.id == number,
                    or_(
                        ReservationRow.run.is_(None),
                        ReservationRow.run.not_in(select(RunRow.uid)),
                    ),
                    ReservationRow.ended_at.is_(None),
                )
                .values(ended_at=self._db.now(connection))
            )

    def settle(
        self,
        number: str,
        charge: Callable[[LiveReservation, Sequence[Price]], Sequence[Charge]],
    ) -> bool:
        """Charge a reservation whose run is over and end it; False where it goes on.

        What the run was charged before, if it was started again since, is replaced.
        """
        with self._db.write() as connection:
            known = _reservations(connection, ReservationRow.id == number)
            if not known:
                return False
            accounts.lock(connection, [each for each in (known[0].account, known[0].team) if each])
            now = self._db.now(connection)
            found = _live(connection, ReservationRow.id == number, now=now)
            if not found:
                return True
            (live,) = found
            uid = live.reservation.run
            goes_on = not live.over if live.run_state else now < live.reservation.expires_at
            if goes_on:
                return False
            ended_at = now
            if uid is not None and live.run_state:
                connection.execute(delete(ChargeRow).where(ChargeRow.run == uid))
                rows = [
                    dataclasses.asdict(each) for each in charge(live, accounts.prices(connection))
                ]
                if rows:
                    connection.execute(insert(ChargeRow), rows)
                finished = select(RunRow.finished_at).where(RunRow.uid == uid)
                ended_at = connection.execute(finished).scalar() or now
            connection.execute(
                update(ReservationRow).where(ReservationRow.id == number).values(ended_at=ended_at)
            )
            return True

    def charges(self, account: str, *, month: str = "") -> Sequence[Charge]:
        """Charges of the settled runs of a user or team, the newest month first."""
        columns = [getattr(ChargeRow, name) for name in Charge.__dataclass_fields__]
        where = [or_(ChargeRow.account == account, ChargeRow.team == account)]
        if month:
            where.append(ChargeRow.month == month)
        with self._db.read() as connection:
            rows = connection.execute(
                select(*columns).where(*where).order_by(ChargeRow.month.desc(), ChargeRow.run)
            )
            return [Charge(**row._asdict()) for row in rows]


def _waits(reservation: Reservation, *, now: float) -> bool:
    """Return whether it holds something for a run that is to come."""
    here = reservation.run is None and reservation.ended_at is None
    return here and now < reservation.expires_at


def _was_used(connection: Connection, reservation: Reservation) -> bool:
    """Return whether it has a run that may come or is there."""
    if reservation.run is None or reservation.ended_at is None:
        return reservation.run is not None
    here = select(RunRow.uid).where(RunRow.uid == reservation.run)
    return connection.execute(here).first() is not None


def _unusable(number: str, message: str, *, hint: str = "reserve again") -> InputError:
    return InputError.of(
        code="bad_reference",
        field="reservation",
        message=message,
        value=number,
        hint=hint,
    )


def _facts(connection: Connection, name: str, *, now: float) -> AccountFacts:
    account = accounts.find(connection, name)
    column = ChargeRow.account if account.kind == "user" else ChargeRow.team
    holder = ReservationRow.account if account.kind == "user" else ReservationRow.team
    live = _live(connection, holder == name, now=now)
    # what was charged before a run was started again is counted with what it uses now
    again = [each.reservation.run for each in live if each.reservation.run is not None]
    mine = and_(column == name, ChargeRow.run.not_in(again)) if again else column == name
    pays = and_(mine, ChargeRow.team == "") if account.kind == "user" else mine
    return AccountFacts(
        account=account,
        now=now,
        limits=accounts.limits_of(connection, name),
        paid=accounts.paid_into(connection, name),
        charged=_charged(connection, mine),
        charged_by_month=_by_month(connection, mine),
        charged_to_balance=_charged(connection, pays).money,
        live=tuple(live),
        prices=accounts.prices(connection),
        currency=accounts.currency(connection),
    )


def _sums() -> tuple[Any, ...]:
    return (
        func.sum(ChargeRow.instance_seconds),
        func.sum(ChargeRow.gpu_seconds),
        func.sum(ChargeRow.money),
    )


def _charged(connection: Connection, wanted: ColumnElement[bool]) -> ChargedAmounts:
    return _amounts(connection.execute(select(*_sums()).where(wanted)).one())


def _by_month(connection: Connection, wanted: ColumnElement[bool]) -> Mapping[str, ChargedAmounts]:
    rows = connection.execute(
        select(ChargeRow.month, *_sums()).where(wanted).group_by(ChargeRow.month)
    )
    return {row[0]: _amounts(row[1:]) for row in rows}


def _amounts(row: Sequence[Any]) -> ChargedAmounts:
    instance_seconds, gpu_seconds, money = row
    return ChargedAmounts(
        instance_seconds=instance_seconds or 0.0,
        gpu_seconds=gpu_seconds or 0.0,
        money=money or Decimal(0),
    )


def _live(
    connection: Connection, *wanted: ColumnElement[bool], now: float
) -> Sequence[LiveReservation]:
    rows = connection.execute(
        select(*_COLUMNS, RunRow.state, RunRow.drained, RunRow.tombstone)
        .join(RunRow, RunRow.uid == ReservationRow.run, isouter=True)
        .where(_LIVE, *wanted)
        .order_by(ReservationRow.created_at, ReservationRow.id)
    ).all()
    uids = [row.run for row in rows if row.state is not None]
    attempts = usage.of_runs(connection, uids, now=now) if uids else {}
    asked = _newest_requests(connection, uids) if uids else {}
    found = []
    for row in rows:
        used = attempts.get(row.run, ())
        ended = row.state in TERMINAL_JOB_STATES and row.drained
        kind, number = asked.get(row.run, (None, 0))
        found.append(
            LiveReservation(
                reservation=_reservation(row),
                run_state=row.state or "",
                over=row.state is not None
                and (ended or row.tombstone)
                and all(each.finished_at is not None for each in used),
                asked=kind,
                asked_number=number,
                attempts=used,
            )
        )
    return found


def _newest_requests(
    connection: Connection, uids: Collection[str]
) -> Mapping[str, tuple[RequestKind, int]]:
    newest = (
        select(RequestRow.run, func.max(RequestRow.id).label("id"))
        .where(RequestRow.run.in_(list(uids)), RequestRow.kind != "activate")
        .group_by(RequestRow.run)
        .subquery()
    )
    rows = connection.execute(
        select(RequestRow.run, RequestRow.kind, RequestRow.id).join(
            newest, and_(RequestRow.run == newest.c.run, RequestRow.id == newest.c.id)
        )
    )
    return {row[0]: (cast("RequestKind", row[1]), row[2]) for row in rows}


def _reservations(connection: Connection, *wanted: ColumnElement[bool]) -> Sequence[Reservation]:
    return [_reservation(row) for row in connection.execute(select(*_COLUMNS).where(*wanted))]


def _row(reservation: Reservation) -> Mapping[str, Any]:
    row = {name: getattr(reservation, name) for name in Reservation.__dataclass_fields__}
    amounts = dataclasses.asdict(reservation.amounts)
    return {
        **row,
        "key": clean(reservation.key),
        "hours": str(reservation.hours),
        "roles": json.dumps([dataclasses.asdict(each) for each in reservation.roles]),
        "amounts": json.dumps({name: str(amount) for name, amount in amounts.items()}),
    }


def _reservation(row: Any) -> Reservation:
    amounts = json.loads(row.amounts)
    return Reservation(
        id=row.id,
        account=row.account,
        team=row.team,
        key=row.key,
        run=row.run,
        hours=Decimal(row.hours),
        roles=tuple(ReservedRole(**each) for each in json.loads(row.roles)),
        amounts=ReservedAmounts(**{name: Decimal(text) for name, text in amounts.items()}),
        created_at=row.created_at,
        expires_at=row.expires_at,
        ended_at=row.ended_at,
    )
