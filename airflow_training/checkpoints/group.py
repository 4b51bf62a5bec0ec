"""One process's part in the checkpoints of its group: open, write, commit, read.

Rank 0 coordinates: it opens the generation, and it alone writes manifests. Nobody waits for anybody without a
deadline, and no save depends on all ranks calling at the same time.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, NoReturn

from airflow_training.checkpoints.agreement import Agreement, SingleProcessAgreement, on_coordinator
from airflow_training.checkpoints.base_check import check_share, complaints_of
from airflow_training.checkpoints.claiming import claim
from airflow_training.checkpoints.commit_wait import CommitWait
from airflow_training.checkpoints.digests import algorithm
from airflow_training.checkpoints.documents import canonical, seal, sha256_of
from airflow_training.checkpoints.errors import (
    BadCheckpoint,
    CheckpointError,
    KeyExists,
    StaleGeneration,
)
from airflow_training.checkpoints.keys import (
    SaveId,
    failure_key,
    fence_key,
    manifest_key,
    marker_key,
    save_of,
)
from airflow_training.checkpoints.records import Fence, Manifest, Marker, ParentCheckpoint
from airflow_training.checkpoints.rejoin_decision import SaveInFlight
from airflow_training.checkpoints.reporting import ProcessReporter, newest_environment, own_group
from airflow_training.checkpoints.shards import (
    DOCUMENT,
    ShardObject,
    as_bytes,
    cut,
    digested,
    state_digest,
)
from airflow_training.checkpoints.store import ObjectStore, create_once, open_store, probe
from airflow_training.checkpoints.survey import newest_claim, newest_valid, survey
from airflow_training.checkpoints.sweeping import Sweeper
from airflow_training.checkpoints.verifying import in_parallel, read_state

__all__ = ["Group"]

log = logging.getLogger(__name__)

Rejected = tuple[int, str]


class Group:
    """A handle on one checkpoint group; made by `Group.open`."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        rank: int,
        world: int,
        keep: int,
        keep_every: int | None,
        code: str,
        environment: str,
    ) -> None:
        self.store = store
        self.rank = rank
        self.world = world
        self.generation = 0
        self.base: Manifest | None = None
        """What this generation goes on from; every rank has verified its part, unless it was to read nothing."""
        self.rejected: list[Rejected] = []
        """(step, why) of the newer checkpoints that were passed over at the start, on rank 0."""
        self._sweeper = Sweeper(store, keep=keep, keep_every=keep_every)
        self._code = code
        self._environment = environment
        self._fence = ""
        self._newest: Manifest | None = None
        self._reusable: dict[str, str] = {}
        self._verified: set[str] = set()
        self._last_step = -1
        self._abandoned = False
        self._writing = threading.Lock()
        self._telling = ProcessReporter(rank=rank, world=world, generation=0)
        self._record = ""
        """Digest of the record of the environment that the newest save names."""

    @classmethod
    def open(
        cls,
        root: str | ObjectStore,
        *,
        rank: int = 0,
        world: int = 1,
        incarnation: str = "",
        order: int = 0,
        agreement: Agreement | None = None,
        keep: int = 3,
        keep_every: int | None = None,
        resume: bool = True,
        not_after: int | None = None,
        deep: bool = True,
        code: str = "",
        environment: str = "",
    ) -> Group:
        """Start a generation, together with all other ranks, and choose what it goes on from.

        The newest checkpoint is taken that every rank found whole, having read all of it: each rank reads its part.

        Args:
            root: address of the group, or a store that is open already.
            rank: of this process in the group.
            world: how many processes write a checkpoint together.
            incarnation: `<epoch>.<job attempt>.<attempt>` of the controller; empty without one.
            order: grows with every recovery decision; an older one than the store knows is refused.
            agreement: how ranks tell each other; needed where there are several.
            keep: how many of the newest checkpoints stay; at least two always do.
            keep_every: of older ones, every Nth stays too.
            resume: False starts from nothing, whatever there is.
            not_after: goes on from a checkpoint of this step or an earlier one.
            deep: False reads no state, and only compares sizes: for ranks that hold newer state themselves. What is
                saved then rests on nothing that was saved before.
            code: digest of the program, for the manifests.
            environment: digest of image, command and environment, for the manifests.

        Raises:
            StaleGeneration: a process of a later recovery decision has taken over.
            StoreRefused: the store cannot keep checkpoints.
            CheckpointError: another rank has failed, or did not come.
        """
        if world > 1 and agreement is None:
            raise CheckpointError("a group of several ranks needs an agreement")
        group = cls(
            open_store(root),
            rank=rank,
            world=world,
            keep=keep,
            keep_every=keep_every,
            code=code,
            environment=environment,
        )
        group._start(
            agreement or SingleProcessAgreement(),
            incarnation=incarnation,
            order=order,
            resume=resume,
            not_after=not_after,
            deep=deep,
        )
        return group

    @property
    def newest_step(self) -> int:
        """Return the step of the newest checkpoint this process knows to be committed, 0 for none."""
        return self._newest.step if self._newest else 0

    # the start -------------------------------------------------------------------------------------

    def _start(
        self,
        agreement: Agreement,
        *,
        incarnation: str,
        order: int,
        resume: bool,
        not_after: int | None,
        deep: bool,
    ) -> None:
        epoch = int(incarnation.partition(".")[0] or 0)
        started = on_coordinator(
            agreement, lambda: self._claim(epoch=epoch, order=order), rank=self.rank
        )
        self.generation = started["generation"]
        self._telling = ProcessReporter(
            rank=self.rank, world=self.world, generation=self.generation, group=own_group()
        )
        self._telling.say("STARTING")
        candidates: Iterator[Manifest] = iter(())
        if self.rank == 0 and resume:
            candidates = self._candidates(not_after)

        def next_candidate() -> dict[str, Any] | None:
            manifest = next(candidates, None)
            return asdict(manifest.as_base()) if manifest else None

        while (proposed := on_coordinator(agreement, next_candidate, rank=self.rank)) is not None:
            base = ParentCheckpoint(**proposed)
            self._telling.say("RESTORING", step=base.step)
            manifest, finding = check_share(
                self.store, base, rank=self.rank, world=self.world, deep=deep
            )
            complaints = complaints_of(agreement.gather(finding))
            if not complaints:
                self.base = manifest
                break
            self._reject(base.step, complaints[0])

        def fence() -> str:
            document = Fence(
                generation=self.generation,
                base=self.base.as_base() if self.base else None,
                incarnation=incarnation,
                order=order,
                world=self.world,
                at=time.time(),
                owner=started["owner"],
            ).to_bytes()
            create_once(self.store, fence_key(self.generation), document)
            self._refuse_if_stale()  # then what it goes on from may be gone already
            return sha256_of(document)

        self._fence = on_coordinator(agreement, fence, rank=self.rank)
        step = self.base.step if self.base else None
        if deep and self.base is not None:
            self._settle(self.base)
            self._telling.say("RUNNING", step=step, verified=step)
        else:
            self._newest, self._last_step = self.base, -1 if step is None else step
            self._telling.say("RUNNING", step=step)

    def _claim(self, *, epoch: int, order: int) -> dict[str, Any]:
        if probe(self.store):
            log.info("checkpoints at %s: the store creates each key once", self.store.uri)
        else:
            log.warning(
                "checkpoints at %s: the store does not refuse to create a key twice;"
                " generations are kept apart by their keys",
                self.store.uri,
            )
        self.store.clear_unfinished()
        mine = claim(self.store, epoch=epoch, order=order)
        return {"generation": mine.generation, "owner": mine.owner}

    def _candidates(self, not_after: int | None) -> Iterator[Manifest]:
        seen = survey(self.store)
        for key, reason in seen.bad.items():
            log.warning("a document of a checkpoint is damaged: %s: %s", key, reason)
            save = save_of(key)
            self.rejected.append((save.step if save else -1, reason))
            self._telling.reject(save.step if save else None, reason)
        for manifest in seen.lineage.manifests:
            if not_after is None or manifest.step <= not_after:
                yield manifest

    def _reject(self, step: int, reason: str) -> None:
        log.warning("the checkpoint of step %d is bad, an older one is taken: %s", step, reason)
        self.rejected.append((step, reason))
        if self.rank == 0:  # every rank knows
            self._telling.reject(step, reason)

    # saving ----------------------------------------------------------------------------------------

    def write(
        self,
        step: int,
        blobs: Mapping[str, Any],
        *,
        document: Any,
        cursor: Any = None,
        rng: str = "",
    ) -> Marker:
        """Bring this rank's part of a save to the store; blocks, and may run in a thread of its own.

        What is in the newest committed checkpoint already is not written again.

        Args:
            step: later than that of any save before; each is tried once.
            blobs: contiguous buffers by name, not changed until this returns.
            document: JSON beside them.
            cursor: JSON: where in the data this rank is.
            rng: digest of the states of its random generators.

        Raises:
            CheckpointError: it could not be written; the other ranks know by then.
            StaleGeneration: a later start of this training has taken over.
        """
        with self._writing:
            if step <= self._last_step:
                raise CheckpointError(f"step {step} cannot be saved after step {self._last_step}")
            self._last_step = step
            self._begin(step)
            self._telling.say("SAVING", step=step)
            try:
                return self._write(SaveId(step, self.generation), blobs, document, cursor, rng)
            except (CheckpointError, OSError, TypeError, ValueError) as error:
                self._abandon(step, error)

    def _write(
        self, save: SaveId, blobs: Mapping[str, Any], document: Any, cursor: Any, rng: str
    ) -> Marker:
        if DOCUMENT in blobs:
            raise CheckpointError("a blob needs a name that is not empty")
        self._refuse_if_stale()
        views = {DOCUMENT: memoryview(canonical(document))}
        views.update((name, as_bytes(name, value)) for name, value in blobs.items())
        name = algorithm()

        def put(parts: list[tuple[str, memoryview]]) -> ShardObject:
            shard = digested(parts, save=save, algorithm=name)
            if shard.digest in self._reusable:
                return shard.under(self._reusable[shard.digest])
            if self.world > 1 and self._has(shard):  # another rank holds the same, and was faster
                return shard
            with contextlib.suppress(KeyExists):  # by its name the same content, of this same save
                self.store.create(shard.key, [view for _, view in parts])
            return shard

        pieces = list(cut(views))
        # ranks that hold the same begin at different pieces, and need not bring what others have brought
        first = self.rank * len(pieces) // self.world
        brought = in_parallel(self.store, put, [*pieces[first:], *pieces[:first]])
        shards = tuple(brought[len(pieces) - first :] + brought[: len(pieces) - first])
        record = newest_environment()
        self._record = record[0] if record else ""
        marker = Marker(
            step=save.step,
            rank=self.rank,
            world=self.world,
            generation=save.generation,
            shards=shards,
            state=state_digest(shards),
            cursor=cursor,
            rng=rng,
            at=time.time(),
            environment=self._record,
        )
        create_once(self.store, marker_key(save, self.rank), marker.to_bytes())
        return marker

    def _has(self, shard: ShardObject) -> bool:
        try:
            return self.store.size(shard.key) == shard.size
        except FileNotFoundError:
            return False

    def fail(self, step: int, reason: str) -> None:
        """Let all ranks know that this one has no part in the save of a step; never raises."""
        self._last_step = max(self._last_step, step)
        self._begin(step)
        key = failure_key(SaveId(step, self.generation), self.rank)
        try:
            create_once(
                self.store, key, seal({"rank": self.rank, "reason": reason, "at": time.time()})
            )
        except (CheckpointError, OSError) as error:
            log.warning("the other ranks wait for their deadline: %s", error)

    def _abandon(self, step: int, error: Exception) -> NoReturn:
        self.fail(step, str(error))
        self._telling.say("RUNNING", step=step)
        if isinstance(error, CheckpointError):
            raise error
        raise CheckpointError(f"step {step} cannot be saved: {error}") from error

    def commit(self, step: int, *, deadline: float) -> Manifest | None:
        """Return the manifest of a save once it is committed, None where it will not be.

        Rank 0 waits for all markers, reads each again and writes the manifest. The others wait for it, or for word
        of a failure. The log says why there is None.

        Args:
            step: that this rank has written.
            deadline: seconds from now after which this rank waits no more.

        Raises:
            CheckpointError: the store does not answer.
            StaleGeneration: a later start of this training has taken over; nothing is acknowledged.
        """
        save = SaveId(step, self.generation)
        try:
            if self.rank == 0:
                manifest = self._commit(save, deadline)
            else:
                manifest = self._await_commit(save, deadline)
            # only now: a later start that has not seen this manifest has claimed before it was there
            self._refuse_if_stale()
        except OSError as error:
            self._abandon(step, error)
        if manifest is None:
            self._telling.say("RUNNING", step=step)
            self._reusable = {}  # what it rests on may be swept before the next save
            return None
        self._settle(manifest)
        self._telling.say("SAVED", step=step, verified=step, environment=self._record)
        self._telling.say("RUNNING", step=step)
        if self.rank == 0:
            self._sweep(manifest)
        return manifest

    def _commit(self, save: SaveId, deadline: float) -> Manifest | None:
        waiting = self._waiting(save)
        try:
            parts = waiting.collect(seconds=deadline)
        except BadCheckpoint as error:
            self.fail(save.step, str(error))
            parts = None
        if parts is None:
            waiting.log_failures()
            return None
        before = self._newest
        markers = [part for part, _ in parts]
        content = Manifest(
            step=save.step,
            generation=save.generation,
            number=before.number + 1 if before else 1,
            base=self.base.as_base() if self.base else None,
            fence=self._fence,
            parent=before.digest if before else None,
            ranks=tuple(markers),
            cursor=parts[0][1],
            code=self._code,
            environment=self._environment,
            at=time.time(),
        ).to_bytes()
        self._refuse_if_stale()
        create_once(self.store, manifest_key(save), content)
        return Manifest.from_bytes(content, what=manifest_key(save))

    def _await_commit(self, save: SaveId, deadline: float) -> Manifest | None:
        waiting = self._waiting(save)
        manifest = waiting.await_manifest(seconds=deadline)
        if manifest is None:
            waiting.log_failures()
        return manifest

    def describe_save(self, step: int) -> SaveInFlight:
        """What other ranks have to know of the save of a step that runs; raises OSError where the store does not answer."""
        save = SaveId(step, self.generation)
        missing = self._waiting(save).missing_ranks() if self.rank == 0 else None
        return SaveInFlight(save=str(save), rank=self.rank, missing=missing)

    def _waiting(self, save: SaveId) -> CommitWait:
        return CommitWait(self.store, save, world=self.world, check=self._refuse_if_stale)

    def _settle(self, manifest: Manifest) -> None:
        """Take a checkpoint that is known to be whole as the newest."""
        self._newest = manifest
        self._last_step = max(self._last_step, manifest.step)
        self._verified.add(manifest.digest)
        self._reusable = {
            shard.digest: shard.key for part in manifest.ranks for shard in part.shards
        }

    def _begin(self, step: int) -> None:
        if self.rank == 0:
            self._sweeper.begun(SaveId(step, self.generation))

    def _sweep(self, manifest: Manifest) -> None:
        """Delete what need not stay; a save is not undone because this fails."""
        try:
            self._sweeper.committed(manifest, verified=self._verified)
        except (CheckpointError, OSError) as error:
            log.warning("old checkpoints were not deleted: %s", error)

    def abandon(self) -> None:
        """Commit nothing more, and wait for nobody: this rank has left its group."""
        self._abandoned = True

    def _refuse_if_stale(self) -> None:
        if self._abandoned:
            raise StaleGeneration(f"generation {self.generation} was given up by this rank")
        newest = newest_claim(self.store)
        if newest > self.generation:
            raise StaleGeneration(
                f"{self.store.uri}: generation {newest} has taken over from {self.generation};"
                " this process may not save any more"
            )

    # reading ---------------------------------------------------------------------------------------

    def newest(self, *, not_after: int | None = None) -> Manifest | None:
        """Return the newest checkpoint that counts and is whole, all of it read and compared."""
        manifest, rejected = newest_valid(self.store, not_after=not_after, known=self._verified)
        for step, reason in rejected:
            self._reject(step, reason)
        if manifest is not None:
            self._verified.add(manifest.digest)
        return manifest

    def read(self, manifest: Manifest, rank: int | None = None) -> tuple[Any, dict[str, bytearray]]:
        """Return the document and blobs of a rank (this one's by default), compared while they are read.

        Raises:
            BadCheckpoint: where anything differs; then nothing is returned.
            CheckpointError: where the store does not answer, or there is no such rank.
        """
        chosen = self.rank if rank is None else rank
        if chosen >= manifest.world:
            raise CheckpointError(
                f"rank {chosen} has no part in the checkpoint of step {manifest.step}: it holds {manifest.world} ranks"
            )
        try:
            return read_state(self.store, manifest, chosen)
        except OSError as error:
            raise CheckpointError(f"step {manifest.step} cannot be read: {error}") from error
