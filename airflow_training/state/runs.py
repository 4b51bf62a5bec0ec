"""Runs and their resolved jobs: create, list, replace, remove. Leaves the ledger to `ledger`."""

from __future__ import annotations

import hashlib
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    delete,
    func,
    insert,
    not_,
    or_,
    select,
    update,
)

from airflow_training.control.model import TERMINAL_JOB_STATES, Ledger
from airflow_training.documents.resolved import KEY_LENGTH, ResolvedJob, RunKey
from airflow_training.errors import InputError
from airflow_training.state import addresses, leases, ledger, queue
from airflow_training.state.codec import canonical, to_json
from airflow_training.state.database import clean
from airflow_training.state.models import JobRow, LeaseRow, QueueRow, RunRow
from airflow_training.state.records import RunRecord, Version, listed_state
from airflow_training.state.reservations import forget_runs, unsettled_runs
from airflow_training.state.run_lookup import get, record_of, select_runs

if TYPE_CHECKING:
    from typing_extensions import Unpack  # of `typing` from 3.11 on

__all__ = [
    "RunFilter",
    "add",
    "append_job",
    "bodies",
    "count",
    "document_digest",
    "newest",
    "prune",
    "replace_job",
    "versions",
]

_NEVER_BEGUN = and_(RunRow.tombstone, RunRow.state.not_in(TERMINAL_JOB_STATES))
_PRUNED_AT_ONCE = 50
"""Runs per transaction: others write in between."""


def document_digest(job: ResolvedJob) -> str:
    """Digest that is equal for the same document with the same parameters.

    Dates and addresses that differ from call to call (`logical_date`, the file's folder) are no
    part of it, so a run that is started again with its own file is the same run.
    """
    document = job.document or {"resolved": to_json(job)}
    text = canonical({"document": document, "params": job.variables.get("params")})
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def add(
    connection: Connection,
    key: RunKey,
    job: ResolvedJob,
    new: Ledger,
    *,
    controller: str,
    queued: bool,
    submitted_by: str,
    now: float,
) -> RunRecord:
    """Store a run with everything that belongs to it, or return the same one that is there."""
    digest = document_digest(job)
    key.check()
    found = get(connection, key.uid)
    if found is not None:
        if found.document_digest != digest:
            raise _conflict(found)
        return found
    row = {
        "uid": key.uid,
        "source": key.source,
        "dag_id": key.dag_id,
        "run_id": key.run_id,
        "group_id": key.group_id,
        "map_index": key.map_index,
        "job": job.name,
        "namespace": job.namespace,
        "runtime": job.runtime,
        "controller": controller,
        "job_revision": 1,
        "document_digest": digest,
        "submitted_by": clean(submitted_by)[:KEY_LENGTH],
        "submitted_at": new.job.submitted_at or now,
        "tombstone": False,
        "tombstone_reason": "",
        "output": None,
        "last_seq": 0,
        "last_request": 0,
        "revision": 1,
        **ledger.job_columns(new.job),
    }
    connection.execute(insert(RunRow), row)
    _add_job(connection, key.uid, job, revision=1, now=now)
    ledger.replace(connection, key.uid, new)
    leases.add(connection, key.uid)
    if queued:
        queue.enqueue(
            connection, key.uid, priority=job.scheduling.priority, runtime=job.runtime, now=now
        )
    added = get(connection, key.uid)
    if added is None:  # what was inserted in this transaction is seen by it
        raise AssertionError(key.uid)
    return added


def replace_job(
    connection: Connection, uid: str, job: ResolvedJob, new: Ledger, *, now: float
) -> None:
    """Append a revision of the resolved job; start the ledger, addresses and output anew."""
    revision = append_job(connection, uid, job, now=now)
    ledger.replace(connection, uid, new)
    addresses.forget(connection, uid)
    connection.execute(
        update(RunRow)
        .where(RunRow.uid == uid)
        .values(
            job=job.name,
            namespace=job.namespace,
            runtime=job.runtime,
            job_revision=revision,
            document_digest=document_digest(job),
            output=None,
            revision=RunRow.revision + 1,
            **ledger.job_columns(new.job),
        )
    )


