"""The tables. Only shapes live here: no query, no connection, no rule.

Every table is called `training_…`, so that the store may share a database with Airflow's own
tables without touching them. Times are epoch seconds. What decisions read and write (job, roles,
instances) is kept as JSON text of its dataclass beside the few columns that queries need, so that
a new field of the ledger needs no migration; what people query is kept as columns.
"""

from __future__ import annotations

from typing import Annotated, cast

from sqlalchemy import BigInteger, Double, ForeignKey, Index, MetaData, String, Table, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

__all__ = [
    "AddressRow",
    "Base",
    "DataReadingRow",
    "EnvironmentRow",
    "EventRow",
    "InstanceRow",
    "JobRow",
    "LeaseRow",
    "LogPositionRow",
    "MeasurementRow",
    "MetaRow",
    "MetricRow",
    "NodeExclusionRow",
    "NodeFaultRow",
    "PresetRow",
    "ProgressRow",
    "QueueRow",
    "RequestRow",
    "RoleRow",
    "RunRow",
    "SubtasksRow",
    "UsageRow",
    "table_of",
]

Json = Annotated[str, mapped_column(Text().with_variant(Text(2**32 - 1), "mysql", "mariadb"))]
"""MySQL's text ends at 64 KiB unless it is told otherwise."""
LongText = Annotated[str, mapped_column(Text)]
Name = Annotated[str, mapped_column(String(63))]
"""A role: an RFC 1123 label."""
Seconds = Annotated[float, mapped_column(Double)]
Uid = Annotated[str, mapped_column(String(20))]
Word = Annotated[str, mapped_column(String(64))]
OfRun = Annotated[
    str, mapped_column(String(20), ForeignKey("training_runs.uid", ondelete="CASCADE"))
]


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class MetaRow(Base):
    """Facts beside the runs: the deployment id, Airflow's pools, the row that locks the queue."""

    __tablename__ = "training_meta"
    name: Mapped[Word] = mapped_column(primary_key=True)
    value: Mapped[LongText]


class RunRow(Base):
    """One execution of a job, its job-level ledger entry, and its counters."""

    __tablename__ = "training_runs"
    __table_args__ = (
        Index(None, "run_id"),
        Index(None, "submitted_at"),
        Index(None, "state", "finished_at"),
    )
    uid: Mapped[Uid] = mapped_column(primary_key=True)
    source: Mapped[str] = mapped_column(String(250))
    dag_id: Mapped[str] = mapped_column(String(250))
    run_id: Mapped[str] = mapped_column(String(250))
    group_id: Mapped[str] = mapped_column(String(250))
    map_index: Mapped[int]
    job: Mapped[str] = mapped_column(String(250))
    namespace: Mapped[Word]
    runtime: Mapped[Word]
    controller: Mapped[str] = mapped_column(String(250))
    job_revision: Mapped[int]
    """Newest row of `training_jobs`."""
    document_digest: Mapped[str] = mapped_column(String(71))
    submitted_by: Mapped[str] = mapped_column(String(250), server_default="")
    state: Mapped[Word]
    condition: Mapped[Word]
    submitted_at: Mapped[Seconds]
    finished_at: Mapped[Seconds | None]
    drained: Mapped[bool]
    entry: Mapped[Json]
    """`JobEntry`."""
    tombstone: Mapped[bool]
    tombstone_reason: Mapped[LongText]
    output: Mapped[Json | None]
    last_seq: Mapped[int]
    """Newest event. Counted here, under the lock of this row: no gaps, seen in order."""
    last_request: Mapped[int]
    revision: Mapped[int]
    """Counts every change of job, ledger and addresses: readers keep what they decoded."""


class JobRow(Base):
    """A resolved job of a run; a re-plan appends the next revision."""

    __tablename__ = "training_jobs"
    run: Mapped[OfRun] = mapped_column(primary_key=True)
    revision: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at: Mapped[Seconds]
    body: Mapped[Json]
    """`ResolvedJob`."""


class RoleRow(Base):
    """Ledger of a role."""

    __tablename__ = "training_roles"
    run: Mapped[OfRun] = mapped_column(primary_key=True)
    role: Mapped[Name] = mapped_column(primary_key=True)
    position: Mapped[int]
    state: Mapped[Word]
    entry: Mapped[Json]
    """`RoleEntry`."""


