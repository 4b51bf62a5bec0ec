"""What somebody asks of a run twice by mistake is asked once."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_INDEX = "ix_training_requests_run_idempotency_key"


def upgrade() -> None:
    """Add the key; requests that are there have none."""
    with op.batch_alter_table("training_requests") as table:
        table.add_column(sa.Column("idempotency_key", sa.String(length=128), nullable=True))
        table.create_index(_INDEX, ["run", "idempotency_key"], unique=True)


def downgrade() -> None:
    """Forget the keys."""
    with op.batch_alter_table("training_requests") as table:
        table.drop_index(_INDEX)
        table.drop_column("idempotency_key")
