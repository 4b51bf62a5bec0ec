"""The pods of runs: made once, adopted, released, ended and kept, with their logs archived. Never by force."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from airflow_training.control.reasons import WAITING_FOR_OLD_INSTANCE
from airflow_training.documents.resolved import RunRef
from airflow_training.errors import StillAlive
from airflow_training.runtimes.kubernetes import gangs, names, objects, pod_files
from airflow_training.runtimes.kubernetes import pod_attempts as turns
from airflow_training.runtimes.kubernetes.adoption import judge
from airflow_training.runtimes.kubernetes.api import Api
from airflow_training.runtimes.kubernetes.api_errors import (
    AlreadyExists,
    Conflict,
    Invalid,
    NotFound,
)
from airflow_training.runtimes.kubernetes.kinds import CONFIG_MAPS, PODS
from airflow_training.runtimes.kubernetes.logs import LogArchive, PodLogStream
from airflow_training.runtimes.kubernetes.observing import observe
from airflow_training.runtimes.kubernetes.pod_view import PodView
from airflow_training.runtimes.port import InstanceRef, Outcome, ReleaseAnswer

__all__ = ["Instances", "Keeps", "find_pod", "gather_all", "identity"]

_GONE_SECONDS = 5.0
"""How long `create` waits for an ended pod of the same name to go."""
_END_SECONDS = 30.0
"""How much longer than the longest grace `end_all` waits for the last pod to go."""
_PHASE_SECONDS = 15.0
"""How long `end_all` waits for the last phase of a pod that stays, its containers having ended."""
_LOOK_SECONDS = (0.05, 2.0)
"""Between two looks at pods that are to go: at first, and at most."""

Keeps = Callable[[PodView], bool]
"""Whether a pod stays when its run is removed."""


class Whole(Protocol):
    """The log of a pod of a run; `follow`: until it ends, else until now."""

    def __call__(self, run: RunRef, pod: PodView, *, follow: bool = True) -> PodLogStream: ...


class Instances:
    """The pods of one cluster."""

    def __init__(self, api: Api, archive: LogArchive, whole: Whole) -> None:
        """`whole`: the log of a pod of a run."""
        self._api = api
        self._archive = archive
        self._whole = whole
        self._keeping: dict[str, set[asyncio.Task[None]]] = {}
        """Run uid -> logs that are being archived; a task nobody holds may vanish."""

    async def all(self, run: RunRef) -> Sequence[PodView]:
        """Return every pod of a run, those that are only kept too."""
        found, _ = await self._api.list(
            PODS, run.namespace, selector=f"{names.run_selector(run)},{names.ROLE}"
        )
        return [PodView.of(each) for each in found]

    async def create(self, ref: InstanceRef, document: Mapping[str, Any]) -> Outcome:
        """Create a pod, adopt the one that is there, or make way first where it is over."""
        until = time.monotonic() + _GONE_SECONDS
        pause = _LOOK_SECONDS[0]
        name = document["metadata"]["name"]
        while True:
            try:
                made = await self._api.create(PODS, ref.run.namespace, document)
            except AlreadyExists:
                pass
            else:
                uid = made["metadata"]["uid"]
                return Outcome(ref=dataclasses.replace(ref, uid=uid), result="created")
            try:
                found = PodView.of(await self._api.get(PODS, ref.run.namespace, name))
            except NotFound:
                continue
            verdict = judge(found, ref)
            if verdict.step == "adopt":
                uid = turns.intended_uid(found)
                return Outcome(ref=dataclasses.replace(ref, uid=uid), result="adopted")
            if verdict.step == "foreign":
                return Outcome(ref=ref, result="impossible", message=verdict.message)
            if verdict.step == "refuse" or time.monotonic() > until:
                message = verdict.message or f"pod {name} is not gone yet"
                return Outcome(
                    ref=ref, result="refused", reason=WAITING_FOR_OLD_INSTANCE, message=message
                )
            if verdict.step == "replace":
                await self.delete(ref.run, found, grace_seconds=0)
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.5)

    async def release(self, ref: InstanceRef, answer: ReleaseAnswer) -> None:
        """Give a held pod its answer; nothing where it is another pod by now."""
        run = ref.run
        pod = await find_pod(self._api, ref)
        if pod is None or (ref.uid and turns.intended_uid(pod) != ref.uid):
            return
        name, uid = pod.name, pod.uid
        addresses = {role: list(all_) for role, all_ in answer.addresses.items()}
        told: dict[str, Any] = {"uid": uid, "kind": answer.kind, "addresses": addresses}
        text = json.dumps(told)
        if len(text) > pod_files.ANSWER_BYTES:
            documents = objects.answer_documents(
                run,
                name,
                uid,
                json.dumps(addresses),
                shard_bytes=pod_files.SHARD_BYTES,
                record_uid=pod.owner_uid,
            )
            await gather_all(
                self._api.apply(CONFIG_MAPS, run.namespace, each) for each in documents
            )
            text = json.dumps({"uid": uid, "kind": answer.kind, "shards": len(documents)})
        change = {"metadata": {"uid": uid, "annotations": {names.RELEASE: text}}}
        with contextlib.suppress(NotFound, Conflict, Invalid):  # another pod of that name by now
            await self._api.patch(PODS, run.namespace, name, change)

    async def mark(self, run: RunRef, pod: PodView, marks: Mapping[str, Any]) -> bool:
        """Change labels and annotations of one very pod; return whether it is still there."""
        change = {"metadata": {"uid": pod.uid, **marks}}
        try:
            await self._api.patch(PODS, run.namespace, pod.name, change)
        except (NotFound, Conflict, Invalid):  # another pod of that name by now
            return False
        return True

    async def delete(self, run: RunRef, pod: PodView, *, grace_seconds: float) -> None:
        """Delete one very pod, never by force; what it prints until its end is archived."""
        ref = dataclasses.replace(pod.ref, run=run)
        reached = asyncio.Event()
        keeping = asyncio.create_task(
            self._archive.keep(
                ref, self._whole(run, pod), reached=reached, begins=turns.first_log_line(pod)
            )
        )
        over = pod.is_over
        seen = observe(pod, now=time.time())
        if over:
            await keeping
        else:
            await reached.wait()
        if seen.held:
            grace_seconds = 0  # the hold has nothing to save, and its start may miss the order
        try:
            with contextlib.suppress(Conflict):  # another pod of that name: not the one meant
                await self._api.delete(
                    PODS,
                    run.namespace,
                    pod.name,
                    uid=pod.uid,
                    # 0 would be force: the object gone while its processes may live
                    grace_seconds=None if over else max(1, round(grace_seconds)),
                )
        finally:
            if not over:
                of_run = self._keeping.setdefault(run.uid, set())
                of_run.add(keeping)
                keeping.add_done_callback(of_run.discard)

    async def end_all(self, run: RunRef, *, keeps: Keeps) -> bool:
        """Return whether pods stay (ended, and only to be looked at); raises StillAlive."""
        until = 0.0
        settled_at = time.monotonic() + _PHASE_SECONDS
        pause = _LOOK_SECONDS[0]
        while True:
            found = await self.all(run)
            stays = [pod for pod in found if keeps(pod)]
            looked_into = [pod for pod in stays if turns.stays_now(pod, now=time.time())]
            kept = [pod for pod in stays if pod.is_over or pod in looked_into]
            ending = time.monotonic() < settled_at and len(kept) < len(stays)
            waited = [pod for pod in found if pod not in kept and not (ending and pod in stays)]
            await gather_all(
                [
                    *(self._keep(run, pod) for pod in kept if not _is_marked(pod)),
                    *(self._end(run, pod) for pod in waited),
                ]
            )
            if not waited and not ending:
                if keeping := self._keeping.pop(run.uid, None):
                    await asyncio.wait(keeping, timeout=_END_SECONDS)
                return bool(kept)
            if not until and waited:
                longest = max(pod.grace_seconds for pod in waited)
                until = time.monotonic() + longest + _END_SECONDS
            if waited and time.monotonic() > until:
                where = "; ".join(
                    f"pod {pod.name} on node {pod.node or '(none)'}" for pod in waited
                )
                raise StillAlive(f"run {run.uid}: {where} is not gone yet")
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _LOOK_SECONDS[1])

    async def _end(self, run: RunRef, pod: PodView) -> None:
        if marks := gangs.marks_at_end(pod):
            await self.mark(run, pod, marks)
        if pod.deletion is None:
            await self.delete(run, pod, grace_seconds=pod.grace_seconds)

    async def _keep(self, run: RunRef, pod: PodView) -> None:
        """Mark a pod as one that is no instance any more, its log archived."""
        ref = dataclasses.replace(pod.ref, run=run)
        marks: dict[str, Any] = {**gangs.marks_at_end(pod), "labels": {names.KEPT: "true"}}
        if pod.is_over and turns.kept_until(pod) is not None:
            marks["annotations"] = {**marks.get("annotations", {}), names.KEPT_UNTIL: None}
        await self._archive.keep(
            ref, self._whole(run, pod, follow=pod.is_over), begins=turns.first_log_line(pod)
        )
        await self.mark(run, pod, marks)


async def find_pod(api: Api, ref: InstanceRef) -> PodView | None:
    """Return the pod of an attempt, also one that is only kept."""
    for numbered in (False, True):
        with contextlib.suppress(NotFound):
            name = names.pod_name(ref, numbered=numbered)
            pod = PodView.of(await api.get(PODS, ref.run.namespace, name))
            if identity(pod.ref) == identity(ref):
                return pod
    return None


async def gather_all(calls: Any) -> list[Any]:
    """Await all of them; the first error is raised when every one is done."""
    answers = await asyncio.gather(*calls, return_exceptions=True)
    for each in answers:
        if isinstance(each, BaseException):
            raise each
    return answers


def identity(ref: InstanceRef) -> tuple[str, int, tuple[int, int, int]]:
    """Key that tells attempts of one run apart."""
    return ref.role, ref.index, names.attempt_of(ref)


def _is_marked(pod: PodView) -> bool:
    """Return whether a pod is known as one that is only kept, and for what."""
    known = names.KEPT in pod.labels
    return known and not (pod.is_over and turns.kept_until(pod) is not None)
