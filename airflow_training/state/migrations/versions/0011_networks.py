"""Networks that somebody has saved: every version, never changed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_TABLE = "training_networks"
_JSON = sa.Text().with_variant(sa.Text(2**32 - 1), "mysql", "mariadb")


def upgrade() -> None:
    """Create the table, empty."""
    op.create_table(
        _TABLE,
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("user", sa.String(length=250), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("digest", sa.String(length=71), nullable=False),
        sa.Column("document", _JSON, nullable=False),
        sa.PrimaryKeyConstraint("name", "version", name=f"pk_{_TABLE}"),
    )


def downgrade() -> None:
    """Drop the table; what was saved is lost."""
    op.drop_table(_TABLE)
