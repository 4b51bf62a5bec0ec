"""Accounts: who may use how much, what it costs, what was held, used and paid."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_JSON = sa.Text().with_variant(sa.Text(2**32 - 1), "mysql", "mariadb")


def _text(name: str, length: int = 64, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.String(length=length), nullable=nullable)


def _account(name: str = "account") -> sa.Column[Any]:
    return _text(name, 100)


def _seconds(name: str, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.Double(), nullable=nullable)


def _money(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.BigInteger(), nullable=False)


def _table(name: str, key: tuple[str, ...], *columns: sa.Column[Any]) -> None:
    op.create_table(name, *columns, sa.PrimaryKeyConstraint(*key, name=f"pk_{name}"))


def upgrade() -> None:
    """Create the tables, empty: what ran before is charged to nobody."""
    _table(
        "training_accounts",
        ("name",),
        _account("name"),
        _text("kind"),
        sa.Column("prepaid", sa.Boolean(), nullable=False),
        _money("threshold"),
        _text("at_limit"),
        _seconds("created_at"),
    )
    _table("training_account_members", ("team", "user"), _account("team"), _account("user"))
    _table(
        "training_account_keys",
        ("prefix",),
        _text("prefix"),
        _account(),
        _text("salt"),
        _text("digest"),
        _text("scope"),
        _seconds("created_at"),
        _seconds("expires_at", nullable=True),
        _seconds("revoked_at", nullable=True),
    )
    op.create_index("ix_training_account_keys_account", "training_account_keys", ["account"])
    _table(
        "training_account_limits",
        ("account", "kind", "period"),
        _account(),
        _text("kind"),
        _text("period"),
        _text("amount", 40),
    )
    _table(
        "training_prices",
        ("resource", "node_label", "valid_from"),
        _text("resource", 250),
        _text("node_label", 250),
        _seconds("valid_from"),
        _text("hourly", 40),
    )
    _table(
        "training_payments",
        ("account", "id"),
        _account(),
        sa.Column("id", sa.Integer(), nullable=False),
        _money("amount"),
        _seconds("at"),
        _text("reference", 128, nullable=True),
        sa.Column("by", sa.Text(), nullable=False),
    )
    op.create_index(
        "ix_training_payments_account_reference",
        "training_payments",
        ["account", "reference"],
        unique=True,
    )
    _create_reservations()


def _create_reservations() -> None:
    _table(
        "training_reservations",
        ("id",),
        _text("id", 20),
        _account(),
        _account("team"),
        _text("key", 128),
        _text("run", 20, nullable=True),
        _text("hours", 40),
        sa.Column("roles", _JSON, nullable=False),
        sa.Column("amounts", _JSON, nullable=False),
        _seconds("created_at"),
        _seconds("expires_at"),
        _seconds("ended_at", nullable=True),
    )
    for columns, unique in ((("account", "key"), True), (("run",), True), (("ended_at",), False)):
        op.create_index(
            f"ix_training_reservations_{'_'.join(columns)}",
            "training_reservations",
            list(columns),
            unique=unique,
        )
    _table(
        "training_charges",
        ("run", "month"),
        _text("run", 20),
        _text("month", 7),
        _account(),
        _account("team"),
        _seconds("instance_seconds"),
        _seconds("gpu_seconds"),
        _money("money"),
    )
    for payer in ("account", "team"):
        op.create_index(f"ix_training_charges_{payer}_month", "training_charges", [payer, "month"])


def downgrade() -> None:
    """Drop the tables; who paid and who owes is lost."""
    for name in (
        "charges",
        "reservations",
        "payments",
        "prices",
        "account_limits",
        "account_keys",
        "account_members",
        "accounts",
    ):
        op.drop_table(f"training_{name}")
