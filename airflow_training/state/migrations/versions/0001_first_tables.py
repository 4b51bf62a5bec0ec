"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

JSON = sa.Text().with_variant(sa.Text(2**32 - 1), "mysql", "mariadb")


def _run() -> sa.Column[str]:
    return sa.Column("run", sa.String(length=20), nullable=False)


def _of_run(name: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["run"], ["training_runs.uid"], name=name, ondelete="CASCADE")


def upgrade() -> None:
    """Create every table, and the row whose lock serialises the queue."""
    op.create_table(
        "training_meta",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_training_meta"),
    )
    op.create_table(
        "training_runs",
        sa.Column("uid", sa.String(length=20), nullable=False),
        sa.Column("source", sa.String(length=250), nullable=False),
        sa.Column("dag_id", sa.String(length=250), nullable=False),
        sa.Column("run_id", sa.String(length=250), nullable=False),
        sa.Column("group_id", sa.String(length=250), nullable=False),
        sa.Column("map_index", sa.Integer(), nullable=False),
        sa.Column("job", sa.String(length=250), nullable=False),
        sa.Column("namespace", sa.String(length=64), nullable=False),
        sa.Column("runtime", sa.String(length=64), nullable=False),
        sa.Column("controller", sa.String(length=250), nullable=False),
        sa.Column("job_revision", sa.Integer(), nullable=False),
        sa.Column("document_digest", sa.String(length=71), nullable=False),
        sa.Column("state", sa.String(length=64), nullable=False),
        sa.Column("condition", sa.String(length=64), nullable=False),
        sa.Column("submitted_at", sa.Double(), nullable=False),
        sa.Column("finished_at", sa.Double()),
        sa.Column("drained", sa.Boolean(), nullable=False),
        sa.Column("entry", JSON, nullable=False),
        sa.Column("tombstone", sa.Boolean(), nullable=False),
        sa.Column("tombstone_reason", sa.Text(), nullable=False),
        sa.Column("output", JSON),
        sa.Column("last_seq", sa.Integer(), nullable=False),
        sa.Column("last_request", sa.Integer(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("uid", name="pk_training_runs"),
    )
    op.create_index("ix_training_runs_run_id", "training_runs", ["run_id"])
    op.create_index("ix_training_runs_state_finished_at", "training_runs", ["state", "finished_at"])
    op.create_index("ix_training_runs_submitted_at", "training_runs", ["submitted_at"])
    op.create_table(
        "training_addresses",
        _run(),
        sa.Column("role", sa.String(length=63), nullable=False),
        sa.Column("index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("fixed", JSON),
        sa.Column("live", sa.Text(), nullable=False),
        _of_run("fk_training_addresses_run"),
        sa.PrimaryKeyConstraint("run", "role", "index", name="pk_training_addresses"),
    )
    op.create_table(
        "training_events",
        _run(),
        sa.Column("seq", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("reason", sa.String(length=250), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("role", sa.String(length=63), nullable=False),
        sa.Column("index", sa.Integer()),
        sa.Column("attempt", sa.Integer()),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("level", sa.String(length=64), nullable=False),
        sa.Column("data", JSON, nullable=False),
        _of_run("fk_training_events_run"),
        sa.PrimaryKeyConstraint("run", "seq", name="pk_training_events"),
    )
    op.create_table(
        "training_jobs",
        _run(),
        sa.Column("revision", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("body", JSON, nullable=False),
        _of_run("fk_training_jobs_run"),
        sa.PrimaryKeyConstraint("run", "revision", name="pk_training_jobs"),
    )
    op.create_table(
        "training_leases",
        _run(),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        _of_run("fk_training_leases_run"),
        sa.PrimaryKeyConstraint("run", name="pk_training_leases"),
    )
    op.create_table(
        "training_ledger",
        _run(),
        sa.Column("role", sa.String(length=63), nullable=False),
        sa.Column("index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("state", sa.String(length=64), nullable=False),
        sa.Column("entry", JSON, nullable=False),
        _of_run("fk_training_ledger_run"),
        sa.PrimaryKeyConstraint("run", "role", "index", name="pk_training_ledger"),
    )
    op.create_table(
        "training_metrics",
        _run(),
        sa.Column("role", sa.String(length=63), nullable=False),
        sa.Column("index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("name", sa.String(length=250), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("step", sa.BigInteger()),
        sa.Column("value", sa.Double()),
        _of_run("fk_training_metrics_run"),
        sa.PrimaryKeyConstraint("run", "role", "index", "name", "at", name="pk_training_metrics"),
    )
    op.create_table(
        "training_progress",
        _run(),
        sa.Column("role", sa.String(length=63), nullable=False),
        sa.Column("index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("body", JSON, nullable=False),
        _of_run("fk_training_progress_run"),
        sa.PrimaryKeyConstraint("run", "role", "index", name="pk_training_progress"),
    )
    op.create_table(
        "training_queue",
        _run(),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("ticket", sa.BigInteger(), nullable=False),
        sa.Column("runtime", sa.String(length=64), nullable=False),
        sa.Column("wants", JSON),
        sa.Column("polled_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double()),
        _of_run("fk_training_queue_run"),
        sa.PrimaryKeyConstraint("run", name="pk_training_queue"),
    )
    op.create_index(
        "ix_training_queue_started_at_priority_ticket",
        "training_queue",
        ["started_at", "priority", "ticket"],
    )
    op.create_table(
        "training_requests",
        _run(),
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(length=64), nullable=False),
        sa.Column("role", sa.String(length=63), nullable=False),
        sa.Column("replicas", sa.Integer()),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        _of_run("fk_training_requests_run"),
        sa.PrimaryKeyConstraint("run", "id", name="pk_training_requests"),
    )
    op.create_table(
        "training_roles",
        _run(),
        sa.Column("role", sa.String(length=63), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=64), nullable=False),
        sa.Column("entry", JSON, nullable=False),
        _of_run("fk_training_roles_run"),
        sa.PrimaryKeyConstraint("run", "role", name="pk_training_roles"),
    )
    op.create_table(
        "training_usage",
        _run(),
        sa.Column("role", sa.String(length=63), nullable=False),
        sa.Column("index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("epoch", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("job_attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("finished_at", sa.Double()),
        sa.Column("resources", JSON, nullable=False),
        _of_run("fk_training_usage_run"),
        sa.PrimaryKeyConstraint(
            "run", "role", "index", "epoch", "job_attempt", "attempt", name="pk_training_usage"
        ),
    )
    op.execute("INSERT INTO training_meta (name, value) VALUES ('queue', '')")


def downgrade() -> None:
    """Drop everything; the history of all runs is lost."""
    op.drop_table("training_usage")
    op.drop_table("training_roles")
    op.drop_table("training_requests")
    op.drop_table("training_queue")
    op.drop_table("training_progress")
    op.drop_table("training_metrics")
    op.drop_table("training_ledger")
    op.drop_table("training_leases")
    op.drop_table("training_jobs")
    op.drop_table("training_events")
    op.drop_table("training_addresses")
    op.drop_table("training_runs")
    op.drop_table("training_meta")
