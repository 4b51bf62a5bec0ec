"""What one run has committed: from what its instances report, and from the store of checkpoints itself.

Reports are fast and may be lost with the process that wrote them; the store of checkpoints is the
truth, and is asked where something failed or ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping

from airflow_training.control.checkpoint_history import REMEMBERED
from airflow_training.control.model import Ledger
from airflow_training.control.observations import Observation, Observations
from airflow_training.control.recovery import is_one_group
from airflow_training.control.reports import ProgressReport, RejectedCheckpoint
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import ResolvedJob, RunRef
from airflow_training.documents.resolved_blocks import CheckpointCommit
from airflow_training.errors import InputError
from airflow_training.runtimes.rendering import followed_root
from airflow_training.supervise.followers.follower import Evidence, Follower

__all__ = ["CheckpointReferences", "last_committed"]

log = logging.getLogger(__name__)

_ASK_SECONDS = 5.0
"""How long a decision waits for the store of checkpoints; what is not known by then was reported."""


class CheckpointReferences(Follower):
    """The references of one run's checkpoints, for its decisions."""

    def __init__(
        self,
        *,
        run: RunRef,
        state: Callable[[], tuple[ResolvedJob, Ledger]],
        on_news: Callable[[], None],
    ) -> None:
        self._run = run
        self._state = state
        self._on_news = on_news
        self._fresh: dict[str, CheckpointCommit] = {}
        """By digest: what no decision was given yet."""
        self._seen: set[str] = set()
        """Digests of all that were: many reports name the same one."""
        self._fresh_rejected: dict[RejectedCheckpoint, InstanceKey] = {}
        self._seen_rejected: set[RejectedCheckpoint] = set()
        self._living: dict[str, str] = {}
        """Uid -> `<role>-<index>` of what lived at the last look."""

    def reported(self, commits: Iterable[CheckpointCommit | None]) -> None:
        """Take in what instances say; checkpoints of other lineages are not followed."""
        new = [each for each in commits if each and each.digest not in self._seen]
        roots = self._roots() if new else frozenset()
        for each in new:
            self._seen.add(each.digest)
            if each.uri in roots:
                self._fresh[each.digest] = each
                self._on_news()

    def on_progress(self, fresh: Mapping[InstanceKey, ProgressReport]) -> None:
        self.reported(each.checkpoint for each in fresh.values())
        for key, each in fresh.items():
            self._take_rejected(key, each)

    def _take_rejected(self, key: InstanceKey, said: ProgressReport) -> None:
        told = {*said.rejected, *(one for line in said.subtasks for one in line.rejected)}
        for each in told - self._seen_rejected:
            self._seen_rejected.add(each)
            self._fresh_rejected[each] = key
            self._on_news()

    async def evidence(self, seen: Observations | None) -> Evidence:
        """Evidence that no decision has used yet; attempts that ended since are looked up in the store of checkpoints."""
        if seen is not None:
            await self._poll(seen.instances)
        return Evidence(
            committed=tuple(self._fresh.values()),
            rejected=tuple((key, each) for each, key in self._fresh_rejected.items()),
        )

    async def _poll(self, instances: Collection[Observation]) -> None:
        # what an instance that just ended has reported last comes with its observation
        for each in instances:
            if each.progress:
                self.on_progress({each.key: each.progress})
        before = self._living
        self._living = {
            each.uid: str(each.key)
            for each in instances
            if each.state not in ("failed", "succeeded")
        }
        if ended := {before[uid] for uid in before.keys() - self._living.keys()}:
            await self._ask(ended)

    async def _ask(self, ended: Collection[str]) -> None:
        """Take in the last that the store of checkpoints holds for these, as far as it answers in time."""
        job, _ = self._state()
        roots = [self.root()] if is_one_group(job) else [*map(self.root_of, sorted(ended))]
        asking = {asyncio.ensure_future(asyncio.to_thread(last_committed, root)) for root in roots}
        done, late = await asyncio.wait(asking, timeout=_ASK_SECONDS)
        if late:
            log.warning("checkpoints of run %s: no answer in time", self._run.uid)
        for task in late:
            task.add_done_callback(lambda ended: ended.exception())
        for task in done:
            if task.exception() is not None:
                log.warning("checkpoints of run %s: %s", self._run.uid, task.exception())
            else:
                self.reported(task.result())

    def _roots(self) -> frozenset[str]:
        """Return the roots of all groups of the lineage of now."""
        job, ledger = self._state()
        if is_one_group(job):
            return frozenset({self.root()})
        return frozenset(self.root_of(str(key)) for key in ledger.instances)

    def root(self) -> str:
        """Return the root that the ledger follows now; "" where it cannot be known."""
        job, ledger = self._state()
        try:
            return followed_root(job, self._run, lineage=ledger.job.recovery.lineage)
        except InputError:
            return ""

    def root_of(self, group: str) -> str:
        """Return the root of the group of this name: that of one instance, or of the job."""
        root = self.root()
        return f"{root.rpartition('/')[0]}/{group}" if root and group else root

    def on_persisted(self, evidence: Evidence) -> None:
        """Give these to no decision again."""
        for each in evidence.committed:
            self._fresh.pop(each.digest, None)
        for _, rejected in evidence.rejected:
            self._fresh_rejected.pop(rejected, None)


def last_committed(root: str) -> list[CheckpointCommit]:
    """Return the newest checkpoints below `root`, the newest one last. Blocks.

    More than one, as reports of those before it may be lost too, and a group may have to step back.
    """
    from airflow_training.checkpoints.reading import recent  # only with checkpoints

    return [
        CheckpointCommit(
            uri=root,
            step=each.step,
            digest=each.digest,
            at=each.at,
            bytes=each.size,
            number=each.number,
        )
        for each in recent(root, REMEMBERED + 1)
    ]
