"""Nodes: failures that speak against them, and those that nothing is placed on."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_FAULTS, _EXCLUSIONS = "training_node_faults", "training_node_exclusions"


def upgrade() -> None:
    """Create the tables, empty."""
    op.create_table(
        _FAULTS,
        sa.Column("run", sa.String(length=20), nullable=False),
        sa.Column("role", sa.String(length=63), nullable=False),
        sa.Column("index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("epoch", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("runtime", sa.String(length=64), nullable=False),
        sa.Column("connection", sa.String(length=250), nullable=False),
        sa.Column("node", sa.String(length=250), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("blame", sa.String(length=64), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run"], ["training_runs.uid"], name=f"fk_{_FAULTS}_run", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run", "role", "index", "epoch", "attempt", name=f"pk_{_FAULTS}"),
    )
    op.create_index(f"ix_{_FAULTS}_runtime_at", _FAULTS, ["runtime", "at"])
    op.create_table(
        _EXCLUSIONS,
        sa.Column("runtime", sa.String(length=64), nullable=False),
        sa.Column("connection", sa.String(length=250), nullable=False),
        sa.Column("node", sa.String(length=250), nullable=False),
        sa.Column("since", sa.Double(), nullable=False),
        sa.Column("until", sa.Double(), nullable=True),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("by", sa.String(length=250), nullable=False),
        sa.PrimaryKeyConstraint("runtime", "connection", "node", name=f"pk_{_EXCLUSIONS}"),
    )


def downgrade() -> None:
    """Forget them."""
    op.drop_table(_EXCLUSIONS)
    op.drop_index(f"ix_{_FAULTS}_runtime_at", table_name=_FAULTS)
    op.drop_table(_FAULTS)
