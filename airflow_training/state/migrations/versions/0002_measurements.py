"""What runs measured under their plans."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

JSON = sa.Text().with_variant(sa.Text(2**32 - 1), "mysql", "mariadb")


def upgrade() -> None:
    """Create the table, empty."""
    op.create_table(
        "training_measurements",
        sa.Column("run", sa.String(length=20), nullable=False),
        sa.Column("plan", sa.String(length=64), nullable=False),
        sa.Column("subject", sa.String(length=64), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("body", JSON, nullable=False),
        sa.ForeignKeyConstraint(
            ["run"],
            ["training_runs.uid"],
            name="fk_training_measurements_run",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("run", "plan", name="pk_training_measurements"),
    )
    op.create_index(
        "ix_training_measurements_subject_at", "training_measurements", ["subject", "at"]
    )


def downgrade() -> None:
    """Drop the table; later plans are estimated without it."""
    op.drop_table("training_measurements")
