"""One list and watch for all runs of a namespace, shared by whoever follows one of them.

An idle run costs nothing of its own: the watch is one request in five minutes, whatever it covers, and a
small one for each ten seconds in which nothing is heard of the server.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from typing import Any

from airflow_training.control.observations import Observation
from airflow_training.documents.resolved import RunRef
from airflow_training.errors import RuntimeUnavailable
from airflow_training.runtimes.kubernetes import names
from airflow_training.runtimes.kubernetes.api import Api
from airflow_training.runtimes.kubernetes.api_errors import ApiError
from airflow_training.runtimes.kubernetes.group_status import GroupStatus, is_held
from airflow_training.runtimes.kubernetes.group_watch import GroupStatuses
from airflow_training.runtimes.kubernetes.image_pulls import with_earlier_message
from airflow_training.runtimes.kubernetes.kinds import PODS
from airflow_training.runtimes.kubernetes.node_watch import NodeFacts, NodeWatch
from airflow_training.runtimes.kubernetes.observing import observe, observe_again_at
from airflow_training.runtimes.kubernetes.pod_attempts import AgentReport
from airflow_training.runtimes.kubernetes.pod_view import PodView, number_of_version
from airflow_training.runtimes.kubernetes.progress import Report, stored_report
from airflow_training.runtimes.kubernetes.quota_watch import QuotaWatch
from airflow_training.runtimes.kubernetes.watch_loop import ListWatch, detached
from airflow_training.runtimes.port import (
    Change,
    InstanceRemoval,
    InstanceUpdate,
    RoomMade,
    Snapshot,
)

__all__ = ["NamespaceWatch"]

log = logging.getLogger(__name__)

PROGRESS_SECONDS = 15.0
"""How often progress that lies in object storage is read."""
TURN_SECONDS = 1.0
"""How often what agents said of pods that stay is read."""
HOLD_SECONDS = 120.0
"""How often what holds pods is asked why: at most two requests for each kind of holder."""
HOLD_PAUSE_SECONDS = 60.0
"""How soon after that for pods that have come meanwhile."""
_HOLD_LOOK_SECONDS = 2.0
_PAUSES = (0.1, 5.0)
"""Seconds before the next try: at first, and at most."""

TurnsOf = Callable[
    [str, Iterable[PodView], Mapping[str, AgentReport]],
    Awaitable[Mapping[str, AgentReport]],
]
"""(Run uid, pods, what is known) -> pod uid -> what its agent said last."""
_Told = Change | Exception
_ODD = (AttributeError, KeyError, TypeError, ValueError)
"""What a pod raises that nobody can read."""


class NamespaceWatch:
    """The pods of one deployment in one namespace, as observations by run.

    Starts with the first follower and ends with the last. Belongs to one event loop.
    """

    def __init__(
        self,
        api: Api,
        namespace: str,
        controller: str,
        *,
        silent_seconds: float,
        now: Callable[[], float] = time.time,
        progress_seconds: float = PROGRESS_SECONDS,
        turns: TurnsOf | None = None,
        was_away: bool = False,
        nodes: NodeWatch | None = None,
    ) -> None:
        """`silent_seconds`: how long the server may be away before followers are told.

        `turns`: what agents said of the attempts in their pods; None: nobody can know. `was_away`: the
        server did not answer before. `nodes`: those of the cluster; None: nobody looks at them.
        """
        self._api = api
        self._namespace = namespace
        self._selector = names.controller_selector(controller)
        self._now = now
        self._silent_seconds = silent_seconds
        self._progress_seconds = progress_seconds
        self._turns_of = turns
        self._was_away = was_away
        self._answers_since = 0.0
        """Since when the server answers again, after it had been away."""
        self._turns: dict[str, AgentReport] = {}
        """Pod uid -> what its agent said last."""
        self.quotas = QuotaWatch(
            api, namespace, on_room=lambda run_uid: self._tell(run_uid, RoomMade())
        )
        self._holders = GroupStatuses(api, namespace, nodes)
        self._node_facts = NodeFacts(nodes, self._due_if_known)
        self._held: dict[str, GroupStatus] = {}
        """Pod uid -> why it waits, as what holds it said last."""
        self._asked: set[str] = set()
        """Uids of the pods that were held when that was asked."""
        self._reports: dict[str, Report] = {}
        """Pod uid -> the newest report that was read."""
        self._pods: dict[str, PodView] = {}
        self._seen: defaultdict[str, dict[str, Observation]] = defaultdict(dict)
        """Run uid -> pod name -> what it was last seen to do."""
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._followers: defaultdict[str, set[asyncio.Queue[_Told]]] = defaultdict(set)
        self._tasks: tuple[asyncio.Task[None], ...] = ()
        self._synced = False
        self._gone_meanwhile: dict[object, set[str]] = {}
        """For each list that is on its way: the uids that went since it was asked for."""

    @property
    def idle(self) -> bool:
        """Return whether nobody follows it."""
        return not self._followers

    def pods(self, run: RunRef) -> Iterable[PodView]:
        """Return a run's pods as they were last seen; none while nobody follows it."""
        return [self._pods[name] for name in self._seen.get(run.uid, ()) if name in self._pods]

    def pod(self, name: str) -> PodView | None:
        """Return a pod as it was last seen."""
        return self._pods.get(name)

    async def follow(self, run: RunRef) -> AsyncGenerator[Change, None]:
        """Yield a snapshot of the run, then its changes; raises RuntimeUnavailable."""
        queue: asyncio.Queue[_Told] = asyncio.Queue()
        self._followers[run.uid].add(queue)
        try:
            if self._synced:
                await self._catch_up(run)
                queue = self._renew(run.uid, queue)
                queue.put_nowait(self._snapshot(run.uid))
            self._start()
            while True:
                told = await queue.get()
                if isinstance(told, Exception):
                    raise told
                yield told
        finally:
            self._leave(run.uid, queue)

    def is_followed(self, run: RunRef) -> bool:
        """Return whether anybody follows a run."""
        return run.uid in self._followers

    # the task ----------------------------------------------------------------------------------
    def _start(self) -> None:
        if not self._tasks:
            watch = ListWatch(
                self._api,
                PODS,
                self._namespace,
                selector=self._selector,
                on_list=self._on_list,
                on_change=self._on_change,
                on_unreachable=self._publish_unreachable,
                on_break=lambda error: self._publish_unreachable(f"the watch broke: {error!r}"),
                pauses=_PAUSES,
                silent_seconds=self._silent_seconds,
            )
            work = (
                watch.run(),
                self._read_progress_for_ever(),
                self._poll_agent_reports(),
                self._poll_groups(),
            )
            self._tasks = tuple(map(detached, work))

    async def _on_list(self, items: Sequence[Mapping[str, Any]], version: str) -> None:
        views = self._parsed(items)
        await self._update_agent_reports(views)
        if self._was_away:
            self._was_away, self._answers_since = False, self._now()
        self._replace(views, {each["metadata"]["name"] for each in items}, version)

    def _on_change(self, kind: str, pod: Mapping[str, Any]) -> None:
        if kind == "DELETED":
            self._remove(pod["metadata"]["name"], pod["metadata"]["uid"])
        elif (view := _view(pod)) is not None:
            self._put(view)
        else:
            known = self._pods.get(pod["metadata"]["name"])
            if known and known.uid != pod["metadata"]["uid"]:  # nobody can read what took its place
                self._remove(known.name, known.uid)

    async def _read_progress_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._progress_seconds)
            for name, pod in list(self._pods.items()):
                uri = pod.annotations.get(names.PROGRESS)
                if not uri or pod.phase != "Running":
                    continue
                found = await asyncio.to_thread(stored_report, uri)
                if found is not None and self._pods.get(name) is pod:
                    self._reports[pod.uid] = found
                    self._due(name)

    async def _poll_agent_reports(self) -> None:
        while self._turns_of is not None:
            await asyncio.sleep(TURN_SECONDS)
            pods = [pod for pod in self._pods.values() if pod.phase == "Running"]
            for name in await self._update_agent_reports(pods):
                self._due_if_known(name)

    async def _poll_groups(self) -> None:
        asked_at = -HOLD_SECONDS
        while True:
            await asyncio.sleep(_HOLD_LOOK_SECONDS)
            held = [pod for pod in self._pods.values() if is_held(pod, now=self._now())]
            uids = {pod.uid for pod in held}
            pause = HOLD_SECONDS if uids <= self._asked else HOLD_PAUSE_SECONDS
            if held and time.monotonic() >= asked_at + pause:
                asked_at = time.monotonic()
                self._asked = uids
                try:
                    self._update_groups(held, await self._holders.of(held))
                except (
                    KeyError,
                    TypeError,
                    ValueError,
                ) as error:  # an object unlike any that we know
                    log.warning(
                        "what holds pods in %s is not understood: %r", self._namespace, error
                    )

    def _update_groups(self, held: Iterable[PodView], said: Mapping[str, GroupStatus]) -> None:
        before, self._held = self._held, dict(said)
        for pod in held:
            if before.get(pod.uid) != said.get(pod.uid):
                self._due_if_known(pod.name)

    async def _update_agent_reports(self, pods: Iterable[PodView]) -> list[str]:
        """Ask what the agents of these pods said; return the names of those that said something new."""
        stays = [pod for pod in pods if names.IN_PLACE in pod.annotations]
        if self._turns_of is None or not stays:
            return []
        news = []
        for run_uid in {pod.run_uid for pod in stays}:
            try:
                known = await self._turns_of(run_uid, stays, self._turns)
            except Exception:  # the store is away: the other runs' news still counts
                log.warning("what pods of run %s reported cannot be read", run_uid, exc_info=True)
                continue
            for pod in stays:
                uid = pod.uid
                if uid in known and self._turns.get(uid) != known[uid]:
                    self._turns[uid] = known[uid]
                    news.append(pod.name)
        return news

    async def _catch_up(self, run: RunRef) -> None:
        """Read the run's pods once: a follower sees what was done before it came."""
        asked = object()
        gone = self._gone_meanwhile[asked] = set()
        try:
            items, _ = await self._api.list(
                PODS, self._namespace, selector=names.instance_selector(run)
            )
        except ApiError as error:
            raise RuntimeUnavailable(str(error)) from error
        finally:
            del self._gone_meanwhile[asked]
        views = self._parsed(items)
        await self._update_agent_reports(views)
        for pod in views:
            if pod.uid not in gone:
                self._put(pod)

    # the picture -------------------------------------------------------------------------------
    def _parsed(self, items: Iterable[Mapping[str, Any]]) -> list[PodView]:
        return [pod for each in items if (pod := _view(each)) is not None]

    def _replace(self, pods: Iterable[PodView], listed: Collection[str], version: str) -> None:
        """Take a whole list; followers get a snapshot where it says something new.

        What a follower's own list has told since this one was made is newer, and stays.
        `listed`: the names of all, those that nobody can read too.
        """
        made_at = number_of_version(version)
        before = {uid: dict(seen) for uid, seen in self._seen.items()}
        for name, known in list(self._pods.items()):
            if name not in listed and known.version <= made_at:
                self._forget(name)
        for pod in pods:
            if pod.name not in self._pods or pod.version >= self._pods[pod.name].version:
                self._remember(pod)
        for uid in list(self._followers):
            if not self._synced or before.get(uid, {}) != self._seen.get(uid, {}):
                self._tell(uid, self._snapshot(uid))
        self._synced = True

    def _put(self, pod: PodView) -> None:
        known = self._pods.get(pod.name)
        if known is not None and known.uid == pod.uid and pod.version < known.version:
            return  # it was overtaken by what a list said meanwhile
        if known is not None and known.uid != pod.uid:
            self._remove(known.name, known.uid)
        seen = self._remember(pod)
        if seen is not None:
            self._tell(pod.run_uid, InstanceUpdate(instance=seen))

    def _remove(self, name: str, uid: str) -> None:
        known = self._pods.get(name)
        if known is None or known.uid != uid:
            return
        seen = self._forget(name)
        if seen is not None:
            self._tell(known.run_uid, InstanceRemoval(key=seen.key, uid=seen.uid))

    def _remember(self, pod: PodView) -> Observation | None:
        """Return what the pod does now where that is news."""
        known = self._pods.get(pod.name)
        pod = with_earlier_message(pod, known)
        if known is not None and pod.node and not known.node:
            self._held.pop(pod.uid, None)  # why it had none is over
        try:
            report = self._reports.get(pod.uid, Report())
            seen = observe(
                pod,
                now=self._now(),
                progress=report.progress,
                environment=report.environment,
                turn=self._turns.get(pod.uid),
                holder=self._held.get(pod.uid),
                answers_since=self._answers_since,
                node_fact=self._node_facts.of(pod),
            )
        except _ODD as error:
            _warn_of_odd(pod.name, error)
            return None
        self._pods[pod.name] = pod
        self._look_again(pod.name)
        of_run = self._seen[pod.run_uid]
        before = of_run.get(pod.name)
        if before == seen:
            return None
        if before is not None and before.uid != seen.uid:  # another attempt inside the same pod
            self._tell(pod.run_uid, InstanceRemoval(key=before.key, uid=before.uid))
        of_run[pod.name] = seen
        return seen

    def _forget(self, name: str) -> Observation | None:
        pod = self._pods.pop(name)
        self._reports.pop(pod.uid, None)
        self._turns.pop(pod.uid, None)
        self._held.pop(pod.uid, None)
        self._node_facts.forget(pod)
        for gone in self._gone_meanwhile.values():
            gone.add(pod.uid)
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()
        seen = self._seen[pod.run_uid].pop(name, None)
        if not self._seen[pod.run_uid]:
            del self._seen[pod.run_uid]
        return seen

    def _look_again(self, name: str) -> None:
        """Observe a pod once more when time alone will have changed what it means."""
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()
        now = self._now()
        at = observe_again_at(self._pods[name], now=now, answers_since=self._answers_since)
        if at is not None:
            loop = asyncio.get_running_loop()
            self._timers[name] = loop.call_later(at - now, self._due, name)

    def _due(self, name: str) -> None:
        pod = self._pods[name]
        seen = self._remember(pod)
        if seen is not None:
            self._tell(pod.run_uid, InstanceUpdate(instance=seen))

    def _due_if_known(self, name: str) -> None:
        if name in self._pods:
            self._due(name)

    # followers ---------------------------------------------------------------------------------
    def _snapshot(self, run_uid: str) -> Snapshot:
        return Snapshot(instances=tuple(self._seen.get(run_uid, {}).values()))

    def _tell(self, run_uid: str, told: _Told) -> None:
        for queue in self._followers.get(run_uid, ()):
            queue.put_nowait(told)

    def _publish_unreachable(self, why: Exception | str) -> None:
        self._synced, self._was_away = False, True
        for uid in list(self._followers):
            self._tell(uid, RuntimeUnavailable(str(why)))

    def _renew(self, run_uid: str, queue: asyncio.Queue[_Told]) -> asyncio.Queue[_Told]:
        """Return a new queue: what was told before the snapshot is in the snapshot."""
        self._followers[run_uid].discard(queue)
        fresh: asyncio.Queue[_Told] = asyncio.Queue()
        self._followers[run_uid].add(fresh)
        return fresh

    def _leave(self, run_uid: str, queue: asyncio.Queue[_Told]) -> None:
        self._followers[run_uid].discard(queue)
        if not self._followers[run_uid]:
            del self._followers[run_uid]
            self.quotas.end(run_uid)
        if self._followers:
            return
        for task in self._tasks:
            task.cancel()
        self._tasks = ()
        self._synced = False
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._pods.clear()
        self._seen.clear()
        self._reports.clear()
        self._turns.clear()
        self._held.clear()
        self._asked.clear()
        self._node_facts.close()


def _view(pod: Mapping[str, Any]) -> PodView | None:
    """Return a pod as we see it; None where nobody can read it: it shall not hide what the others do."""
    try:
        return PodView.of(pod)
    except _ODD as error:
        _warn_of_odd(pod["metadata"].get("name"), error)
        return None


def _warn_of_odd(name: str, error: Exception) -> None:
    log.warning("pod %s has odd labels or annotations: %r", name, error)
