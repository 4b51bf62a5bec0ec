"""The ledger of a run: load it, write what changed of it. Never decides, never checks a lease."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, delete, select

from airflow_training.control.model import (
    TERMINAL_JOB_STATES,
    InstanceEntry,
    JobEntry,
    Ledger,
    RoleEntry,
)
from airflow_training.state import addresses, usage
from airflow_training.state.codec import compact_json, from_json, many_from_json
from airflow_training.state.database import upsert
from airflow_training.state.models import InstanceRow, RoleRow, RunRow, table_of

__all__ = ["changed_instances", "job_columns", "load", "replace", "write_changes"]

_DELETE_INSTANCE = delete(InstanceRow).where(
    InstanceRow.run == bindparam("of"),
    InstanceRow.role == bindparam("gone_role"),
    InstanceRow.index == bindparam("gone_index"),
)


def load(connection: Connection, jobs: Mapping[str, str]) -> Mapping[str, Ledger]:
    """Return the ledgers of many runs in two queries; `jobs`: run -> its `entry` text."""
    roles: dict[str, list[str]] = defaultdict(list)
    for run, entry in connection.execute(
        select(RoleRow.run, RoleRow.entry)
        .where(RoleRow.run.in_(jobs))
        .order_by(RoleRow.run, RoleRow.position)
    ):
        roles[run].append(entry)
    instances: dict[str, list[str]] = defaultdict(list)
    for run, entry in connection.execute(
        select(InstanceRow.run, InstanceRow.entry)
        .where(InstanceRow.run.in_(jobs))
        .order_by(InstanceRow.run, InstanceRow.role, InstanceRow.index)
    ):
        instances[run].append(entry)
    return {
        run: Ledger(
            job=from_json(JobEntry, job),
            roles={each.role: each for each in many_from_json(RoleEntry, roles[run])},
            instances={each.key: each for each in many_from_json(InstanceEntry, instances[run])},
        )
        for run, job in jobs.items()
    }


def job_columns(job: JobEntry) -> Mapping[str, Any]:
    """Return the columns of the run that follow from its job entry."""
    over = job.state in TERMINAL_JOB_STATES
    return {
        "entry": compact_json(job),
        "state": job.state,
        "condition": job.condition,
        "finished_at": (job.finished_at or job.last_transition_at) if over else None,
        "drained": over and job.drained,
    }


def replace(connection: Connection, uid: str, new: Ledger) -> None:
    """Write all roles and instances anew; job entry and usage are the caller's."""
    connection.execute(delete(RoleRow).where(RoleRow.run == uid))
    connection.execute(delete(InstanceRow).where(InstanceRow.run == uid))
    _write_roles(connection, uid, old={}, new=new.roles)
    _write_instances(connection, uid, new.instances.values())


def changed_instances(old: Ledger, new: Ledger) -> Sequence[usage.Change]:
    """Return (before, after) of every instance entry that is not the same any more."""
    before, after = old.instances, new.instances
    changes: list[usage.Change] = []
    for key, entry in after.items():
        was = before.get(key)
        # `is` first: a decision keeps the entries it leaves alone, and there may be thousands.
        if was is not entry and was != entry:
            changes.append((was, entry))
    if len(before) + sum(was is None for was, _ in changes) != len(after):
        changes.extend((was, None) for key, was in before.items() if key not in after)
    return changes


def write_changes(
    connection: Connection,
    uid: str,
    *,
    old: Ledger,
    new: Ledger,
    resources: Mapping[str, Mapping[str, str]] | None,
    now: float,
) -> Mapping[str, Any]:
    """Write changed roles, instances, live addresses and usage; return the run's columns to set."""
    changes = changed_instances(old, new)
    _write_roles(connection, uid, old=old.roles, new=new.roles)
    if changes:
        _write_instances(connection, uid, (entry for _, entry in changes if entry is not None))
        gone = [
            {"of": uid, "gone_role": was.role, "gone_index": was.index}
            for was, entry in changes
            if entry is None and was is not None
        ]
        if gone:
            connection.execute(_DELETE_INSTANCE, gone)
        addresses.follow(connection, uid, changes)
        usage.record(connection, uid, changes=changes, resources=resources, now=now)
    usage.record_kept(connection, uid, old.job.kept, new.job.kept, now=now)
    if old.job is new.job or old.job == new.job:
        return {"revision": RunRow.revision + 1} if changes or old.roles != new.roles else {}
    return {**job_columns(new.job), "revision": RunRow.revision + 1}


def _write_roles(
    connection: Connection,
    uid: str,
    *,
    old: Mapping[str, RoleEntry],
    new: Mapping[str, RoleEntry],
) -> None:
    rows = [
        {
            "run": uid,
            "role": role,
            "position": position,
            "state": entry.state,
            "entry": compact_json(entry),
        }
        for position, (role, entry) in enumerate(new.items())
        if old.get(role) != entry
    ]
    upsert(connection, table_of(RoleRow), rows)
    gone = [role for role in old if role not in new]
    if gone:
        connection.execute(delete(RoleRow).where(RoleRow.run == uid, RoleRow.role.in_(gone)))


def _write_instances(connection: Connection, uid: str, entries: Iterable[InstanceEntry]) -> None:
    rows = [
        {
            "run": uid,
            "role": entry.role,
            "index": entry.index,
            "state": entry.state,
            "entry": compact_json(entry),
        }
        for entry in entries
    ]
    upsert(connection, table_of(InstanceRow), rows)
