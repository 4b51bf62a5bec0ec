"""Accounts, their members, keys, limits and payments, and the prices. What is held and charged: `reservations`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from decimal import Decimal
from typing import cast

from sqlalchemy import Connection, delete, func, insert, select, update

from airflow_training.documents.spelling import did_you_mean
from airflow_training.errors import InputError
from airflow_training.state.account_models import (
    AccountKeyRow,
    AccountLimitRow,
    AccountMemberRow,
    AccountRow,
    ChargeRow,
    PaymentRow,
    PriceRow,
    ReservationRow,
)
from airflow_training.state.account_records import (
    Account,
    AccountKey,
    AccountKind,
    AccountLimit,
    AtLimit,
    KeyScope,
    LimitKind,
    LimitPeriod,
    Payment,
    Price,
)
from airflow_training.state.database import StorePart, clean, upsert
from airflow_training.state.models import MetaRow, table_of

__all__ = ["Accounts", "currency", "find", "limits_of", "lock", "paid_into", "prices", "teams_of"]

_CURRENCY = "currency"
_USUAL_CURRENCY = "EUR"


def lock(connection: Connection, names: Sequence[str]) -> None:
    """Let no other transaction decide about these accounts until the end of this one."""
    for name in sorted(set(names)):  # one order for all: nobody waits for whoever waits for them
        connection.execute(
            update(AccountRow).where(AccountRow.name == name).values(kind=AccountRow.kind)
        )


def get(connection: Connection, name: str) -> Account | None:
    """Return the account, or None where there is none."""
    row = connection.execute(select(*_ACCOUNT).where(AccountRow.name == name)).first()
    return None if row is None else _account(row)


_ACCOUNT = (
    AccountRow.name,
    AccountRow.kind,
    AccountRow.prepaid,
    AccountRow.threshold,
    AccountRow.at_limit,
    AccountRow.created_at,
)


def _account(row: object) -> Account:
    name, kind, prepaid, threshold, at_limit, created_at = cast("tuple[object, ...]", row)
    return Account(
        name=cast("str", name),
        kind=cast("AccountKind", kind),
        prepaid=cast("bool", prepaid),
        threshold=cast("Decimal", threshold),
        at_limit=cast("AtLimit", at_limit),
        created_at=cast("float", created_at),
    )


def find(connection: Connection, name: str) -> Account:
    """Return the account; raises InputError for one that does not exist."""
    found = get(connection, name)
    if found is not None:
        return found
    known = list(
        connection.execute(select(AccountRow.name).order_by(AccountRow.name).limit(100)).scalars()
    )
    raise InputError.of(
        code="bad_reference",
        field="ACCOUNT",
        message=f"no account is called {name!r}",
        value=name,
        allowed=known[:5],
        hint=did_you_mean(name, known) or f"make it: airflow-training accounts add {name}",
    )


def teams_of(connection: Connection, user: str) -> Sequence[str]:
    """Return the teams that a user is in."""
    question = select(AccountMemberRow.team).where(AccountMemberRow.user == user)
    return list(connection.execute(question.order_by(AccountMemberRow.team)).scalars())


def limits_of(connection: Connection, account: str) -> tuple[AccountLimit, ...]:
    """Return the limits of an account."""
    rows = connection.execute(
        select(AccountLimitRow.kind, AccountLimitRow.period, AccountLimitRow.amount)
        .where(AccountLimitRow.account == account)
        .order_by(AccountLimitRow.kind, AccountLimitRow.period)
    )
    return tuple(
        AccountLimit(
            account=account,
            kind=cast("LimitKind", row.kind),
            period=cast("LimitPeriod", row.period),
            amount=Decimal(row.amount),
        )
        for row in rows
    )


def paid_into(connection: Connection, account: str) -> Decimal:
    """Return the sum of an account's payments."""
    question = select(func.sum(PaymentRow.amount)).where(PaymentRow.account == account)
    found: Decimal | None = connection.execute(question).scalar()
    return found or Decimal(0)


def prices(connection: Connection) -> tuple[Price, ...]:
    """Return all prices, of all times, the oldest first."""
    rows = connection.execute(
        select(PriceRow.resource, PriceRow.node_label, PriceRow.valid_from, PriceRow.hourly)
        .order_by(PriceRow.valid_from, PriceRow.resource, PriceRow.node_label)
    )  # fmt: skip
    return tuple(
        Price(
            resource=row.resource,
            node_label=row.node_label,
            valid_from=row.valid_from,
            hourly=Decimal(row.hourly),
        )
        for row in rows
    )


def currency(connection: Connection) -> str:
    """Return the currency of all money in the store."""
    question = select(MetaRow.value).where(MetaRow.name == _CURRENCY)
    return connection.execute(question).scalar() or _USUAL_CURRENCY


