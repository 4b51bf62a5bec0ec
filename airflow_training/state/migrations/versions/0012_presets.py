"""Presets: documents that users keep to begin trainings with."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_TABLE = "training_presets"


def upgrade() -> None:
    """Create the table, empty."""
    op.create_table(
        _TABLE,
        sa.Column("user", sa.String(length=250), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column(
            "document",
            sa.Text().with_variant(sa.Text(2**32 - 1), "mysql", "mariadb"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("user", "name", "version", name=f"pk_{_TABLE}"),
    )


def downgrade() -> None:
    """Forget the presets."""
    op.drop_table(_TABLE)