def append_job(connection: Connection, uid: str, job: ResolvedJob, *, now: float) -> int:
    """Store the next revision of a run's resolved job and return its number, for the run's row."""
    newest = select(RunRow.job_revision).where(RunRow.uid == uid)
    revision = 1 + int(connection.execute(newest).scalar_one())
    _add_job(connection, uid, job, revision=revision, now=now)
    return revision


def _add_job(
    connection: Connection, uid: str, job: ResolvedJob, *, revision: int, now: float
) -> None:
    row = {"run": uid, "revision": revision, "at": now, "body": to_json(job)}
    connection.execute(insert(JobRow), row)


def bodies(connection: Connection, uids: Iterable[str]) -> Mapping[str, str]:
    """Return the newest resolved job of each run as JSON text."""
    rows = connection.execute(
        select(JobRow.run, JobRow.body)
        .join(RunRow, (RunRow.uid == JobRow.run) & (RunRow.job_revision == JobRow.revision))
        .where(JobRow.run.in_(list(uids)))
    )
    return {row[0]: row[1] for row in rows}


def _conflict(found: RunRecord) -> InputError:
    name = shlex.quote(found.key.run_id)
    again = f" (airflow-training run --from-run {name} --run-id {name})" * (not found.key.dag_id)
    return InputError.of(
        code="conflict",
        field="run_id",
        message=f"run {found.key.run_id!r} exists with another document",
        value=found.key.run_id,
        hint=f"choose another run id, or run it again with the document it was started with{again}",
    )


class RunFilter(TypedDict, total=False):
    """Which runs are listed: those that are all of what is given."""

    states: Sequence[str]
    """Empty: any."""
    controller: str | None
    """Of one deployment."""
    job: str | None
    """Of jobs of this name."""
    sources: Collection[str] | None
    dag_ids: Collection[str] | None
    run_id: str | None
    text: str
    """In the name of the job, the DAG, the run or who submitted it."""
    ended_since: float | None
    """Those that ended then or later."""
    before: tuple[float, str | None] | None
    """Those that follow the run with this `submitted_at` and uid; without a uid, those that are older."""


def newest(
    connection: Connection, *, limit: int, **wanted: Unpack[RunFilter]
) -> Sequence[RunRecord]:
    """Return runs, newest first."""
    question = select_runs().order_by(RunRow.submitted_at.desc(), RunRow.uid).limit(limit)
    if states := wanted.get("states"):
        question = question.where(_is_listed(states))
    if (controller := wanted.get("controller")) is not None:
        question = question.where(RunRow.controller == controller)
    if (job := wanted.get("job")) is not None:
        question = question.where(RunRow.job == job)
    if (sources := wanted.get("sources")) is not None:
        question = question.where(RunRow.source.in_(list(sources)))
    if (dag_ids := wanted.get("dag_ids")) is not None:
        question = question.where(RunRow.dag_id.in_(list(dag_ids)))
    if (run_id := wanted.get("run_id")) is not None:
        question = question.where(RunRow.run_id == clean(run_id))
    if text := wanted.get("text"):
        named = (RunRow.job, RunRow.dag_id, RunRow.run_id, RunRow.submitted_by)
        question = question.where(
            or_(*(column.icontains(clean(text), autoescape=True) for column in named))
        )
    if (ended_since := wanted.get("ended_since")) is not None:
        question = question.where(_ended_since(ended_since))
    if (before := wanted.get("before")) is not None:
        at, uid = before
        follows = RunRow.submitted_at < at
        if uid is not None:
            follows = or_(follows, and_(RunRow.submitted_at == at, RunRow.uid > uid))
        question = question.where(follows)
    return [record_of(row) for row in connection.execute(question)]


