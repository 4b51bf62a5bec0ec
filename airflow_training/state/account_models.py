"""The tables of accounts. Only shapes live here.

Money is kept as whole ten-thousandths, so that sums of the database are exact.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

from sqlalchemy import BigInteger, Index, String
from sqlalchemy.orm import Mapped, mapped_column
from sqlalchemy.types import TypeDecorator

from airflow_training.state.models import Base, Json, LongText, Seconds, Uid, Word

__all__ = [
    "AccountKeyRow",
    "AccountLimitRow",
    "AccountMemberRow",
    "AccountRow",
    "ChargeRow",
    "Money",
    "PaymentRow",
    "PriceRow",
    "ReservationRow",
]

_PARTS = 10_000


class Money(TypeDecorator[Decimal]):
    """A decimal number with four places."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Any) -> int | None:  # noqa: ARG002 - SQLAlchemy's
        return None if value is None else int((value * _PARTS).to_integral_value())

    def process_result_value(self, value: Any, dialect: Any) -> Decimal | None:  # noqa: ARG002 - SQLAlchemy's
        return None if value is None else Decimal(int(value)) / _PARTS


Amount = Annotated[Decimal, mapped_column(Money)]
Number = Annotated[str, mapped_column(String(40))]
"""A decimal number as text: a price may have more places than money."""
AccountName = Annotated[str, mapped_column(String(100))]


class AccountRow(Base):
    """A user or a team."""

    __tablename__ = "training_accounts"
    name: Mapped[AccountName] = mapped_column(primary_key=True)
    kind: Mapped[Word]
    prepaid: Mapped[bool]
    threshold: Mapped[Amount]
    at_limit: Mapped[Word]
    created_at: Mapped[Seconds]


class AccountMemberRow(Base):
    """A user of a team."""

    __tablename__ = "training_account_members"
    team: Mapped[AccountName] = mapped_column(primary_key=True)
    user: Mapped[AccountName] = mapped_column(primary_key=True)


class AccountKeyRow(Base):
    """A key: how to check it, never the key itself."""

    __tablename__ = "training_account_keys"
    __table_args__ = (Index(None, "account"),)
    prefix: Mapped[Word] = mapped_column(primary_key=True)
    account: Mapped[AccountName]
    salt: Mapped[Word]
    digest: Mapped[Word]
    scope: Mapped[Word]
    created_at: Mapped[Seconds]
    expires_at: Mapped[Seconds | None]
    revoked_at: Mapped[Seconds | None]


class AccountLimitRow(Base):
    """What an account may use at most, in all or in a month."""

    __tablename__ = "training_account_limits"
    account: Mapped[AccountName] = mapped_column(primary_key=True)
    kind: Mapped[Word] = mapped_column(primary_key=True)
    period: Mapped[Word] = mapped_column(primary_key=True)
    amount: Mapped[Number]


class PriceRow(Base):
    """What a resource costs an hour from a time on. Rows are only ever added, so that old bills stay."""

    __tablename__ = "training_prices"
    resource: Mapped[str] = mapped_column(String(250), primary_key=True)
    node_label: Mapped[str] = mapped_column(String(250), primary_key=True)
    valid_from: Mapped[Seconds] = mapped_column(primary_key=True)
    hourly: Mapped[Number]


class PaymentRow(Base):
    """What was paid into an account; below zero: paid back."""

    __tablename__ = "training_payments"
    __table_args__ = (Index(None, "account", "reference", unique=True),)
    account: Mapped[AccountName] = mapped_column(primary_key=True)
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    amount: Mapped[Amount]
    at: Mapped[Seconds]
    reference: Mapped[str | None] = mapped_column(String(128))
    by: Mapped[LongText]


class ReservationRow(Base):
    """What is held for one run, from before its upload until it is settled."""

    __tablename__ = "training_reservations"
    __table_args__ = (
        Index(None, "account", "key", unique=True),
        Index(None, "run", unique=True),
        Index(None, "ended_at"),
    )
    id: Mapped[Uid] = mapped_column(primary_key=True)
    account: Mapped[AccountName]
    team: Mapped[AccountName]
    key: Mapped[str] = mapped_column(String(128))
    run: Mapped[str | None] = mapped_column(String(20))
    """Not a foreign key: a reservation is there before its run, and its charges after."""
    hours: Mapped[Number]
    roles: Mapped[Json]
    amounts: Mapped[Json]
    created_at: Mapped[Seconds]
    expires_at: Mapped[Seconds]
    ended_at: Mapped[Seconds | None]


class ChargeRow(Base):
    """What a settled run used in one month. Stays when the run is pruned."""

    __tablename__ = "training_charges"
    __table_args__ = (Index(None, "account", "month"), Index(None, "team", "month"))
    run: Mapped[Uid] = mapped_column(primary_key=True)
    month: Mapped[str] = mapped_column(String(7), primary_key=True)
    account: Mapped[AccountName]
    team: Mapped[AccountName]
    instance_seconds: Mapped[Seconds]
    gpu_seconds: Mapped[Seconds]
    money: Mapped[Amount]