class InstanceRow(Base):
    """Ledger of one instance: what is intended, written before it is done."""

    __tablename__ = "training_ledger"
    run: Mapped[OfRun] = mapped_column(primary_key=True)
    role: Mapped[Name] = mapped_column(primary_key=True)
    index: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    state: Mapped[Word]
    entry: Mapped[Json]
    """`InstanceEntry`."""


class RequestRow(Base):
    """What anybody else wants of a run; `id` counts per run, in the order of commits."""

    __tablename__ = "training_requests"
    __table_args__ = (Index(None, "run", "idempotency_key", unique=True),)
    run: Mapped[OfRun] = mapped_column(primary_key=True)
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    kind: Mapped[Word]
    role: Mapped[Name]
    replicas: Mapped[int | None]
    reason: Mapped[LongText]
    by: Mapped[LongText]
    at: Mapped[Seconds]
    idempotency_key: Mapped[str | None] = mapped_column(String(128))
    """Of whoever asks again where no answer came; NULL: asked once, or twice on purpose."""


class AddressRow(Base):
    """The address book: the address that never changes, and the one that is live now."""

    __tablename__ = "training_addresses"
    run: Mapped[OfRun] = mapped_column(primary_key=True)
    role: Mapped[Name] = mapped_column(primary_key=True)
    index: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    fixed: Mapped[Json | None]
    """`{host, ports}` from `prepare`."""
    live: Mapped[LongText]
    """`host:port` while the instance answers there, else empty."""


class EventRow(Base):
    """One line of a run's story. Rows are only ever added."""

    __tablename__ = "training_events"
    run: Mapped[OfRun] = mapped_column(primary_key=True)
    seq: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at: Mapped[Seconds]
    reason: Mapped[str] = mapped_column(String(250))
    message: Mapped[LongText]
    role: Mapped[Name]
    index: Mapped[int | None]
    attempt: Mapped[int | None]
    rule: Mapped[LongText]
    level: Mapped[Word]
    data: Mapped[Json]


class ProgressRow(Base):
    """The newest progress line of an instance."""

    __tablename__ = "training_progress"
    run: Mapped[OfRun] = mapped_column(primary_key=True)
    role: Mapped[Name] = mapped_column(primary_key=True)
    index: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    body: Mapped[Json]


class DataReadingRow(Base):
    """What an instance has read of its data."""

    __tablename__ = "training_data_readings"
    run: Mapped[OfRun] = mapped_column(primary_key=True)
    role: Mapped[Name] = mapped_column(primary_key=True)
    index: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    body: Mapped[Json]
    """`DataReading`."""


class MetricRow(Base):
    """One value of a series. The script's time is part of the key: a line sent twice is one row."""

    __tablename__ = "training_metrics"
    run: Mapped[OfRun] = mapped_column(primary_key=True)
    role: Mapped[Name] = mapped_column(primary_key=True)
    index: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    rank: Mapped[int] = mapped_column(primary_key=True, autoincrement=False, server_default="-1")
    """As the lines of the log say; -1: told of the instance."""
    name: Mapped[str] = mapped_column(String(250), primary_key=True)
    at: Mapped[Seconds] = mapped_column(primary_key=True)
    step: Mapped[int | None] = mapped_column(BigInteger)
    value: Mapped[Seconds | None]
    """NULL: not a number (a loss that exploded is worth knowing)."""


class LogPositionRow(Base):
    """How far an instance's log was read for its metrics and progress."""

    __tablename__ = "training_log_positions"
    run: Mapped[OfRun] = mapped_column(primary_key=True)
    role: Mapped[Name] = mapped_column(primary_key=True)
    index: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    body: Mapped[Json]
    """`LogPosition`."""


class SubtasksRow(Base):
    """Where each process of one checkpoint group stands: `control.subtask_snapshot`."""

    __tablename__ = "training_subtasks"
    run: Mapped[OfRun] = mapped_column(primary_key=True)
    group: Mapped[str] = mapped_column(String(80), primary_key=True)
    """`<role>-<index>` of an instance whose checkpoints are its own, else empty."""
    at: Mapped[Seconds]
    body: Mapped[Json]