def count(
    connection: Connection,
    *,
    sources: Collection[str] | None,
    dag_ids: Collection[str] | None,
    since: float,
) -> Mapping[tuple[str, str], int]:
    """Return how many runs there are per DAG and state as lists have it; of those that are over, since a time."""
    goes_on = and_(RunRow.state.not_in(TERMINAL_JOB_STATES), not_(RunRow.tombstone))
    question = (
        select(RunRow.dag_id, RunRow.state, RunRow.tombstone, func.count())
        .where(or_(goes_on, _ended_since(since)))
        .group_by(RunRow.dag_id, RunRow.state, RunRow.tombstone)
    )
    if sources is not None:
        question = question.where(RunRow.source.in_(list(sources)))
    if dag_ids is not None:
        question = question.where(RunRow.dag_id.in_(list(dag_ids)))
    counts: Counter[tuple[str, str]] = Counter()
    for dag_id, state, tombstone, found in connection.execute(question):
        counts[dag_id, listed_state(state, tombstone=tombstone)] += found
    return counts


def _is_listed(states: Sequence[str]) -> ColumnElement[bool]:
    """Return the condition of `RunRecord.listed_state` being one of these."""
    told = and_(RunRow.state.in_(list(states)), not_(_NEVER_BEGUN))
    return or_(told, _NEVER_BEGUN) if "Stopped" in states else told


def _ended_since(time: float) -> ColumnElement[bool]:
    """Return the condition of having ended then or later; when one was killed that never began nobody has kept."""
    never_begun = and_(_NEVER_BEGUN, RunRow.submitted_at >= time)
    return or_(RunRow.finished_at >= time, never_begun)


def prune(connection: Connection, *, before: float, now: float) -> int:
    """Delete some runs that ended before a time; return how many, 0 when none are left.

    A run stays while its lease is held (its holder may be cleaning up), and while something of it
    may be alive: neither drained nor removed. And one whose account was not charged for it yet.
    """
    held = select(LeaseRow.run).where(LeaseRow.owner != "", LeaseRow.expires_at > now)
    old = connection.execute(
        select(RunRow.uid)
        .where(
            RunRow.state.in_(sorted(TERMINAL_JOB_STATES)),
            RunRow.finished_at < before,
            or_(RunRow.drained, RunRow.tombstone),
            RunRow.uid.not_in(held),
            RunRow.uid.not_in(unsettled_runs()),
        )
        .order_by(RunRow.finished_at)
        .limit(_PRUNED_AT_ONCE)
    ).scalars()
    uids = list(old)
    if uids:
        forget_runs(connection, uids)
        # everything that belongs to a run goes with it (ON DELETE CASCADE)
        connection.execute(delete(RunRow).where(RunRow.uid.in_(uids)))
    return len(uids)


def versions(connection: Connection, uids: Sequence[str], *, now: float) -> Mapping[str, Version]:
    """Return the change markers of the runs that exist."""
    rows = connection.execute(
        select(
            RunRow.uid,
            RunRow.revision,
            RunRow.last_seq,
            RunRow.last_request,
            RunRow.tombstone,
            LeaseRow.generation,
            LeaseRow.owner,
            LeaseRow.expires_at,
            QueueRow.run.label("queue_run"),
            QueueRow.started_at.label("queue_started_at"),
        )
        .join(LeaseRow, LeaseRow.run == RunRow.uid)
        .join(QueueRow, QueueRow.run == RunRow.uid, isouter=True)
        .where(RunRow.uid.in_(list(dict.fromkeys(uids))))
    )
    return {
        row.uid: Version(
            revision=row.revision,
            last_seq=row.last_seq,
            last_request=row.last_request,
            generation=row.generation,
            held=bool(row.owner) and row.expires_at > now,
            queued=row.queue_run is not None and row.queue_started_at is None,
            tombstone=row.tombstone,
        )
        for row in rows
    }
