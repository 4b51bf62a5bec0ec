"""Where each process of a run stands, and what its instances had around them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

JSON = sa.Text().with_variant(sa.Text(2**32 - 1), "mysql", "mariadb")


def upgrade() -> None:
    """Create the tables, empty."""
    op.create_table(
        "training_subtasks",
        sa.Column("run", sa.String(length=20), nullable=False),
        sa.Column("group", sa.String(length=80), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("body", JSON, nullable=False),
        sa.ForeignKeyConstraint(
            ["run"], ["training_runs.uid"], name="fk_training_subtasks_run", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run", "group", name="pk_training_subtasks"),
    )
    op.create_table(
        "training_environment",
        sa.Column("run", sa.String(length=20), nullable=False),
        sa.Column("role", sa.String(length=63), nullable=False),
        sa.Column("index", sa.Integer(), nullable=False),
        sa.Column("slot", sa.Integer(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.String(length=71), nullable=False),
        sa.Column("body", JSON, nullable=False),
        sa.ForeignKeyConstraint(
            ["run"], ["training_runs.uid"], name="fk_training_environment_run", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run", "role", "index", "slot", name="pk_training_environment"),
    )


def downgrade() -> None:
    """Drop the tables; what was recorded is lost."""
    op.drop_table("training_environment")
    op.drop_table("training_subtasks")
