"""How far the logs of running instances have been read."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

JSON = sa.Text().with_variant(sa.Text(2**32 - 1), "mysql", "mariadb")


def upgrade() -> None:
    """Create the table, empty."""
    op.create_table(
        "training_log_positions",
        sa.Column("run", sa.String(length=20), nullable=False),
        sa.Column("role", sa.String(length=63), nullable=False),
        sa.Column("index", sa.Integer(), nullable=False),
        sa.Column("body", JSON, nullable=False),
        sa.ForeignKeyConstraint(
            ["run"],
            ["training_runs.uid"],
            name="fk_training_log_positions_run",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("run", "role", "index", name="pk_training_log_positions"),
    )


def downgrade() -> None:
    """Drop the table; logs are read from their beginning again."""
    op.drop_table("training_log_positions")
