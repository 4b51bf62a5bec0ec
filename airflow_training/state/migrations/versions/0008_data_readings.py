"""What each instance has read of its data."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_TABLE = "training_data_readings"


def upgrade() -> None:
    """Create the table, empty: what ran before has told nothing."""
    op.create_table(
        _TABLE,
        sa.Column("run", sa.String(length=20), nullable=False),
        sa.Column("role", sa.String(length=63), nullable=False),
        sa.Column("index", sa.Integer(), nullable=False),
        sa.Column(
            "body", sa.Text().with_variant(sa.Text(2**32 - 1), "mysql", "mariadb"), nullable=False
        ),
        sa.ForeignKeyConstraint(
            ["run"], ["training_runs.uid"], name=f"fk_{_TABLE}_run", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run", "role", "index", name=f"pk_{_TABLE}"),
    )


def downgrade() -> None:
    """Drop the table; what was told is lost."""
    op.drop_table(_TABLE)
