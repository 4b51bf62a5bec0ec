"""Several processes of one instance report the same metric, each its own series."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_KEY = "pk_training_metrics"


def upgrade() -> None:
    """Give every value a rank, in its key; what is there was told of the instance."""
    rank = sa.Column("rank", sa.Integer(), nullable=False, server_default="-1")
    with op.batch_alter_table("training_metrics") as table:
        table.add_column(rank)
        table.drop_constraint(_KEY, type_="primary")
        table.create_primary_key(_KEY, ["run", "role", "index", "rank", "name", "at"])


def downgrade() -> None:
    """Keep the values of instances; those of ranks are lost."""
    rank = sa.column("rank", sa.Integer())
    op.execute(sa.delete(sa.table("training_metrics", rank)).where(rank >= 0))
    with op.batch_alter_table("training_metrics") as table:
        table.drop_constraint(_KEY, type_="primary")
        table.drop_column("rank")
        table.create_primary_key(_KEY, ["run", "role", "index", "name", "at"])
