"""The store's API. Synchronous; callers on an event loop use `asyncio.to_thread`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_training.control.model import Event, Ledger, Request, RequestKind
from airflow_training.spec.resolved import ResolvedJob, RunKey


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run as the store knows it."""

    uid: str
    key: RunKey
    job: str
    namespace: str
    runtime: str
    controller: str
    state: str
    condition: str
    submitted_at: float
    finished_at: float | None
    queued: bool
    tombstone: bool
    """Killed before it started, or removed: it must never start."""
    document_digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    run: str
    owner: str
    generation: int
    expires_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvent:
    seq: int
    event: Event


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """What one batched read gives about a run (sensors, role tasks, status)."""

    record: RunRecord
    job: ResolvedJob
    ledger: Ledger
    lease: Lease | None
    last_seq: int
    addresses: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """Changes whenever something a reader of the run may care about has changed."""

    last_seq: int
    """Of the newest event."""
    last_request: int
    generation: int
    """Of the lease; 0 where nobody ever held it."""
    held: bool
    """The lease has not run out (by the store's clock)."""
    revision: int = 0
    """Of job, ledger, addresses and run record together: grows with every write to them."""


class Store:
    """Opens (and on first use upgrades, under a lock) the database behind `url`."""

    def __init__(self, url: str) -> None: ...

    def now(self) -> float:
        """Return the store's clock, epoch seconds (leases live by it)."""
        raise NotImplementedError

    # runs ------------------------------------------------------------------------------------
    def create_run(
        self, key: RunKey, job: ResolvedJob, ledger: Ledger, *, controller: str, queue: bool
    ) -> RunRecord:
        """Store job and run, enqueue it; the same key and document again returns what is there.

        Raises InputError (`conflict`) for the same key with another document.
        """
        raise NotImplementedError

    def replace_job(self, uid: str, job: ResolvedJob, ledger: Ledger, *, generation: int) -> None:
        """Store a new resolved job for the run (a cleared `plan`, a re-plan)."""
        raise NotImplementedError

    def find_run(self, text: str) -> RunRecord:
        """Return the run that `text` names (uid, unique uid prefix, or run id); InputError."""
        raise NotImplementedError

    def run(self, uid: str) -> RunRecord | None:
        raise NotImplementedError

    def runs(
        self, *, limit: int = 100, states: Sequence[str] = (), controller: str | None = None
    ) -> Sequence[RunRecord]:
        """Return runs, newest first."""
        raise NotImplementedError

    def job(self, uid: str) -> ResolvedJob:
        raise NotImplementedError

    def ledger(self, uid: str) -> Ledger:
        raise NotImplementedError

    def read(self, uids: Sequence[str]) -> Mapping[str, RunState]:
        """Return the state of many runs in a constant number of queries."""
        raise NotImplementedError

    def versions(self, uids: Sequence[str]) -> Mapping[str, Version]:
        """Return cheap change markers of many runs in one query (the hub polls these)."""
        raise NotImplementedError

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
    ) -> None:
        """Write changed ledger rows, events, live addresses and usage in one transaction.

        `resources`: role -> requested resources, copied into usage rows. Raises LeaseLost when
        the lease's generation is not the stored one: nothing is written then.
        """
        raise NotImplementedError

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
    ) -> int:
        raise NotImplementedError

    def requests(self, uid: str, *, after: int = 0) -> Sequence[Request]:
        raise NotImplementedError

    def add_events(self, uid: str, events: Sequence[Event]) -> None:
        """Append events outside the loop (plan, cleanup, queue)."""
        raise NotImplementedError

    def events(
        self, uid: str, *, after: int = 0, role: str | None = None, limit: int = 1000
    ) -> Sequence[StoredEvent]:
        raise NotImplementedError

    def set_addresses(self, uid: str, addresses: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Record the stable addresses (role -> [{host, ports}]) that `prepare` fixed."""
        raise NotImplementedError

    def save_progress(
        self, uid: str, progress: Mapping[tuple[str, int], Mapping[str, Any]]
    ) -> None:
        """Keep the newest progress per instance and append its metrics as series."""
        raise NotImplementedError

    def progress(self, uid: str) -> Mapping[tuple[str, int], Mapping[str, Any]]:
        raise NotImplementedError

    def usage(self, uid: str) -> Sequence[Mapping[str, Any]]:
        """Return usage rows as `status` prints them."""
        raise NotImplementedError

    def set_output(self, uid: str, output: Mapping[str, Any]) -> None:
        raise NotImplementedError

    def output(self, uid: str) -> Mapping[str, Any] | None:
        raise NotImplementedError

    # lease -------------------------------------------------------------------------------------
    def acquire(
        self, uid: str, *, owner: str, seconds: float = 15.0, dead_owners: Sequence[str] = ()
    ) -> Lease | None:
        """Take the lease (generation + 1), or None while another holds a live one.

        An owner in `dead_owners` (provably dead on this host) is replaced at once.
        """
        raise NotImplementedError

    def renew(self, lease: Lease, *, seconds: float = 15.0) -> Lease:
        """Extend; raises LeaseLost."""
        raise NotImplementedError

    def renew_all(
        self, leases: Sequence[Lease], *, seconds: float = 15.0
    ) -> Sequence[Lease | None]:
        """Extend many leases in one transaction; None where it was lost (one process, many runs)."""
        raise NotImplementedError

    def release(self, lease: Lease) -> None:
        """Give the lease up at once; silent when it is not ours any more."""
        raise NotImplementedError

    def lease(self, uid: str) -> Lease | None:
        raise NotImplementedError

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

        `wants`/`free`: resources of a local machine (cpu, memory) that hold the run back.
        Raises InputError (`not_supported`) where the job is larger than the whole machine is
        checked by the caller; a tombstoned run never starts.
        """
        raise NotImplementedError

    def tombstone(self, uid: str, *, reason: str) -> None:
        """Mark that the run must never start (killed while queued, removed)."""
        raise NotImplementedError

    def prune(self, *, older_than_seconds: float) -> int:
        """Delete finished runs that ended before; return how many."""
        raise NotImplementedError

    def close(self) -> None: ...
