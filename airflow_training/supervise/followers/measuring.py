"""What a run measures under its plan, from what its scripts report; kept in the store for later plans.

Imports nothing of the planner: a plan is a document here.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from statistics import median

from airflow_training.control.model import Ledger
from airflow_training.control.reports import ProgressReport
from airflow_training.control.step_pace import Pace
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.errors import RuntimeUnavailable
from airflow_training.state.records import Measurement
from airflow_training.state.store import Store
from airflow_training.supervise.followers.follower import Follower

__all__ = ["PEAK_MEMORY", "Meter", "is_followed", "measurement"]

log = logging.getLogger(__name__)

PEAK_MEMORY = "peak_memory_bytes"
"""Metric by which scripts say how much memory their device held at most."""
_LOOK_SECONDS = 1.0
_NEWS = 0.02
"""Relative change of a step from which it is written again."""


def is_followed(job: ResolvedJob, ledger: Ledger) -> bool:
    """Return whether a run trains as its plan says.

    Not where the split was never given to its scripts, nor after a role was scaled by hand.
    """
    plan = job.plan
    return (
        plan is not None
        and bool(plan.subject)
        and "TP_SIZE" in plan.applied_env
        and all(ledger.roles[role.name].replicas == role.replicas for role in job.roles)
    )


def measurement(
    job: ResolvedJob, paces: Mapping[InstanceKey, Pace], memory_bytes: float | None
) -> Measurement | None:
    """Step time and memory of a job under its plan, by its instances; None: too little as yet."""
    seconds = [each for pace in paces.values() if (each := pace.step_seconds) is not None]
    if not seconds or job.plan is None:
        return None
    return Measurement(
        plan=job.plan.id,
        subject=job.plan.subject,
        strategy=job.plan.strategy,
        step_seconds=median(seconds),
        steps=max(pace.steps for pace in paces.values()),
        memory_bytes=memory_bytes,
    )


class Meter(Follower):
    """One run's step time and memory.

    It reads progress from the store: there it is, whichever way the instances reported it.
    """

    def __init__(
        self,
        *,
        store: Store,
        uid: str,
        state: Callable[[], tuple[ResolvedJob, Ledger]],
        on_progress: Callable[[Mapping[InstanceKey, ProgressReport]], None],
    ) -> None:
        """`on_progress` gets what each look finds in the store: what pods tell of themselves comes no other way."""
        self._store = store
        self._uid = uid
        self._state = state
        self._on_progress = on_progress
        self._plan = ""
        self._paces: dict[InstanceKey, Pace] = {}
        self._memory_bytes: float | None = None
        self._written: Measurement | None = None
        self._complaint = ""
        self.progress: Mapping[InstanceKey, ProgressReport] = {}
        """The newest that each instance reported."""

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            await self.poll()

    async def finish(self) -> None:
        await self.poll()

    async def poll(self) -> None:
        """Look once, and write what is new. A store that does not answer is asked again later."""
        job, ledger = self._state()
        try:
            await asyncio.to_thread(self._poll, job, ledger)
            self._on_progress(self.progress)
            self._complaint = ""
        except RuntimeUnavailable as error:
            self._store.outage.record_failure(error)
        except (
            Exception
        ) as error:  # what is measured is advice: no mistake in it may end a training
            if str(error) != self._complaint:  # a store that is away stays so for many looks
                log.warning("run %s: nothing could be measured", self._uid, exc_info=True)
            self._complaint = str(error)

    def _poll(self, job: ResolvedJob, ledger: Ledger) -> None:
        now = self._store.now()
        self.progress = self._store.progress.newest(self._uid)
        if not is_followed(job, ledger):
            return
        if job.plan is not None and self._plan != job.plan.id:
            self._plan, self._paces, self._memory_bytes = job.plan.id, {}, None
        for key, said in self.progress.items():
            entry = ledger.instances.get(key)
            if entry is not None and entry.state in ("running", "succeeded"):
                self._take(key, said, now=now)
        found = measurement(job, self._paces, self._memory_bytes)
        if found is not None and _is_news(found, self._written):
            self._store.measurements.save(self._uid, found)
            self._written = found

    def _take(self, key: InstanceKey, said: ProgressReport, *, now: float) -> None:
        before = self._paces.get(key, Pace())
        if said.step is not None and said.step != before.step:
            self._paces[key] = before.after(said.step, now if said.time is None else said.time)
        peak = said.metrics.get(PEAK_MEMORY, math.nan)
        if peak > 0 and math.isfinite(peak):
            self._memory_bytes = max(peak, self._memory_bytes or 0.0)


def _is_news(found: Measurement, before: Measurement | None) -> bool:
    if before is None or (found.plan, found.memory_bytes) != (before.plan, before.memory_bytes):
        return True
    apart = abs(found.step_seconds / before.step_seconds - 1.0)
    return apart > _NEWS or found.steps >= 2 * before.steps
