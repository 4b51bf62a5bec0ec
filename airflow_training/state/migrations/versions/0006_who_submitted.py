"""Who submitted each run."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the name; of runs that are there nobody knows it."""
    name = sa.Column("submitted_by", sa.String(length=250), nullable=False, server_default="")
    with op.batch_alter_table("training_runs") as table:
        table.add_column(name)


def downgrade() -> None:
    """Forget the names."""
    with op.batch_alter_table("training_runs") as table:
        table.drop_column("submitted_by")
