"""What one run has committed: from what its instances report, and from the store of checkpoints itself.

Reports are fast and may be lost with the process that wrote them; the store of checkpoints is the
truth, and is asked where something failed or ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from airflow_training.control.known_checkpoints import REMEMBERED
from airflow_training.control.model import InstanceKey, Ledger, Observation, Progress
from airflow_training.control.recovery import is_one_group
from airflow_training.errors import InputError
from airflow_training.spec.resolved import ResolvedJob, RunRef
from airflow_training.supervise.rendering import followed_root

__all__ = ["Committed", "last_committed"]

log = logging.getLogger(__name__)

_ASK_SECONDS = 5.0
"""How long a decision waits for the store of checkpoints; what is not known by then was reported."""


class Committed:
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
        self._fresh: dict[str, Mapping[str, Any]] = {}
        """Digest -> reference: what no decision was given yet."""
        self._seen: set[str] = set()
        """Digests of all that were: many reports name the same one."""
        self._living: dict[str, str] = {}
        """Uid -> `<role>-<index>` of what lived at the last look."""

    def reported(self, references: Iterable[Mapping[str, Any] | None]) -> None:
        """Take in what instances say; checkpoints of other lineages are not followed."""
        new = [each for each in references if each and each["digest"] not in self._seen]
        roots = self._roots() if new else frozenset()
        for each in new:
            self._seen.add(each["digest"])
            if each["uri"] in roots:
                self._fresh[each["digest"]] = each
                self._on_news()

    def observed(self, instances: Collection[Observation]) -> None:
        """Take in what comes with observations: the last report of an instance that just ended."""
        self.reported(each.progress.checkpoint for each in instances if each.progress)

    def progressed(self, fresh: Mapping[InstanceKey, Progress]) -> None:
        """Take in progress."""
        self.reported(each.checkpoint for each in fresh.values())

    async def before_decision(self, instances: Collection[Observation]) -> None:
        """Ask the store of checkpoints where an instance has ended since, before that is judged."""
        self.observed(instances)
        before = self._living
        self._living = {
            each.uid: f"{each.role}-{each.index}"
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
        return frozenset(self.root_of(f"{role}-{index}") for role, index in ledger.instances)

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

    def take(self) -> Sequence[Mapping[str, Any]]:
        """Return what no decision was given yet; `taken_in` says that one was, and is persisted."""
        return tuple(self._fresh.values())

    def taken_in(self, references: Sequence[Mapping[str, Any]]) -> None:
        """Give these to no decision again."""
        for each in references:
            self._fresh.pop(each["digest"], None)


def last_committed(root: str) -> list[dict[str, Any]]:
    """Return references of the newest checkpoints below `root`, the newest one last. Blocks.

    More than one, as reports of those before it may be lost too, and a group may have to step back.
    """
    from airflow_training.checkpoints.reading import recent, reference  # only with checkpoints

    return [
        {**reference(root, manifest), "at": manifest.at, "bytes": manifest.size}
        for manifest in recent(root, REMEMBERED + 1)
    ]
