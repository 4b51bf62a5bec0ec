"""Instances of a run whose processes have not ended: who of them gets nowhere, by log and store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_training.cli.stored_series import stored_series, with_rank

if TYPE_CHECKING:
    from airflow_training.logs.health.ranks import Rank
    from airflow_training.logs.model import FileScan, Finding, InstanceFact
    from airflow_training.supervise.instance_logs import RunLogs

__all__ = ["RunningInstances", "running_instances"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningInstances:
    """What is known of the instances of one run that are running."""

    facts: Sequence[InstanceFact] = ()
    hangs: Sequence[Finding] = ()


def running_instances(run: RunLogs, scans: Sequence[FileScan]) -> RunningInstances:
    """Return who runs, and which ranks make no progress; `scans`: of the run's logs. Blocks.

    An instance in a section that its script announced is not judged here: its agent does that.
    """
    from airflow_training.logs.health.hangs import hangs
    from airflow_training.logs.health.ranks import by_rank
    from airflow_training.logs.model import InstanceFact

    store, uid = run.store, run.record.uid
    state = store.read([uid])[uid]
    now = store.now()
    begun = {
        key: entry.started_at or now
        for key, entry in state.ledger.instances.items()
        if entry.state == "running" and entry.desired
    }
    if not begun:
        return RunningInstances()
    said = store.progress.newest(uid)
    driven = state.lease is not None and state.lease.expires_at > now
    # without a holder nobody brings to the store what the instances print
    stored = stored_series(run, since=begun) if driven else ()
    ranks = {scan.origin.file: scan.origin.rank for scan in scans}
    logged = by_rank([each for scan in scans for each in scan.series])
    return RunningInstances(
        facts=[
            InstanceFact(role=role, index=index, reason="Running") for role, index in sorted(begun)
        ],
        hangs=hangs(
            _timed(logged, by_rank([with_rank(each, ranks.get(each.file)) for each in stored])),
            until={
                str(key): now
                for key in begun
                if (told := said.get(key)) is None or not told.section
            },
            last_lines={scan.origin.file: scan.tail for scan in scans},
        ),
    )


def _timed(logged: Sequence[Rank], stored: Sequence[Rank]) -> Sequence[Rank]:
    """Return the ranks as their logs tell, with the times of the store where the lines have none.

    Not those of a rank that has got further than the store knows.
    """
    from airflow_training.logs.health.ranks import Rank

    known = {each.key: each for each in logged}
    for rank in stored:
        log = known.get(rank.key)
        if log is None:
            known[rank.key] = rank
        elif log.last_time is None and (log.last_step or 0.0) <= (rank.last_step or 0.0):
            known[rank.key] = Rank(key=rank.key, metrics={**log.metrics, **rank.metrics})
    return list(known.values())