class EnvironmentRow(Base):
    """One record of what an instance had around it, in one of a few places that are used in turn."""

    __tablename__ = "training_environment"
    run: Mapped[OfRun] = mapped_column(primary_key=True)
    role: Mapped[Name] = mapped_column(primary_key=True)
    index: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    slot: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    """0 to 9: the newest; 10: the newest exit; 11 to 13: those that the newest saves name."""
    number: Mapped[int] = mapped_column(BigInteger)
    """1, 2, 3, ... of the instance, across its attempts."""
    digest: Mapped[str] = mapped_column(String(71))
    """Of the line as the agent wrote it."""
    body: Mapped[Json]


class MeasurementRow(Base):
    """What a run measured under one of its plans."""

    __tablename__ = "training_measurements"
    __table_args__ = (Index(None, "subject", "at"),)
    run: Mapped[OfRun] = mapped_column(primary_key=True)
    plan: Mapped[Word] = mapped_column(primary_key=True)
    subject: Mapped[Word]
    """Model, framework and kind of nodes, as a digest: what other plans may learn from it."""
    at: Mapped[Seconds]
    body: Mapped[Json]
    """`Measurement` without what stands in the columns."""


class UsageRow(Base):
    """What one attempt of one instance used, from its start to its end (or until now)."""

    __tablename__ = "training_usage"
    run: Mapped[OfRun] = mapped_column(primary_key=True)
    role: Mapped[Name] = mapped_column(primary_key=True)
    index: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    epoch: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    job_attempt: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    attempt: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    started_at: Mapped[Seconds]
    finished_at: Mapped[Seconds | None]
    resources: Mapped[Json]


class QueueRow(Base):
    """A run that waits, or that started and is not over: then it still takes its place."""

    __tablename__ = "training_queue"
    __table_args__ = (Index(None, "started_at", "priority", "ticket"),)
    run: Mapped[OfRun] = mapped_column(primary_key=True)
    priority: Mapped[int]
    ticket: Mapped[int] = mapped_column(BigInteger)
    """First come, first served."""
    runtime: Mapped[Word]
    wants: Mapped[Json | None]
    """Resources of the local machine; NULL until the run has asked to start."""
    polled_at: Mapped[Seconds]
    """When somebody last asked to start it: a run nobody waits for holds nobody back."""
    started_at: Mapped[Seconds | None]


class LeaseRow(Base):
    """Who may write the run's ledger. `generation` only ever grows."""

    __tablename__ = "training_leases"
    run: Mapped[OfRun] = mapped_column(primary_key=True)
    owner: Mapped[LongText]
    """Empty: nobody."""
    generation: Mapped[int]
    expires_at: Mapped[Seconds]


class PresetRow(Base):
    """A document that a user keeps to begin trainings with. Rows are only ever added."""

    __tablename__ = "training_presets"
    user: Mapped[str] = mapped_column(String(250), primary_key=True)
    name: Mapped[Name] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    description: Mapped[LongText]
    created_at: Mapped[Seconds]
    document: Mapped[Json]
    """As it was typed: YAML, its comments too."""


class NodeFaultRow(Base):
    """A failure that speaks against the node it happened on."""

    __tablename__ = "training_node_faults"
    __table_args__ = (Index(None, "runtime", "at"),)
    run: Mapped[OfRun] = mapped_column(primary_key=True)
    role: Mapped[Name] = mapped_column(primary_key=True)
    index: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    epoch: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    attempt: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    runtime: Mapped[Word]
    connection: Mapped[str] = mapped_column(String(250))
    node: Mapped[str] = mapped_column(String(250))
    at: Mapped[Seconds]
    blame: Mapped[Word]
    why: Mapped[LongText]


class NodeExclusionRow(Base):
    """A node of a cluster that nothing new is placed on, or that was allowed again."""

    __tablename__ = "training_node_exclusions"
    runtime: Mapped[Word] = mapped_column(primary_key=True)
    connection: Mapped[str] = mapped_column(String(250), primary_key=True)
    node: Mapped[str] = mapped_column(String(250), primary_key=True)
    since: Mapped[Seconds]
    until: Mapped[Seconds | None]
    """When it ends, or has ended; NULL: when somebody allows the node again."""
    why: Mapped[LongText]
    by: Mapped[str] = mapped_column(String(250))


def table_of(row: type[Base]) -> Table:
    """Return the table behind a row class, for statements that only tables have."""
    return cast("Table", row.__table__)
