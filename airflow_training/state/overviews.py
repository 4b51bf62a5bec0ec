"""What lists and phrases need of many runs, without their ledgers' instances and their documents."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, case, func, select

from airflow_training.control.model import STOPS, JobEntry
from airflow_training.state import run_lookup
from airflow_training.state.codec import from_json
from airflow_training.state.models import InstanceRow, LeaseRow, RequestRow, RunRow
from airflow_training.state.records import Driver, RunMark, RunOverview

__all__ = ["load"]


def load(connection: Connection, uids: Sequence[str], *, now: float) -> Mapping[str, RunOverview]:
    """Return the overviews of the runs that exist, in three queries."""
    wanted = list(dict.fromkeys(uids))
    asked = {
        row.run: row
        for row in connection.execute(
            select(
                RequestRow.run,
                func.max(case((RequestRow.kind != "activate", RequestRow.id))).label("steered"),
                func.max(case((RequestRow.kind.in_(STOPS), RequestRow.id))).label("stopped"),
                func.max(case((RequestRow.kind == "kill", RequestRow.id))).label("killed"),
            )
            .where(RequestRow.run.in_(wanted))
            .group_by(RequestRow.run)
        )
    }
    counts: dict[str, dict[str, int]] = defaultdict(dict)
    for run, state, count in connection.execute(
        select(InstanceRow.run, InstanceRow.state, func.count())
        .where(InstanceRow.run.in_(wanted))
        .group_by(InstanceRow.run, InstanceRow.state)
    ):
        counts[run][state] = count
    found: dict[str, RunOverview] = {}
    for row in connection.execute(
        run_lookup.select_runs()
        .add_columns(RunRow.entry, LeaseRow.owner, LeaseRow.expires_at)
        .join(LeaseRow, LeaseRow.run == RunRow.uid)
        .where(RunRow.uid.in_(wanted))
    ):
        entry = from_json(JobEntry, row.entry)
        requests = asked.get(row.uid)
        stopped = (requests.stopped if requests is not None else None) or 0
        killed = (requests.killed if requests is not None else None) or 0
        found[row.uid] = RunOverview(
            record=run_lookup.record_of(row),
            entry=entry,
            mark=RunMark(
                epoch=entry.epoch, request=(requests.steered if requests is not None else None) or 0
            ),
            stop_requested=stopped > entry.seen_request,
            kill_requested=killed > entry.seen_request,
            held=bool(row.owner) and row.expires_at > now,
            lost=bool(row.owner) and row.expires_at <= now,
            instances=counts[row.uid],
            driver=Driver(owner=row.owner, until=row.expires_at),
        )
    return found
