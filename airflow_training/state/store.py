"""The store's API. Synchronous and thread-safe; callers on an event loop use `asyncio.to_thread`.

Each method is one transaction; what happens inside it lives in the modules beside this one.
Every method raises RuntimeUnavailable where the database cannot be reached now, and InputError
(`bad_reference`) for a run that does not exist, unless it says otherwise.
"""

from __future__ import annotations

import contextlib
import functools
import json
import secrets
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, exc, insert, select, update

from airflow_training.control.data_readings import DataReading
from airflow_training.control.model import (
    TERMINAL_JOB_STATES,
    Event,
    InstanceKey,
    Ledger,
    Request,
    RequestKind,
)
from airflow_training.documents.resolved import ResolvedJob, RunKey
from airflow_training.errors import RunChanged
from airflow_training.settings import load_settings
from airflow_training.state import addresses as address_book
from airflow_training.state import (
    airflow_facts,
    checkpoint_events,
    data_readings,
    history,
    leases,
    log_values,
    overviews,
    past_waits,
    runs,
    sparklines,
    system_metrics,
)
from airflow_training.state import environment as environment_rows
from airflow_training.state import ledger as ledger_rows
from airflow_training.state import measurements as measured
from airflow_training.state import progress as progress_lines
from airflow_training.state import queue as waiting_line
from airflow_training.state import subtasks as subtask_rows
from airflow_training.state import usage as usage_rows
from airflow_training.state.airflow_facts import Fact
from airflow_training.state.codec import to_plain
from airflow_training.state.database import Database, clean, translated_errors
from airflow_training.state.models import MetaRow, RunRow
from airflow_training.state.outage import Outage
from airflow_training.state.reading import Reader
from airflow_training.state.records import (
    EnvironmentRecord,
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
    UsageSpan,
    Version,
)
from airflow_training.state.upgrade import check, ensure_current, upgrade

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
        self._facts: dict[str, str] = {}

    @property
    def outage(self) -> Outage:
        """Return what tells of the time in which the store does not answer, once for all."""
        return self._db.outage

    def now(self) -> float:
        """Return the store's clock, epoch seconds (leases live by it)."""
        return self._db.now()

    def deployment_id(self) -> str:
        """Return the name of this deployment, made on first use and kept."""
        return self._kept_fact("deployment_id", lambda: uuid.uuid4().hex[:12])

    def callback_secret(self) -> str:
        """Return what the tokens of runs are made from; made on first use and kept."""
        return self._kept_fact("callback_secret", lambda: secrets.token_hex(32))

    def _kept_fact(self, name: str, make: Callable[[], str]) -> str:
        """Return a fact about this store; the first one that was written counts."""
        known = self._facts.get(name)
        if known is not None:
            return known
        question = select(MetaRow.value).where(MetaRow.name == name)
        with self._db.read() as connection:
            value: str | None = connection.execute(question).scalar()
        if not value:
            with contextlib.suppress(exc.IntegrityError), self._db.write() as connection:
                if connection.execute(question).scalar() is None:
                    connection.execute(insert(MetaRow), {"name": name, "value": make()})
            with self._db.read() as connection:
                value = connection.execute(question).scalar_one()
        self._facts[name] = value
        return value

    # Airflow ---------------------------------------------------------------------------------
    def pools(self, controller: str) -> Mapping[str, int]:
        """Return pool -> slots of a deployment's Airflow: those that count deferred tasks."""
        with self._db.read() as connection:
            return airflow_facts.load(connection, controller, "pools")

    def places(self, controller: str) -> Sequence[str]:
        """Return the place of each living triggerer; empty for one that did not tell it."""
        with self._db.read() as connection:
            living = airflow_facts.load(connection, controller, "triggerers")
            places = airflow_facts.load(connection, controller, "places")
        return [places.get(host, "") for host in living]

    def save_pools(self, controller: str, pools: Mapping[str, int]) -> None:
        """Keep what `pools` returns; writes only what has changed, as the next two do."""
        self._save_fact(controller, "pools", lambda _: pools)

    def save_triggerers(self, controller: str, hosts: Iterable[str]) -> None:
        """Keep the hosts of the triggerers that live."""
        self._save_fact(controller, "triggerers", lambda _: dict.fromkeys(hosts, True))

    def save_place(self, controller: str, *, host: str, place: str) -> None:
        """Keep the place of the triggerer on a host, instead of an earlier one's there."""
        self._save_fact(controller, "places", lambda known: {**known, host: place})

    def save_stop(self, controller: str, *, dag_id: str, run_id: str, reason: str, by: str) -> None:
        """Keep that a DAG run was stopped, for as long as something of it might begin."""
        now = self.now()
        stop = {"at": now, "reason": clean(reason), "by": clean(by)}

        def told(known: Mapping[str, Any]) -> Mapping[str, Any]:
            new = {k: v for k, v in known.items() if v["at"] > now - airflow_facts.STOP_SECONDS}
            return {**new, airflow_facts.stop_key(dag_id, run_id): stop}

        self._save_fact(controller, "stopped", told)

    def stop_of(self, controller: str, *, dag_id: str, run_id: str) -> Mapping[str, Any] | None:
        """Return when a DAG run was stopped, why and by whom (`at`, `reason`, `by`); None: it was not."""
        with self._db.read() as connection:
            known = airflow_facts.load(connection, controller, "stopped")
        found: Mapping[str, Any] | None = known.get(airflow_facts.stop_key(dag_id, run_id))
        return found

    def _save_fact(
        self, controller: str, fact: Fact, told: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    ) -> None:
        with self._db.read() as connection:
            known = airflow_facts.load(connection, controller, fact)
        if told(known) != known:
            with self._db.write() as connection:
                known = airflow_facts.load(connection, controller, fact)
                airflow_facts.save(connection, controller, fact, told(known))

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
            return runs.find(connection, text)

    def run(self, uid: str) -> RunRecord | None:
        """Return the run, or None where there is none."""
        with self._db.read() as connection:
            return runs.get(connection, uid)

    def runs(
        self,
        *,
        limit: int = 100,
        states: Sequence[str] = (),
        controller: str | None = None,
        job: str | None = None,
        sources: Collection[str] | None = None,
        dag_ids: Collection[str] | None = None,
        run_id: str | None = None,
        text: str = "",
        before: tuple[float, str | None] | None = None,
    ) -> Sequence[RunRecord]:
        """Return runs, newest first: those that are all of what is given.

        `controller`: of one deployment; `job`: of jobs of one name; `sources`, `dag_ids`, `run_id`:
        of these keys; `text`: in the name of the job, the DAG, the run or who submitted it.
        `before`: those that follow the run with this `submitted_at` and uid; without a uid, those
        that are older.
        """
        with self._db.read() as connection:
            return runs.newest(
                connection,
                limit=limit,
                states=states,
                controller=controller,
                job=job,
                sources=sources,
                dag_ids=dag_ids,
                run_id=run_id,
                text=text,
                before=before,
            )

    def overviews(self, uids: Sequence[str]) -> Mapping[str, RunOverview]:
        """Return what lists say about many runs, in a constant number of queries.

        Runs that do not exist are left out.
        """
        with self._db.read() as connection:
            return overviews.load(connection, uids, now=self._db.now(connection))

    def past_waits(self, job: ResolvedJob, *, besides: str = "") -> Sequence[float]:
        """Return how long the newest runs of a job waited until all of them ran, but for one of them."""
        with self._db.read() as connection:
            return past_waits.past_waits(connection, job, besides=besides)

    def job(self, uid: str) -> ResolvedJob:
        """Return the newest resolved job of the run."""
        return self._state(uid).job

    def ledger(self, uid: str) -> Ledger:
        """Return what is intended and known, as of the last commit."""
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
                raise runs.unknown_run(connection, uid)
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
            if seen is not None or key:
                history.lock(connection, uid)
                known = history.request_of(connection, uid, key) if key else None
                if known is not None:
                    return known.id
                if seen is not None and history.mark(connection, uid) not in (seen, None):
                    raise RunChanged(f"run {uid} is not as it was seen any more")
            now = self._db.now(connection)
            number = history.add_request(
                connection,
                uid,
                kind,
                role=role,
                replicas=replicas,
                reason=reason,
                by=by,
                key=key,
                now=now,
            )
            if number is None:
                raise runs.unknown_run(connection, uid)
            if event is not None:
                history.add_events(connection, uid, [event])
            return number

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
                raise runs.unknown_run(connection, uid)

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

    def checkpoint_events(self, uid: str, *, limit: int) -> Sequence[Event]:
        """Return the newest events that tell of checkpoints, oldest first."""
        with self._db.read() as connection:
            return checkpoint_events.newest(connection, uid, limit=limit)

    def set_addresses(self, uid: str, addresses: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Record the addresses (role -> [{host, ports}]) that `prepare` fixed for a job attempt."""
        with self._db.write() as connection:
            self._set(connection, uid, revision=RunRow.revision + 1)
            address_book.fix(connection, uid, addresses)

    def live_addresses(self, uid: str) -> Mapping[str, Mapping[int, str]]:
        """Return role -> index -> `host:port` of the instances that answer now."""
        with self._db.read() as connection:
            return address_book.live(connection, uid)

    def save_progress(self, uid: str, progress: Mapping[InstanceKey, Mapping[str, Any]]) -> None:
        """Keep the newest progress per instance and append its metrics as series."""
        with self._db.write() as connection:
            self._must_exist(connection, uid)
            now = self._db.now(connection)
            progress_lines.save(connection, uid, progress, now=now)
            data_readings.save(connection, uid, progress, now=now)

    def data_readings(self, uid: str) -> Mapping[InstanceKey, DataReading]:
        """Return what each instance has told of its data, per (role, index)."""
        with self._db.read() as connection:
            return data_readings.of_run(connection, uid)

    def progress(self, uid: str) -> Mapping[InstanceKey, Mapping[str, Any]]:
        """Return the newest progress line per (role, index)."""
        with self._db.read() as connection:
            return progress_lines.newest(connection, uid)

    def metrics(self, uid: str, *, name: str | None = None) -> Sequence[MetricPoint]:
        """Return a metric's series (or all of them), oldest first."""
        with self._db.read() as connection:
            return progress_lines.series(connection, uid, name=name)

    def metric_columns(
        self, uid: str, of: Sequence[tuple[MetricPoint, float]], *, most: int
    ) -> Sequence[MetricColumns]:
        """Return the series that each of these points belongs to, after a time: the next so many points."""
        with self._db.read() as connection:
            return progress_lines.columns(connection, uid, of, most=most)

    def newest_points(self, uid: str) -> Sequence[MetricPoint]:
        """Return the newest point of every series; all points are looked at."""
        with self._db.read() as connection:
            return progress_lines.newest_points(connection, uid)

    def losses(
        self, uids: Sequence[str], *, points: int = 60
    ) -> Mapping[str, Sequence[float | None]]:
        """Return about so many values of the loss of each of these runs that has told one."""
        with self._db.read() as connection:
            return sparklines.losses(connection, uids, points=points)

    def newest_metrics(self, uid: str) -> Mapping[InstanceKey, Mapping[str, float]]:
        """Return the newest value of every metric per (role, index)."""
        return progress_lines.newest_metrics(self.newest_points(uid))

    def log_positions(self, uid: str) -> Mapping[InstanceKey, LogPosition]:
        """Return how far the logs of the run's instances were read, per (role, index)."""
        with self._db.read() as connection:
            return log_values.positions(connection, uid)

    def save_log_values(
        self,
        uid: str,
        instance: InstanceKey,
        *,
        before: LogPosition | None,
        after: LogPosition,
        values: Sequence[LogValue],
        progress: Mapping[str, Any] | None,
    ) -> bool:
        """Keep what stood in an instance's log between two positions, once.

        False, and nothing is kept, where the stored position is not `before`: somebody else has
        read on. Progress and metrics that the script reports itself win.
        """
        with self._db.write() as connection:
            self._must_exist(connection, uid)
            return log_values.save(
                connection,
                uid,
                instance,
                before=before,
                after=after,
                values=values,
                progress=progress,
            )

    # processes and their surroundings ------------------------------------------------------------
    def save_subtasks(self, uid: str, snapshots: Mapping[str, Mapping[str, Any]]) -> None:
        """Keep the newest snapshot of each checkpoint group (`control.subtask_snapshot`)."""
        with self._db.write() as connection:
            self._must_exist(connection, uid)
            subtask_rows.save(connection, uid, snapshots, now=self._db.now(connection))

    def subtasks(self, uid: str) -> Mapping[str, Any]:
        """Return the newest snapshot of each checkpoint group; None for one that is no JSON."""
        with self._db.read() as connection:
            return subtask_rows.of_run(connection, uid)

    def save_environment(self, uid: str, lines: Mapping[InstanceKey, Sequence[str]]) -> None:
        """Keep what agents recorded, oldest first, per (role, index); what is there stays as it is.

        What they saw instances use becomes series, with a point a minute. Of each instance the last ten records are kept, the newest of an exit, and what was named.
        """
        with self._db.write() as connection:
            self._must_exist(connection, uid)
            environment_rows.save(connection, uid, lines)
            system_metrics.save(connection, uid, lines.keys())

    def name_environment(self, uid: str, digests: Mapping[InstanceKey, str]) -> None:
        """Keep the records that the newest saves of instances name: the last three of each."""
        with self._db.write() as connection:
            environment_rows.name(connection, uid, digests)

    def environment_reference(self, uid: str) -> str:
        """Return the digest that names the newest record of every instance; "" without any."""
        with self._db.read() as connection:
            return environment_rows.reference(connection, uid)

    def ends(
        self, uid: str, *, known: Mapping[InstanceKey, str]
    ) -> Mapping[InstanceKey, EnvironmentRecord]:
        """Return the newest exit record of each instance, but for those whose digest is `known`."""
        with self._db.read() as connection:
            return environment_rows.ends(connection, uid, known=known)

    def newest_environment(
        self, uid: str, keys: Collection[InstanceKey]
    ) -> Mapping[InstanceKey, EnvironmentRecord]:
        """Return the newest record of each of these instances' environments."""
        with self._db.read() as connection:
            return environment_rows.newest(connection, uid, keys)

    def last_two_environments(self, uid: str) -> Mapping[InstanceKey, Sequence[EnvironmentRecord]]:
        """Return the newest two records of every instance, oldest first."""
        with self._db.read() as connection:
            return environment_rows.last_two(connection, uid)

    def software(self, uid: str) -> Mapping[InstanceKey, Mapping[str, Any]]:
        """Return what each instance that has told it runs: its Python, and the packages of that."""
        with self._db.read() as connection:
            return environment_rows.software(connection, uid)

    def environment(self, uid: str) -> Mapping[InstanceKey, Sequence[EnvironmentRecord]]:
        """Return the records of every instance, oldest first."""
        with self._db.read() as connection:
            return environment_rows.of_run(connection, uid)

    def usage(self, uid: str) -> Sequence[Mapping[str, Any]]:
        """Return usage rows as `status` prints them."""
        with self._db.read() as connection:
            return usage_rows.of_run(connection, uid, now=self._db.now(connection))

    def usage_between(
        self,
        start: float,
        end: float,
        *,
        sources: Collection[str] | None = None,
        dag_ids: Collection[str] | None = None,
    ) -> Sequence[UsageSpan]:
        """Return attempts of instances that ran at some time between, of runs with these keys."""
        with self._db.read() as connection:
            now = self._db.now(connection)
            return usage_rows.between(
                connection, start, end, now=now, sources=sources, dag_ids=dag_ids
            )

    def set_output(self, uid: str, output: Mapping[str, Any]) -> None:
        """Record where the trained model lies: {uri, bytes, digest}."""
        with self._db.write() as connection:
            self._set(connection, uid, output=json.dumps(output, default=to_plain))

    def output(self, uid: str) -> Mapping[str, Any] | None:
        """Return what `set_output` recorded, or None."""
        with self._db.read() as connection:
            found = connection.execute(select(RunRow.output).where(RunRow.uid == uid)).scalar()
        return None if found is None else dict(json.loads(found))

    # what plans learn from ---------------------------------------------------------------------
    def save_measurement(self, uid: str, found: Measurement) -> None:
        """Keep what the run measured under a plan; the same plan again replaces it."""
        with self._db.write() as connection:
            self._must_exist(connection, uid)
            measured.save(connection, uid, found, now=self._db.now(connection))

    def measurements(self, subject: str, *, limit: int = 100) -> Sequence[Measurement]:
        """Return what runs measured about a subject, the newest first."""
        with self._db.read() as connection:
            return measured.about(connection, subject, limit=limit)

    def measurement(self, uid: str, *, plan: str) -> Measurement | None:
        """Return what a run measured under one plan; None: nothing (yet)."""
        with self._db.read() as connection:
            return measured.of_run(connection, uid, plan=plan)

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
            if lease is None and runs.get(connection, uid) is None:
                raise runs.unknown_run(connection, uid)
            return lease

    def renew_all(self, held: Sequence[Lease], *, seconds: float = 15.0) -> Sequence[Lease | None]:
        """Extend many leases in one transaction; None in the place of each that was lost."""
        with self._db.write() as connection:
            now = self._db.now(connection)
            return leases.renew_all(connection, held, seconds=seconds, now=now)

    def release(self, lease: Lease) -> None:
        """Give the lease up at once; silent when it is not ours any more."""
        with self._db.write() as connection:
            leases.give_up(connection, lease)

    def lease(self, uid: str) -> Lease | None:
        """Return the newest lease, also one that has run out; None when it was given up."""
        with self._db.read() as connection:
            return leases.find(connection, uid)

    # queue -------------------------------------------------------------------------------------
    def try_start(
        self,
        uid: str,
        *,
        max_running_jobs: int,
        runtime: str,
        free: Mapping[str, float] | None = None,
        wants: Mapping[str, float] | None = None,
    ) -> bool:
        """Take the run off the queue when it is its turn (priority, then first come).

        True also when it has started before, or never had to queue; False for a tombstoned run.
        `wants`/`free`: resources of a local machine (cpu, memory) that hold the run back. `free`
        is what the runtime sees unused now; what runs that have just started on the same
        `runtime` are about to take is subtracted here. What it does not name holds nothing back.
        That the job is larger than the whole machine is checked by the caller. Ask again at least every few seconds: whoever is silent for
        `queue.PATIENCE_SECONDS` does not hold back the runs behind it.
        """
        with self._db.write() as connection:
            started = waiting_line.try_start(
                connection,
                uid,
                max_running_jobs=max_running_jobs,
                runtime=runtime,
                free=free,
                wants=wants,
                now=self._db.now(connection),
            )
            if started is None:
                raise runs.unknown_run(connection, uid)
            return started

    def requeue(self, uid: str) -> None:
        """Let a run that is over start again (a new epoch): no tombstone, a new place in the queue.

        A run that still waits or runs keeps the place it has.
        """
        with self._db.write() as connection:
            self._set(connection, uid, tombstone=False, tombstone_reason="")
            priority = self._reader.read(connection, [uid])[uid].job.scheduling.priority
            record = runs.get(connection, uid)
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
            self._set(connection, uid, tombstone=True, tombstone_reason=clean(reason))

    def prune(self, *, older_than_seconds: float) -> int:
        """Delete finished runs that ended before; return how many."""
        total = 0
        while True:
            with self._db.write() as connection:
                now = self._db.now(connection)
                deleted = runs.prune(connection, before=now - older_than_seconds, now=now)
            total += deleted
            if not deleted:
                return total

    def close(self) -> None:
        """Close the connections; the store may be used again and opens new ones."""
        self._db.close()

    def _set(self, connection: Connection, uid: str, **columns: Any) -> None:
        changed = connection.execute(update(RunRow).where(RunRow.uid == uid).values(**columns))
        if changed.rowcount != 1:
            raise runs.unknown_run(connection, uid)

    def _must_exist(self, connection: Connection, uid: str) -> None:
        if connection.execute(select(RunRow.uid).where(RunRow.uid == uid)).first() is None:
            raise runs.unknown_run(connection, uid)


@functools.cache
def _open_once(url: str) -> Store:
    return Store(url)


def open_store() -> Store:
    """Return this process's store behind the settings' URL; opened once per URL."""
    return _open_once(load_settings().sql_alchemy_conn)


def deployment_id() -> str:
    """Return the settings' deployment id, else the one that the store made and kept."""
    return load_settings().deployment_id or open_store().deployment_id()