class Accounts(StorePart):
    """Who may train here, how much, and for what money."""

    # accounts ------------------------------------------------------------------------------------
    def save(self, account: Account) -> Account:
        """Add an account, or change what is kept of it.

        Raises InputError (`conflict`) where a user is to become a team, or a team a user.
        """
        with self._db.write() as connection:
            known = get(connection, account.name)
            if known is not None and known.kind != account.kind:
                raise InputError.of(
                    code="conflict",
                    field="NAME",
                    message=f"{account.name} is the name of a {known.kind} already",
                    value=account.name,
                    hint="users and teams share their names: take another one",
                )
            created_at = self._db.now(connection) if known is None else known.created_at
            row = {
                "name": clean(account.name),
                "kind": account.kind,
                "prepaid": account.prepaid,
                "threshold": account.threshold,
                "at_limit": account.at_limit,
                "created_at": created_at,
            }
            upsert(connection, table_of(AccountRow), [row])
            return find(connection, account.name)

    def get(self, name: str) -> Account | None:
        """Return the account, or None where there is none."""
        with self._db.read() as connection:
            return get(connection, name)

    def find(self, name: str) -> Account:
        """Return the account; raises InputError for one that does not exist."""
        with self._db.read() as connection:
            return find(connection, name)

    def all(self) -> Sequence[Account]:
        """Return every account, by name."""
        with self._db.read() as connection:
            rows = connection.execute(select(*_ACCOUNT).order_by(AccountRow.name))
            return [_account(row) for row in rows]

    def add_member(self, team: str, user: str) -> None:
        """Put a user into a team; raises InputError where either is not what it should be."""
        with self._db.write() as connection:
            for name, kind in ((team, "team"), (user, "user")):
                found = find(connection, name)
                if found.kind != kind:
                    raise InputError.of(
                        code="bad_reference",
                        field=kind,
                        message=f"{name} is a {found.kind}, no {kind}",
                        value=name,
                    )
            row = {"team": team, "user": user}
            upsert(connection, table_of(AccountMemberRow), [row], update=("user",))

    def remove_member(self, team: str, user: str) -> None:
        """Take a user out of a team; silent where it is not in it."""
        with self._db.write() as connection:
            connection.execute(
                delete(AccountMemberRow).where(
                    AccountMemberRow.team == team, AccountMemberRow.user == user
                )
            )

    def members(self) -> Mapping[str, Sequence[str]]:
        """Return team -> its users; teams without any are left out."""
        with self._db.read() as connection:
            rows = connection.execute(
                select(AccountMemberRow.team, AccountMemberRow.user)
                .order_by(AccountMemberRow.team, AccountMemberRow.user)
            )  # fmt: skip
            found: dict[str, list[str]] = {}
            for team, user in rows:
                found.setdefault(team, []).append(user)
            return found

    def teams_of(self, user: str) -> Sequence[str]:
        """Return the teams that a user is in."""
        with self._db.read() as connection:
            return teams_of(connection, user)

    # keys ----------------------------------------------------------------------------------------
    def add_key(self, key: AccountKey) -> None:
        """Keep a key of an account that exists."""
        with self._db.write() as connection:
            find(connection, key.account)
            connection.execute(
                insert(AccountKeyRow),
                {name: getattr(key, name) for name in AccountKey.__dataclass_fields__},
            )

    def key(self, prefix: str) -> AccountKey | None:
        """Return the key that begins so, be it valid or not."""
        found = self._keys(prefix=prefix)
        return found[0] if found else None

    def keys(self, account: str) -> Sequence[AccountKey]:
        """Return the keys of an account, the newest first."""
        return self._keys(account=account)

    def _keys(self, **wanted: str) -> Sequence[AccountKey]:
        columns = [getattr(AccountKeyRow, name) for name in AccountKey.__dataclass_fields__]
        where = [getattr(AccountKeyRow, name) == value for name, value in wanted.items()]
        with self._db.read() as connection:
            rows = connection.execute(
                select(*columns).where(*where).order_by(AccountKeyRow.created_at.desc())
            )
            return [
                AccountKey(**{**row._asdict(), "scope": cast("KeyScope", row.scope)})
                for row in rows
            ]

    def revoke_key(self, prefix: str) -> bool:
        """End a key now; False where there is none. One that was revoked keeps its time."""
        with self._db.write() as connection:
            now = self._db.now(connection)
            mine = AccountKeyRow.prefix == prefix
            connection.execute(
                update(AccountKeyRow)
                .where(mine, AccountKeyRow.revoked_at.is_(None))
                .values(revoked_at=now)
            )
            return connection.execute(select(AccountKeyRow.prefix).where(mine)).first() is not None

    # limits, prices, payments ----------------------------------------------------------------------
    def set_limit(self, limit: AccountLimit) -> None:
        """Set what an account may use at most; raises InputError where there is no such account."""
        with self._db.write() as connection:
            find(connection, limit.account)
            row = {
                "account": limit.account,
                "kind": limit.kind,
                "period": limit.period,
                "amount": str(limit.amount),
            }
            upsert(connection, table_of(AccountLimitRow), [row])

    def remove_limit(self, account: str, kind: LimitKind, period: LimitPeriod) -> None:
        """Take a limit away; silent where there is none."""
        with self._db.write() as connection:
            connection.execute(
                delete(AccountLimitRow).where(
                    AccountLimitRow.account == account,
                    AccountLimitRow.kind == kind,
                    AccountLimitRow.period == period,
                )
            )

    def is_limited(self, account: str) -> bool:
        """Return whether anything can stop its runs: a limit, or a balance."""
        limit = select(AccountLimitRow.account).where(AccountLimitRow.account == account).limit(1)
        prepaid = select(AccountRow.name).where(AccountRow.name == account, AccountRow.prepaid)
        with self._db.read() as connection:
            return any(connection.execute(each).first() for each in (limit, prepaid))

    def limits(self, account: str) -> tuple[AccountLimit, ...]:
        """Return the limits of an account."""
        with self._db.read() as connection:
            return limits_of(connection, account)

    def set_price(self, price: Price) -> None:
        """Add a price; one of the same resource, node label and time is replaced.

        Raises InputError where runs were charged already for what they used after that time.
        """
        charged = select(func.max(ReservationRow.ended_at)).join(
            ChargeRow, ChargeRow.run == ReservationRow.run
        )
        with self._db.write() as connection:
            last: float | None = connection.execute(charged).scalar()
            # "from now on" is a moment old when it comes here, and a simulation ends in the future
            last = None if last is None else min(last, self._db.now(connection) - 60.0)
            if last is not None and price.valid_from < last:
                until = datetime.fromtimestamp(last, tz=timezone.utc)
                raise InputError.of(
                    code="conflict",
                    field="--from",
                    message=f"runs were charged until {until:%Y-%m-%dT%H:%M:%SZ}, which stays",
                    value=price.resource,
                    hint="without --from it is valid from now on",
                )
            row = {
                "resource": clean(price.resource),
                "node_label": clean(price.node_label),
                "valid_from": price.valid_from,
                "hourly": str(price.hourly),
            }
            upsert(connection, table_of(PriceRow), [row])

    def prices(self) -> tuple[Price, ...]:
        """Return all prices, of all times, the oldest first."""
        with self._db.read() as connection:
            return prices(connection)

    def currency(self) -> str:
        """Return the currency of all money in the store."""
        with self._db.read() as connection:
            return currency(connection)

    def set_currency(self, name: str) -> None:
        """Name the currency; raises InputError (`conflict`) once there are prices or payments in another."""
        with self._db.write() as connection:
            if currency(connection) == name:
                return
            counted = (select(PriceRow.resource), select(PaymentRow.id))
            if any(connection.execute(each.limit(1)).first() for each in counted):
                raise InputError.of(
                    code="conflict",
                    field="--currency",
                    message=f"prices and payments are in {currency(connection)}",
                    value=name,
                    hint="nothing is converted: a store has one currency",
                )
            upsert(connection, table_of(MetaRow), [{"name": _CURRENCY, "value": clean(name)}])

    def pay(self, account: str, amount: Decimal, *, reference: str = "", by: str = "") -> Payment:
        """Add a payment; one with a reference that the account has seen comes back as it is.

        Raises InputError where there is no such account, or the payment of that reference was another one.
        """
        reference = clean(reference)
        if len(reference) > 128:
            raise InputError.of(
                code="out_of_range",
                field="--reference",
                message="has at most 128 characters",
                value=reference,
            )
        with self._db.write() as connection:
            lock(connection, [account])  # before anything is read: what is read is what others left
            find(connection, account)
            mine = PaymentRow.account == account
            known = select(PaymentRow.id).where(mine, PaymentRow.reference == reference)
            number = connection.execute(known).scalar() if reference else None
            if number is None:
                last = connection.execute(select(func.max(PaymentRow.id)).where(mine)).scalar()
                number = (last or 0) + 1
                row = {
                    "account": account,
                    "id": number,
                    "amount": amount,
                    "at": self._db.now(connection),
                    "reference": reference or None,
                    "by": clean(by),
                }
                connection.execute(insert(PaymentRow), row)
            (found,) = [each for each in _payments(connection, account) if each.id == number]
            if found.amount != amount:
                raise InputError.of(
                    code="conflict",
                    field="MONEY",
                    message=f"{reference!r} was paid already, with {found.amount:f}",
                    value=f"{amount:f}",
                    hint="another payment has another reference",
                )
            return found

    def payments(self, account: str) -> Sequence[Payment]:
        """Payments into an account, the oldest first."""
        with self._db.read() as connection:
            return _payments(connection, account)


def _payments(connection: Connection, account: str) -> Sequence[Payment]:
    rows = connection.execute(
        select(PaymentRow.id, PaymentRow.amount, PaymentRow.at, PaymentRow.reference, PaymentRow.by)
        .where(PaymentRow.account == account)
        .order_by(PaymentRow.id)
    )
    return [
        Payment(
            id=row.id,
            account=account,
            amount=row.amount,
            at=row.at,
            reference=row.reference or "",
            by=row.by,
        )
        for row in rows
    ]
