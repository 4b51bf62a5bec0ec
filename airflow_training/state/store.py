"""The store's API. Synchronous and thread-safe; callers on an event loop use `asyncio.to_thread`.

Each method is one transaction. Runs, what is asked and said of them and who drives them are here; what
else is kept of them has a part each: `store.usage.of_run(uid)`. Statements live in the modules beside this one.
Every method raises RuntimeUnavailable where the database cannot be reached now, and InputError
(`bad_reference`) for a run that does not exist, unless it says otherwise.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from sqlalchemy import exc, select

from airflow_training.control.model import TERMINAL_JOB_STATES, Event, Ledger, Request, RequestKind
from airflow_training.control.run_output import RunOutput
from airflow_training.documents.resolved import ResolvedJob, RunKey
from airflow_training.settings import load_settings
from airflow_training.state import (
    checkpoint_events,
    history,
    leases,
    overviews,
    past_waits,
    run_lookup,
    runs,
)
from airflow_training.state import ledger as ledger_rows
from airflow_training.state import queue as waiting_line
from airflow_training.state import usage as usage_rows
from airflow_training.state.accounts import Accounts
from airflow_training.state.addresses import AddressBook
from airflow_training.state.airflow_facts import AirflowFacts
from airflow_training.state.codec import to_json
from airflow_training.state.database import Database, clean, translated_errors
from airflow_training.state.deployment import DeploymentFacts
from airflow_training.state.environment import EnvironmentRecords
from airflow_training.state.log_values import LogValues
from airflow_training.state.measurements import Measurements
from airflow_training.state.metrics import MetricSeries
from airflow_training.state.models import RunRow
from airflow_training.state.networks import SavedNetwork, SavedNetworks
from airflow_training.state.nodes import NodeRecords
from airflow_training.state.outage import Outage
from airflow_training.state.presets import Presets
from airflow_training.state.progress import ReportedProgress
from airflow_training.state.queue import RunQueue
from airflow_training.state.reading import Reader
from airflow_training.state.records import (
    Driver,
    Lease,
    LogPosition,
    LogValue,
    Measurement,
    MetricColumns,
    MetricPoint,
    RunMark,
    RunOverview,
    RunRecord,
    RunState,
    StoredEvent,
    Version,
)
from airflow_training.state.reservations import Reservations
from airflow_training.state.runs import RunFilter
from airflow_training.state.subtasks import SubtaskSnapshots
from airflow_training.state.upgrade import check, ensure_current, upgrade
from airflow_training.state.usage import UsageRecords

if TYPE_CHECKING:
    from typing_extensions import Unpack  # of `typing` from 3.11 on

__all__ = [
    "Lease",
    "LogPosition",
    "LogValue",
    "Measurement",
    "MetricColumns",
    "MetricPoint",
    "RunMark",
    "RunOverview",
    "RunRecord",
    "RunState",
    "SavedNetwork",
    "Store",
    "StoredEvent",
    "Version",
    "check",
    "deployment_id",
    "open_store",
    "upgrade",
]


class Store:
    """Opens (and on first use upgrades, under a lock) the database behind `url`."""

    def __init__(self, url: str, *, clock: Callable[[], float] | None = None) -> None:
        """`clock`: instead of the host's (SQLite) or the server's own clock."""
        self.url = url
        self._db = Database(url, clock=clock)
        with translated_errors(self._db.url):
            ensure_current(self._db.engine)
        self._reader = Reader()
        self.accounts = Accounts(self._db)
        self.airflow = AirflowFacts(self._db)
        self.addresses = AddressBook(self._db)
        self.deployment = DeploymentFacts(self._db)
        self.environments = EnvironmentRecords(self._db)
        self.log_values = LogValues(self._db)
        self.measurements = Measurements(self._db)
        self.metrics = MetricSeries(self._db)
        self.networks = SavedNetworks(self._db)
        self.nodes = NodeRecords(self._db)
        self.presets = Presets(self._db)
        self.progress = ReportedProgress(self._db)
        self.queue = RunQueue(self._db)
        self.reservations = Reservations(self._db)
        self.subtasks = SubtaskSnapshots(self._db)
        self.usage = UsageRecords(self._db)

    @property
    def outage(self) -> Outage:
        """The outage notice of this store, shared by all its users."""
        return self._db.outage

    def now(self) -> float:
        """Return the store's clock, epoch seconds (leases live by it)."""
        return self._db.now()

    # runs ------------------------------------------------------------------------------------
    def create_run(
        self,
        key: RunKey,
        job: ResolvedJob,
        ledger: Ledger,
        *,
        controller: str,
        queue: bool,
        submitted_by: str = "",
    ) -> RunRecord:
        """Store job and run, enqueue it; the same key and document again returns what is there.

        Raises InputError (`conflict`) for the same key with another document.
        """

        def attempt() -> RunRecord:
            with self._db.write() as connection:
                now = self._db.now(connection)
                return runs.add(
                    connection,
                    key,
                    job,
                    ledger,
                    controller=controller,
                    queued=queue,
                    submitted_by=submitted_by,
                    now=now,
                )

        try:
            return attempt()
        except exc.IntegrityError:  # another process has just created it: now it is found
            return attempt()

    def replace_job(self, uid: str, job: ResolvedJob, ledger: Ledger, *, generation: int) -> None:
        """Store a new resolved job for the run (a cleared `plan`).

        Addresses and output are forgotten, usage so far is closed and kept. Raises LeaseLost.
        """
        with self._db.write() as connection:
            leases.fence(connection, uid, generation=generation)
            now = self._db.now(connection)
            usage_rows.close_all(connection, uid, now=now)
            runs.replace_job(connection, uid, job, ledger, now=now)

    def find_run(self, text: str) -> RunRecord:
        """Return the run that `text` names (uid, unique uid prefix, or run id); InputError."""
        with self._db.read() as connection:
            return run_lookup.find(connection, text)

    def run(self, uid: str) -> RunRecord | None:
        """Return the run, or None where there is none."""
        with self._db.read() as connection:
            return run_lookup.get(connection, uid)

    def runs(self, *, limit: int = 100, **wanted: Unpack[RunFilter]) -> Sequence[RunRecord]:
        """Return runs, newest first: those that are all of what is given."""
        with self._db.read() as connection:
            return runs.newest(connection, limit=limit, **wanted)

    def overviews(self, uids: Sequence[str]) -> Mapping[str, RunOverview]:
        """Overviews of many runs for lists, in a constant number of queries.

        Runs that do not exist are left out.
        """
        with self._db.read() as connection:
            return overviews.load(connection, uids, now=self._db.now(connection))

    def count_runs(
        self,
        *,
        sources: Collection[str] | None = None,
        dag_ids: Collection[str] | None = None,
        since: float = 0.0,
    ) -> Mapping[tuple[str, str], int]:
        """Return how many runs there are per DAG and state; of those that are over, since a time."""
        with self._db.read() as connection:
            return runs.count(connection, sources=sources, dag_ids=dag_ids, since=since)

    def past_waits(self, job: ResolvedJob, *, besides: str = "") -> Sequence[float]:
        """Return how long the newest runs of a job waited until all of them ran, but for one of them."""
        with self._db.read() as connection:
            return past_waits.past_waits(connection, job, besides=besides)

    def job(self, uid: str) -> ResolvedJob:
        """Return the newest resolved job of the run."""
        return self._state(uid).job

    def ledger(self, uid: str) -> Ledger:
        """The ledger as of the last commit: intent and knowledge."""
        return self._state(uid).ledger

    def read(self, uids: Sequence[str]) -> Mapping[str, RunState]:
        """Return the state of many runs in a constant number of queries.

        Runs that do not exist are left out. What did not change since the last read is not read
        and decoded again.
        """
        with self._db.read() as connection:
            return self._reader.read(connection, uids)

    def versions(self, uids: Sequence[str]) -> Mapping[str, Version]:
        """Return cheap change markers of many runs, in one query; runs without one do not exist."""
        with self._db.read() as connection:
            return runs.versions(connection, uids, now=self._db.now(connection))

    def _state(self, uid: str) -> RunState:
        with self._db.read() as connection:
            found = self._reader.read(connection, [uid])
            if uid not in found:
                raise run_lookup.unknown_run(connection, uid)
        return found[uid]

    # the loop's transaction ------------------------------------------------------------------
    def commit(
        self,
        uid: str,
        *,
        lease: Lease,
        old: Ledger,
        new: Ledger,
        events: Sequence[Event],
        resources: Mapping[str, Mapping[str, str]] | None = None,
        job: ResolvedJob | None = None,
    ) -> None:
        """Write changed ledger rows, events, live addresses and usage in one transaction.

        `job`: what the run goes on as from `new` on (a re-plan); None: as it is.

        `old` is what is stored now: what `ledger` returned under this lease, or the `new` of the
        commit before. `resources`: role -> requested resources, copied into usage rows. Raises
        LeaseLost when the lease's generation is not the stored one: nothing is written then.
        """
        with self._db.write() as connection:
            leases.fence(connection, uid, generation=lease.generation)
            now = self._db.now(connection)
            columns = ledger_rows.write_changes(
                connection, uid, old=old, new=new, resources=resources, now=now
            )
            if job is not None:
                revision = runs.append_job(connection, uid, job, now=now)
                columns = {**columns, "job_revision": revision}
            history.add_events(connection, uid, events, columns=columns)
            over = new.job.state in TERMINAL_JOB_STATES and new.job.drained
            if over and not (old.job.state in TERMINAL_JOB_STATES and old.job.drained):
                usage_rows.close_all(connection, uid, now=now)
                waiting_line.leave(connection, uid)

    # requests, events, progress, usage ---------------------------------------------------------
    def add_request(
        self,
        uid: str,
        kind: RequestKind,
        *,
        role: str = "",
        replicas: int | None = None,
        reason: str = "",
        by: str = "",
        seen: RunMark | None = None,
        key: str = "",
        event: Event | None = None,
    ) -> int:
        """Append a request; return its number: 1, 2, 3, ... per run, in the order of commits.

        `seen`: what whoever asks knew of the run; raises RunChanged where it has another mark now.
        `key`: an idempotency key; one that the run has seen adds nothing, and its number comes
        back. `event`: goes into the story together with the request.
        """
        with self._db.write() as connection:
            return history.add_request(
                connection,
                uid,
                kind,
                role=role,
                replicas=replicas,
                reason=reason,
                by=by,
                seen=seen,
                key=key,
                event=event,
                now=self._db.now(connection),
            )

    def request_of(self, uid: str, key: str) -> Request | None:
        """Return the request that came with an idempotency key."""
        with self._db.read() as connection:
            return history.request_of(connection, uid, key)

    def requests(self, uid: str, *, after: int = 0) -> Sequence[Request]:
        """Return the requests with a greater number, oldest first."""
        with self._db.read() as connection:
            return history.requests(connection, uid, after=after)

    def add_events(self, uid: str, events: Sequence[Event]) -> None:
        """Append events outside the loop (plan, cleanup, queue)."""
        with self._db.write() as connection:
            if not history.add_events(connection, uid, events):
                raise run_lookup.unknown_run(connection, uid)

    def add_event_once(self, uid: str, event: Event) -> None:
        """Append an event, unless the story has one of the same reason with the same data."""
        with self._db.write() as connection:
            history.lock(connection, uid)
            if not history.has_event(connection, uid, event):
                history.add_events(connection, uid, [event])

    def events(
        self, uid: str, *, after: int = 0, role: str | None = None, limit: int = 1000
    ) -> Sequence[StoredEvent]:
        """Return events with a greater number, oldest first; with `role`, only that role's."""
        with self._db.read() as connection:
            return history.events(connection, uid, after=after, role=role, limit=limit)

    def newest_event(self, uid: str, reasons: Collection[str]) -> Event | None:
        """Return the newest event of one of these reasons."""
        with self._db.read() as connection:
            return history.newest_event(connection, uid, reasons)

    def checkpoint_events(self, uid: str, *, limit: int) -> Sequence[Event]:
        """Return the newest events that tell of checkpoints, oldest first."""
        with self._db.read() as connection:
            return checkpoint_events.newest(connection, uid, limit=limit)

    # processes and their surroundings ------------------------------------------------------------
    def set_output(self, uid: str, output: RunOutput) -> None:
        """Record where the trained model lies."""
        with self._db.write() as connection:
            run_lookup.set_columns(connection, uid, output=to_json(output))

    def output(self, uid: str) -> RunOutput | None:
        """The output recorded by `set_output`, or None."""
        with self._db.read() as connection:
            found = connection.execute(select(RunRow.output).where(RunRow.uid == uid)).scalar()
        return None if found is None else RunOutput.from_document(json.loads(found))

    # what plans learn from ---------------------------------------------------------------------
    # lease -------------------------------------------------------------------------------------
    def acquire(
        self, uid: str, *, owner: str, seconds: float = 15.0, dead_owners: Sequence[str] = ()
    ) -> Lease | None:
        """Take the lease (generation + 1), or None while another holds a live one.

        An owner in `dead_owners` (provably dead on this host) is replaced at once.
        """
        with self._db.write() as connection:
            now = self._db.now(connection)
            lease = leases.acquire(
                connection, uid, owner=owner, seconds=seconds, dead_owners=dead_owners, now=now
            )
            if lease is None and run_lookup.get(connection, uid) is None:
                raise run_lookup.unknown_run(connection, uid)
            return lease

    def renew_all(self, held: Sequence[Lease], *, seconds: float = 15.0) -> Sequence[Lease | None]:
        """Extend many leases in one transaction; None in the place of each that was lost."""
        with self._db.write() as connection:
            now = self._db.now(connection)
            return leases.renew_all(connection, held, seconds=seconds, now=now)

    def release(self, lease: Lease) -> None:
        """Give the lease up at once; silent when it is not ours any more."""
        with self._db.write() as connection:
            leases.give_up(connection, lease, now=self._db.now(connection))

    def lease(self, uid: str) -> Lease | None:
        """Return the newest lease, also one that has run out; None when it was given up."""
        with self._db.read() as connection:
            return leases.find(connection, uid)

    def driver(self, uid: str) -> Driver:
        """Return who drives the run, or did last."""
        with self._db.read() as connection:
            return leases.driver(connection, uid)

    # queue -------------------------------------------------------------------------------------
    def requeue(self, uid: str) -> None:
        """Let a run that is over start again (a new epoch): no tombstone, a new place in the queue.

        A run that still waits or runs keeps the place it has.
        """
        with self._db.write() as connection:
            run_lookup.set_columns(connection, uid, tombstone=False, tombstone_reason="")
            priority = self._reader.read(connection, [uid])[uid].job.scheduling.priority
            record = run_lookup.get(connection, uid)
            if record is not None:
                waiting_line.enqueue(
                    connection,
                    uid,
                    priority=priority,
                    runtime=record.runtime,
                    now=self._db.now(connection),
                )

    def tombstone(self, uid: str, *, reason: str) -> None:
        """Mark that the run must never start (killed while queued, removed)."""
        with self._db.write() as connection:
            run_lookup.set_columns(connection, uid, tombstone=True, tombstone_reason=clean(reason))

    def prune(self, *, older_than_seconds: float) -> int:
        """Delete finished runs that ended before; return how many. What has yet to be charged stays."""
        total = 0
        while True:
            with self._db.write() as connection:
                now = self._db.now(connection)
                deleted = runs.prune(connection, before=now - older_than_seconds, now=now)
            total += deleted
            if not deleted:
                return total

    def is_gone(self) -> bool:
        """Whether the file of the store was deleted or moved while it was in use."""
        return self._db.is_gone()

    def close(self) -> None:
        """Close the connections; the store may be used again and opens new ones."""
        self._db.close()


@functools.cache
def _open_once(url: str) -> Store:
    return Store(url)


def open_store() -> Store:
    """Return this process's store behind the settings' URL; opened once per URL."""
    return _open_once(load_settings().sql_alchemy_conn)


def deployment_id() -> str:
    """Return the settings' deployment id, else the one that the store made and kept."""
    return load_settings().deployment_id or open_store().deployment.id()
