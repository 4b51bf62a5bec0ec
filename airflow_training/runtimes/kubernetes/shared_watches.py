"""The watches of one process: one for each namespace and event loop, shared by all who follow a run there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterable, Iterator

from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import RunRef
from airflow_training.errors import RefusedForNow, RuntimeUnavailable
from airflow_training.runtimes.kubernetes import names
from airflow_training.runtimes.kubernetes.api import Api
from airflow_training.runtimes.kubernetes.instances import identity
from airflow_training.runtimes.kubernetes.node_watch import NodeWatch
from airflow_training.runtimes.kubernetes.pod_view import PodView
from airflow_training.runtimes.kubernetes.quota_watch import QuotaWatch
from airflow_training.runtimes.kubernetes.refusals import QUOTA_EXCEEDED
from airflow_training.runtimes.kubernetes.watching import NamespaceWatch, TurnsOf
from airflow_training.runtimes.port import Change, InstanceRef, Outcome

__all__ = ["SharedWatches"]

_SHARED = InstanceKey("", -1)
"""In the place of an instance: what all of them need."""
_Place = tuple[asyncio.AbstractEventLoop, str, str]


class SharedWatches:
    """What is watched now; nothing while nobody follows a run."""

    def __init__(self, api: Api, *, silent_seconds: float, turns: TurnsOf | None) -> None:
        """`silent_seconds`, `turns`: as of `NamespaceWatch`."""
        self._api = api
        self._silent_seconds = silent_seconds
        self._turns_of = turns
        self._watches: dict[_Place, NamespaceWatch] = {}
        self._away: set[_Place] = set()
        """Where the server did not answer when that was last watched."""
        self._nodes: dict[asyncio.AbstractEventLoop, NodeWatch] = {}

    async def follow(self, run: RunRef) -> AsyncGenerator[Change, None]:
        """Yield a snapshot, then changes; raises RuntimeUnavailable."""
        place = _place(run)
        shared = self._watches.get(place)
        if shared is None:
            shared = self._watches[place] = NamespaceWatch(
                self._api,
                run.namespace,
                run.controller,
                silent_seconds=self._silent_seconds,
                turns=self._turns_of,
                was_away=place in self._away,
                nodes=self._nodes.setdefault(place[0], NodeWatch(self._api)),
            )
        try:
            async with contextlib.aclosing(shared.follow(run)) as changes:
                async for change in changes:
                    self._away.discard(place)
                    yield change
        except RuntimeUnavailable:
            self._away.add(place)
            raise
        finally:
            if shared.idle:
                self._watches.pop(place, None)
                if all(loop is not place[0] for loop, _, _ in self._watches):
                    self._nodes.pop(place[0], None)

    async def keep_following(self, run: RunRef) -> None:
        """Have a run watched until cancelled, whatever the server does."""
        while True:
            with contextlib.suppress(RuntimeUnavailable):
                async with contextlib.aclosing(self.follow(run)) as changes:
                    async for _ in changes:
                        pass
            await asyncio.sleep(1.0)

    def pod(self, instance: InstanceRef) -> PodView | None:
        """Return the pod of an attempt where a watch of ours shows it."""
        shared = self._watches.get(_place(instance.run))
        if shared is None:
            return None
        for numbered in (False, True):
            pod = shared.pod(names.pod_name(instance, numbered=numbered))
            if pod is not None and identity(pod.ref) == identity(instance):
                return pod
        return None

    def pods(self, run: RunRef) -> Iterable[PodView]:
        """Return a run's pods as they were last seen; none while nobody follows it."""
        shared = self._watches.get(_place(run))
        return () if shared is None else shared.pods(run)

    # quotas ------------------------------------------------------------------------------------
    @contextlib.contextmanager
    def awaiting_room(self, run: RunRef) -> Iterator[None]:
        """Have followers of the run told of more room in its quotas where that keeps something out."""
        quotas = self._quotas_of(run)
        try:
            yield
        except RefusedForNow as refused:
            if quotas is not None and refused.reason == QUOTA_EXCEEDED:
                quotas.begin(run.uid, {_SHARED})
            raise
        if quotas is not None:
            quotas.end(run.uid, {_SHARED})

    def note_room(self, run: RunRef, outcomes: Iterable[Outcome]) -> None:
        """The same for instances."""
        quotas = self._quotas_of(run)
        if quotas is not None:
            kept_out = {each.ref.key for each in outcomes if each.reason == QUOTA_EXCEEDED}
            quotas.end(run.uid, {each.ref.key for each in outcomes} - kept_out)
            quotas.begin(run.uid, kept_out)

    def _quotas_of(self, run: RunRef) -> QuotaWatch | None:
        shared = self._watches.get(_place(run))
        return None if shared is None or not shared.is_followed(run) else shared.quotas


def _place(run: RunRef) -> _Place:
    return asyncio.get_running_loop(), run.namespace, run.controller
