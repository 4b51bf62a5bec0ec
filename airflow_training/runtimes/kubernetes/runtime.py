"""`KubernetesRuntime`: the port, implemented on pods, services and gang objects.

Kubernetes is the engine. Everything of a run is owned by one ConfigMap, the run's record, which
also says which lease generation may create: a stale holder finds itself refused there.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import time
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from pathlib import Path
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar

from airflow_training.agent.package import portable_agent
from airflow_training.control.model import FIRST_ATTEMPT, AttemptId, InstanceKey
from airflow_training.control.reasons import WAITING_FOR_OLD_INSTANCE
from airflow_training.documents.resolved import ResolvedJob, RunRef
from airflow_training.errors import (
    InputError,
    LeaseLost,
    Problem,
    RefusedForNow,
    RuntimeUnavailable,
)
from airflow_training.frameworks.naming import service_host
from airflow_training.runtimes.adapter import Reports, SweepQuery
from airflow_training.runtimes.kubernetes import names, objects, pods
from airflow_training.runtimes.kubernetes import pod_attempts as turns
from airflow_training.runtimes.kubernetes.adoption import judge
from airflow_training.runtimes.kubernetes.api import (
    Api,
    ApiError,
    Forbidden,
    Invalid,
    NotFound,
)
from airflow_training.runtimes.kubernetes.capabilities import CAPABILITIES
from airflow_training.runtimes.kubernetes.collecting import LogCollector, reading
from airflow_training.runtimes.kubernetes.connection import Connect
from airflow_training.runtimes.kubernetes.facts import RunFacts, facts_of
from airflow_training.runtimes.kubernetes.instances import (
    Instances,
    container_of,
    gather_all,
    identity,
)
from airflow_training.runtimes.kubernetes.logs import KeyedThrottle, LogArchive, read_live
from airflow_training.runtimes.kubernetes.never_kept import never_kept
from airflow_training.runtimes.kubernetes.node_watch import NodeWatch
from airflow_training.runtimes.kubernetes.nodes import cluster_view, unfit_pods
from airflow_training.runtimes.kubernetes.observing import is_ending, is_over, observe, started_at
from airflow_training.runtimes.kubernetes.pod_attempts import AgentReport
from airflow_training.runtimes.kubernetes.quota_watch import QuotaWatch
from airflow_training.runtimes.kubernetes.quotas import shortage
from airflow_training.runtimes.kubernetes.record import Records, stale_reason
from airflow_training.runtimes.kubernetes.refusals import (
    QUOTA_EXCEEDED,
    field_of,
    is_final,
    not_now,
    outcome_of,
    problem_of,
)
from airflow_training.runtimes.kubernetes.rights import (
    check_cluster,
    namespace_visibility,
    unused_queues,
)
from airflow_training.runtimes.kubernetes.run_objects import RunObjects
from airflow_training.runtimes.kubernetes.shell import open_shell
from airflow_training.runtimes.kubernetes.sweep import OrphanObjects, find_orphans
from airflow_training.runtimes.kubernetes.watching import NamespaceWatch
from airflow_training.runtimes.port import (
    Address,
    Addresses,
    Change,
    ClusterSnapshot,
    Cursor,
    InstanceRef,
    InstanceSpec,
    LogChunk,
    Outcome,
    ReleaseAnswer,
    Streams,
)
from airflow_training.settings import Settings

__all__ = ["KubernetesRuntime"]

_TRY_AGAIN_SECONDS = 60.0
"""Between two tries to get the rest of a log of which the archive has a part."""
_SHARED: InstanceKey = ("", -1)
"""In the place of an instance: what all of them need."""
_TAIL_LINES = 100
_TAIL_BYTES = 1 << 20
"""The API server counts both from the first of the last lines: the newest must not be cut off."""

P = ParamSpec("P")
T = TypeVar("T")


def _speaking(call: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Tell what the server refuses unexpectedly (rights that were taken away) in the port's words."""

    @functools.wraps(call)
    async def spoken(*args: P.args, **values: P.kwargs) -> T:
        try:
            return await call(*args, **values)
        except ApiError as error:
            raise RuntimeUnavailable(f"the cluster refuses: {error}") from error

    return spoken


@contextlib.contextmanager
def _at_the_document(run: RunRef) -> Iterator[None]:
    """Tell what the server will never take of the run's objects as a mistake in its document.

    What it does not take for now is waited for, by all instances.
    """
    try:
        yield
    except ApiError as error:
        if is_final(error):
            raise InputError(problems=[problem_of(error, run)]) from error
        raise not_now(error) from error


class KubernetesRuntime:
    """Instances are pods of one cluster. Any number of objects may serve the same runs."""

    name = "kubernetes"
    capabilities = CAPABILITIES

    def __init__(
        self,
        *,
        connect: Connect,
        connection: str = "",
        archive: LogArchive,
        options: pods.PodOptions,
        max_run_seconds: float | None = None,
        callback_token: Callable[[str], str] | None = None,
        reports: Reports | None = None,
        patience_seconds: float = 20.0,
        collected: Path | None = None,
    ) -> None:
        """`max_run_seconds`: longest life of any pod. `callback_token`: run uid -> its token.

        `collected`: where the logs of living pods are, for all processes of this machine.

        `reports`: what instances left at the callback URL; without it nothing can stay in a pod.
        `patience_seconds`: how long the server may be away before anybody is told.
        """
        self.api = Api(connect, connection, budget_seconds=patience_seconds)
        self._patience_seconds = patience_seconds
        self.log_api = Api(connect, connection, budget_seconds=patience_seconds)
        """Connections of their own: however many logs are read, nothing else waits for one."""
        self._archive = archive
        self._tried = KeyedThrottle(seconds=_TRY_AGAIN_SECONDS)
        """Attempts of whose logs a part is archived, and lately no more was to be had."""
        self._collector = LogCollector(
            self.log_api, collected, tail_bytes=archive.tail_bytes, on_end=self._archive_log
        )
        self._viewer = LogCollector(self.log_api, None, tail_bytes=archive.tail_bytes)
        """Of whoever looks at logs while nobody on this machine collects them."""
        self._records = Records(self.api)
        self._objects = RunObjects(self.api)
        self._instances = Instances(self.api, archive, self._collector.whole)
        self._options = options
        self._max_run_seconds = max_run_seconds
        self._callback_token = callback_token
        self._reports = reports if options.callback_url else None
        self.capabilities = dataclasses.replace(
            self.capabilities, restart_in_place=self._reports is not None
        )
        self._begun: set[tuple[str, int]] = set()
        """(Run uid, job attempt) of which pods were made here: the server judges the others one by one."""
        self._watches: dict[tuple[asyncio.AbstractEventLoop, str, str], NamespaceWatch] = {}
        self._away: set[tuple[asyncio.AbstractEventLoop, str, str]] = set()
        """Where the server did not answer when that was last watched."""
        self._nodes: dict[asyncio.AbstractEventLoop, NodeWatch] = {}

    @classmethod
    def from_settings(
        cls,
        settings: Settings,
        *,
        connect: Connect,
        connection: str = "",
        callback_token: Callable[[str], str] | None = None,
        reports: Reports | None = None,
    ) -> KubernetesRuntime:
        """Return the runtime that the `[training]` options describe."""
        return cls(
            connect=connect,
            connection=connection,
            archive=LogArchive(
                settings.log_archive or str(settings.local_dir / "logs"),
                tail_bytes=settings.log_archive_tail_bytes,
            ),
            options=pods.PodOptions(
                agent_image=settings.agent_image,
                agent_user=settings.agent_user,
                callback_url=settings.callback_url,
            ),
            max_run_seconds=settings.max_run_seconds or None,
            callback_token=callback_token,
            reports=reports,
            collected=settings.local_dir / "collected",
        )

    # the port ----------------------------------------------------------------------------------
    @_speaking
    async def check(
        self, run: RunRef, job: ResolvedJob, firsts: Sequence[InstanceSpec]
    ) -> Sequence[Problem]:
        """Return what the cluster lacks for the job (rights, kinds, queues), and what it refuses."""
        problem = _controller_problem(run)
        if problem is not None:
            return [problem]
        facts = facts_of(run, job)
        documents = self._pods_of(run, facts, firsts)
        problems = await check_cluster(self.api, job, facts, documents, callback=self._has_callback)
        # only now: who may not read the record is told so with everything else that is missing
        if not problems and run.submitted_at is None and await self._records.read(run) is not None:
            return [_earlier_run(run)]
        return problems

    @_speaking
    async def warnings(
        self, run: RunRef, job: ResolvedJob, firsts: Sequence[InstanceSpec]
    ) -> Sequence[Problem]:
        """Return the pods that no node could take even when empty, and the queue that a job might use."""
        facts = facts_of(run, job)
        documents = self._pods_of(run, facts, firsts)
        unfit = await unfit_pods(self.api, job, documents)
        return [
            *unfit,
            *never_kept(job, facts, firsts, self._options),
            *await unused_queues(self.api, job),
        ]

    def _pods_of(
        self, run: RunRef, facts: RunFacts, specs: Sequence[InstanceSpec]
    ) -> Mapping[str, Mapping[str, Any]]:
        """Return role -> the pod of an instance, as it would be created."""
        options = dataclasses.replace(self._options, agent_config_map=names.record_name(run))
        return {
            spec.ref.role: pods.pod_of(self._limited(spec), facts, run.uid, options=options)
            for spec in specs
        }

    @_speaking
    async def prepare(
        self,
        run: RunRef,
        job: ResolvedJob,
        *,
        attempt: AttemptId = FIRST_ATTEMPT,  # noqa: ARG002 - a new pod has all ports of its own
    ) -> Addresses:
        """Make the run's record, services and gang; raises LeaseLost and InputError."""
        with self._awaiting_room(run), _at_the_document(run):
            return await self._prepare(run, job)

    async def _prepare(self, run: RunRef, job: ResolvedJob) -> Addresses:
        problem = _controller_problem(run)
        if problem is not None:
            raise InputError(problems=[problem])
        record = await self._records.own(run, facts_of(run, job))
        facts = RunFacts.from_document(record)
        token = ""
        if self._callback_token is not None and self._has_callback:
            token = await asyncio.to_thread(self._callback_token, run.uid)
        await self._objects.make(run, facts, token=token, record_uid=record["metadata"]["uid"])
        return {
            role.name: tuple(
                Address(
                    host=service_host(run.prefix, run.namespace, role.name, index),
                    ports=dict(role.ports),
                )
                for index in range(max(role.replicas, role.max_replicas or 0))
            )
            for role in job.roles
        }

    @_speaking
    async def create(self, instances: Sequence[InstanceSpec]) -> Sequence[Outcome]:
        """Create or adopt the pods of these attempts."""
        if not instances:
            return []
        run = max((each.ref.run for each in instances), key=lambda each: each.generation)
        try:
            record = await self._records.claim(run)
        except LeaseLost as lost:
            return _refused(instances, str(lost))
        if record is None:
            return _refused(instances, f"run {run.uid} was removed, or never prepared")
        facts = RunFacts.from_document(record)
        others = await self._instances.all(run) if facts.numbered else ()
        uid = record["metadata"]["uid"]
        with self._awaiting_room(run), _at_the_document(run):
            await self._objects.repair_services(run, facts, record_uid=uid)
        short = await self._short_of(run, facts, instances)
        with self._awaiting_room(run), _at_the_document(run):
            options = await self._with_agent(run, instances, record_uid=uid)
        outcomes = await gather_all(
            self._create_one(each, facts, uid, options, others, short) for each in instances
        )
        self._note_room(run, outcomes)
        if any(each.result in ("created", "adopted") for each in outcomes):
            self._begun.add((run.uid, instances[0].ref.job_attempt))
        return await self._unless_removed(run, uid, outcomes)

    @_speaking
    async def release(self, instances: Sequence[InstanceRef], answer: ReleaseAnswer) -> None:
        """Give held pods their answer, through an annotation that reaches them as a file."""
        await gather_all(self._instances.release(ref, answer) for ref in instances)

    @_speaking
    async def stop_process(
        self,
        instances: Sequence[InstanceRef],
        *,
        grace_seconds: float,
        dump_stacks: bool = False,
    ) -> None:
        """Order agents to end their commands and stay, through an annotation."""
        how = {"grace_seconds": grace_seconds, "dump_stacks": dump_stacks}
        await self._order(instances, "stop", **how)

    @_speaking
    async def await_peers(
        self, instances: Sequence[InstanceRef], *, seconds: float, number: int
    ) -> None:
        """Tell agents through an annotation that their scripts wait for others."""
        await self._order(instances, "await", seconds=seconds, number=number)

    @_speaking
    async def restart_process(self, instance: InstanceRef, spec: InstanceSpec) -> Outcome:
        """Order the agent that waits to go on as the next attempt: same pod, labels of the attempt.

        Returns when it was ordered; once the agent has begun, the watch tells of the new instance.
        """
        spec, ref, run = self._limited(spec), spec.ref, spec.ref.run
        try:
            record = await self._records.claim(run)
        except LeaseLost as lost:
            return Outcome(ref=ref, result="refused", message=str(lost))
        if record is None:
            return Outcome(ref=ref, result="refused", message=f"run {run.uid} was removed")
        known = await self._by_uid(instance.run)
        pod, turn = known.get(instance.uid, (None, None))
        for each, _ in known.values():
            if identity(names.parse_ref(each)) == identity(ref) and turns.number_of(each):
                adopted = dataclasses.replace(ref, uid=turns.intended_uid(each))
                return Outcome(ref=adopted, result="adopted")
        refused = Outcome(ref=ref, result="refused", message="nothing waits there")
        if pod is None or turn is None or not turn.waits or is_over(pod):
            return refused
        if names.attempt_of(ref) <= names.attempt_of(turns.ref_of(pod, turn)):
            return dataclasses.replace(refused, message="a newer attempt exists")
        options = await self._with_agent(run, [spec], record_uid=record["metadata"]["uid"])
        document = pods.pod_of(
            spec, RunFacts.from_document(record), record["metadata"]["uid"], options=options
        )
        marks = turns.restart_marks(pod, turn, document, ref)
        fits = len(marks["annotations"][names.ORDER]) <= pods.ANSWER_BYTES
        age_seconds = time.time() - (started_at(pod) or time.time())
        if not (fits and pods.can_follow(spec, pod, document, age_seconds=age_seconds)):
            return dataclasses.replace(refused, message="the next attempt needs another pod")
        await self._archive.keep(
            turns.ref_of(pod, turn),
            self._collector.whole(run, pod, follow=False),
            begins=turns.first_log_line(pod),
        )
        if not await self._instances.mark(run, pod, marks):
            return dataclasses.replace(refused, message="its pod has changed meanwhile")
        uid = f"{pod['metadata']['uid']}.{turn.number + 1}"
        return Outcome(ref=dataclasses.replace(ref, uid=uid), result="created")

    @_speaking
    async def dismiss(self, instances: Sequence[InstanceRef]) -> None:
        """Order agents that wait to go; then their pods end as their commands did."""
        await self._order(instances, "leave")

    @_speaking
    async def keep(self, instance: InstanceRef, *, seconds: float) -> None:
        """Order the agent that waits to stay, and note in its pod until when."""
        pod, turn = (await self._by_uid(instance.run)).get(instance.uid, (None, None))
        if pod is None or turn is None or not turn.waits or turns.kept_until(pod) is not None:
            return
        until = {names.KEPT_UNTIL: f"{time.time() + seconds:.0f}"}
        order = turns.order_for(turn, "stay", seconds=seconds)
        await self._instances.mark(instance.run, pod, {"annotations": {**order, **until}})

    @_speaking
    async def end_kept(self, run: RunRef) -> None:
        """End pods that stay, and give back what went with them; raises StillAlive."""
        await self._remove(run, keeps=_keeps_ended)

    @_speaking
    async def shell(self, instance: InstanceRef, command: Sequence[str], streams: Streams) -> int:
        """Run a command in the training container of an instance's pod."""
        pod = await self._instances.find(instance)
        if pod is None or is_over(pod):
            raise InputError.of(
                code="not_found",
                field="RUN",
                message=f"nothing of {instance.role}-{instance.index} lives any more",
            )
        name, namespace = pod["metadata"]["name"], instance.run.namespace
        return await open_shell(self.log_api, namespace, name, container_of(pod), command, streams)

    async def _order(self, instances: Sequence[InstanceRef], do: str, **more: Any) -> None:
        for run in {ref.run for ref in instances}:
            known = await self._by_uid(run)
            meant = [known[ref.uid] for ref in instances if ref.run == run and ref.uid in known]
            await gather_all(
                self._instances.mark(run, pod, {"annotations": turns.order_for(turn, do, **more)})
                for pod, turn in meant
                if turn is not None
            )

    async def _by_uid(self, run: RunRef) -> dict[str, tuple[dict[str, Any], AgentReport | None]]:
        """Return uid of an instance -> its pod, and what its agent said last."""
        found = await self._instances.all(run)
        said = await self._turns_of(run.uid, found)
        told = [(pod, said.get(pod["metadata"]["uid"])) for pod in found]
        return {turns.ref_of(pod, turn).uid: (pod, turn) for pod, turn in told}

    async def _waits(self, run: RunRef, pod: Mapping[str, Any]) -> bool:
        turn = (await self._turns_of(run.uid, [pod])).get(pod["metadata"]["uid"])
        return turn is not None and turn.waits and turn.number == turns.number_of(pod)

    async def _turns_of(
        self,
        run_uid: str,
        found: Iterable[Mapping[str, Any]],
        known: Mapping[str, AgentReport] = MappingProxyType({}),
    ) -> Mapping[str, AgentReport]:
        """Return pod uid -> what its agent said last of the attempt in it. `known`: by then."""
        stays = {
            pod["metadata"]["uid"]: pod
            for pod in found
            if names.IN_PLACE in (pod["metadata"].get("annotations") or {})
        }
        if self._reports is None or not stays:
            return {}
        refs = {uid: names.parse_ref(pod) for uid, pod in stays.items()}
        keys = {uid: (ref.role, ref.index) for uid, ref in refs.items()}
        awaited = {
            keys[uid]
            for uid, pod in stays.items()
            if turns.number_of(pod) > (known[uid].number if uid in known else 0)
        }
        records = await asyncio.to_thread(self._reports, run_uid, awaited)
        return {
            uid: turns.newest_agent_report(records.get(keys[uid], ()), uid, after=known.get(uid))
            for uid in stays
        }

    @_speaking
    async def delete(
        self,
        instances: Sequence[InstanceRef],
        *,
        grace_seconds: float,
        dump_stacks: bool = False,  # noqa: ARG002 - nobody may run a command in a pod
    ) -> None:
        """Ask for the end of pods, each by its uid; their logs are archived."""
        by_run: dict[RunRef, list[InstanceRef]] = {}
        for ref in instances:
            by_run.setdefault(ref.run, []).append(ref)
        for run, refs in by_run.items():
            found = {uid: pod for uid, (pod, _) in (await self._by_uid(run)).items()}
            by_attempt = {identity(names.parse_ref(pod)): pod for pod in found.values()}
            meant = [
                found.get(ref.uid) if ref.uid else by_attempt.get(identity(ref)) for ref in refs
            ]
            await gather_all(
                self._instances.delete(run, pod, grace_seconds=grace_seconds)
                for pod in meant
                if pod is not None
            )

    async def watch(self, run: RunRef) -> AsyncGenerator[Change, None]:
        """Yield a snapshot, then changes; raises RuntimeUnavailable."""
        key = (asyncio.get_running_loop(), run.namespace, run.controller)
        shared = self._watches.get(key)
        if shared is None:
            shared = self._watches[key] = NamespaceWatch(
                self.api,
                run.namespace,
                run.controller,
                silent_seconds=self._patience_seconds,
                turns=None if self._reports is None else self._turns_of,
                was_away=key in self._away,
                nodes=self._nodes.setdefault(key[0], NodeWatch(self.api)),
            )
        try:
            async with contextlib.aclosing(shared.follow(run)) as changes:
                async for change in changes:
                    self._away.discard(key)
                    yield change
        except RuntimeUnavailable:
            self._away.add(key)
            raise
        finally:
            if shared.idle:
                self._watches.pop(key, None)
                if all(loop is not key[0] for loop, _, _ in self._watches):
                    self._nodes.pop(key[0], None)

    @_speaking
    async def read_log(
        self, instance: InstanceRef, cursor: Cursor, *, limit: int, attempt: int | None = None
    ) -> LogChunk:
        """Return bytes of an attempt's log: of the archive once it has ended, else live."""
        if attempt is not None:
            instance = instance.at_attempt(attempt)
        pod, archived = self._seen(instance), None
        if pod is None or is_over(pod):
            archived = await self._archive.read(instance, cursor, limit=limit)
            if archived is not None and not (archived.missing and self._may_have_more(instance)):
                return archived
        try:
            pod = pod or await self._instances.find(instance)
            if pod is not None and not is_over(pod):
                return await self._read_live(instance.run, pod, cursor, limit=limit)
            await self._archive_ended(instance, pod)
        except (ApiError, RuntimeUnavailable):
            if archived is None:
                raise
        archived = await self._archive.read(instance, cursor, limit=limit)
        missing = "its pod is gone, and its log is not in the archive" if pod is None else ""
        return archived or LogChunk(data=b"", next=cursor, end=True, missing=missing)

    def _may_have_more(self, instance: InstanceRef) -> bool:
        """Return whether to look again for the rest of a log: what kept it from the archive may have passed."""
        return self._tried.is_due((instance.run.uid, identity(instance)), now=time.monotonic())

    async def _archive_ended(self, instance: InstanceRef, pod: Mapping[str, Any] | None) -> None:
        """Archive the log of an attempt that is over, of its pod or of what was collected."""
        if pod is not None:
            await self._archive_log(instance.run, pod)
        else:
            await self._archive_collected(instance)

    async def _archive_log(self, run: RunRef, pod: Mapping[str, Any]) -> None:
        """Archive the log of a pod that has ended."""
        ref = dataclasses.replace(names.parse_ref(pod), run=run)
        whole = self._collector.whole(run, pod)
        await self._archive.keep(ref, whole, begins=turns.first_log_line(pod))

    async def _archive_collected(self, instance: InstanceRef) -> None:
        """Archive what was collected of an attempt whose pod somebody else has taken away."""
        found = await asyncio.to_thread(self._collector.collected_of, instance)
        if found is not None:
            await self._archive.keep(instance, found[1], begins=found[0])

    @_speaking
    async def tail_log(self, instance: InstanceRef, *, limit: int) -> bytes:
        """Return the last lines of an attempt's log: of its pod by one request, else of the archive."""
        pod = self._seen(instance) or await self._instances.find(instance)
        if pod is None:
            if not await self._archive.has(instance) and self._may_have_more(instance):
                await self._archive_collected(instance)
            return await self._archive.tail(instance, limit=limit)
        try:
            lines = await self.log_api.log(
                instance.run.namespace,
                pod["metadata"]["name"],
                container=container_of(pod),
                tail_lines=_TAIL_LINES,
                limit_bytes=_TAIL_BYTES,
            )
        except (Invalid, NotFound):  # it has not started, or has just gone
            return b""
        begins = turns.first_log_line(pod)
        # what an earlier attempt wrote in this pod is not of this one
        return (lines.rpartition(begins + b"\n")[2] if begins else lines)[-limit:]

    async def _read_live(
        self, run: RunRef, pod: Mapping[str, Any], cursor: Cursor, *, limit: int
    ) -> LogChunk:
        waits = await self._waits(run, pod)  # asked first: it then prints no more
        metadata = pod["metadata"]
        collected = await asyncio.to_thread(
            lambda: (
                self._collector.find(run, metadata["uid"])
                or self._viewer.find(run, metadata["uid"])
            )
        )
        if collected is None:
            read = reading(self.log_api, run.namespace, metadata["name"], container_of(pod))
        else:
            read = collected.read
            if not cursor.token:
                dropped = await asyncio.to_thread(collected.dropped)
                cursor = Cursor(offset=max(cursor.offset, dropped))
        chunk = await read_live(read, cursor, limit=limit, begins=turns.first_log_line(pod))
        return dataclasses.replace(chunk, end=waits and len(chunk.data) < limit)

    def _seen(self, instance: InstanceRef) -> Mapping[str, Any] | None:
        """Return the pod of an attempt where a watch of ours shows it."""
        run = instance.run
        shared = self._watches.get((asyncio.get_running_loop(), run.namespace, run.controller))
        if shared is None:
            return None
        for numbered in (False, True):
            pod = shared.pod(names.pod_name(instance, numbered=numbered))
            if pod is not None and identity(names.parse_ref(pod)) == identity(instance):
                return pod
        return None

    async def collect_logs(
        self, run: RunRef, *, only: Collection[InstanceKey] | None = None
    ) -> None:
        """Follow the logs of the run's pods, one stream each; nothing is lost as nodes rotate them.

        `only`: for somebody who looks at them beside the one who drives the run. Where that one is
        on this machine, its copies are read.
        """
        key = (asyncio.get_running_loop(), run.namespace, run.controller)

        def seen() -> Iterable[Mapping[str, Any]]:
            shared = self._watches.get(key)
            if only is not None and self._collector.is_collected(run):
                return []
            return [
                pod
                for pod in (shared.pods(run) if shared is not None else ())
                if only is None or identity(names.parse_ref(pod))[:2] in only
            ]

        watching = asyncio.ensure_future(self._keep_watching(run))
        collector = self._collector if only is None else self._viewer
        try:
            await collector.collect(run, seen)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _keep_watching(self, run: RunRef) -> None:
        while True:
            with contextlib.suppress(RuntimeUnavailable):
                async with contextlib.aclosing(self.watch(run)) as changes:
                    async for _ in changes:
                        pass
            await asyncio.sleep(1.0)

    @_speaking
    async def remove(self, run: RunRef) -> None:
        """End every pod, then everything else of the run; raises StillAlive.

        Ended pods stay where `cleanPodPolicy` says so, for `ttlSecondsAfterFinished` where the
        job has that, and with them the run's record. So does one that was told to stay.
        """
        await self._remove(run, keeps=_keeps)

    async def _remove(
        self, run: RunRef, *, keeps: Callable[[RunFacts, Mapping[str, Any]], bool]
    ) -> None:
        facts = await self._records.bury(run)
        kept = await self._instances.end_all(
            run, keeps=functools.partial(keeps, facts) if facts else _keeps_none
        )
        await self._objects.remove(run, with_record=not kept)
        self._begun = {each for each in self._begun if each[0] != run.uid}
        for ref, begins, log in await asyncio.to_thread(self._collector.begun, run):
            # its archiving may have been cut short
            await self._archive.keep(ref, log, begins=begins)
        if not self._archive.is_failing:  # else what was collected is all there is
            await asyncio.to_thread(self._collector.forget, run)

    @_speaking
    async def purge(self, run: RunRef) -> None:
        """As `remove`, but nothing is kept: for runs that no store knows; raises StillAlive."""
        await self._records.bury(run)
        await self._instances.end_all(run, keeps=_keeps_none)
        await self._objects.remove(run, with_record=True)
        await asyncio.to_thread(self._collector.forget, run)

    async def find_orphans(self, sought: SweepQuery) -> Sequence[OrphanObjects]:
        """See `sweep.find_orphans`; raises RuntimeUnavailable.

        Raises InputError where we have no rights at all, so that it may be gone as well.
        """
        try:
            return await find_orphans(self.api, sought)
        except Forbidden as error:
            namespace = sought.namespace
            found = await namespace_visibility(self.api, namespace)
            if found == "missing":
                return []  # what was in it has gone with it, our rights too
            if found == "hidden":
                problem = Problem(code="not_allowed", field="", message=str(error))
                raise InputError(problems=[problem]) from error
            raise RuntimeUnavailable(f"namespace {namespace}: {error}") from error
        except ApiError as error:
            raise RuntimeUnavailable(f"namespace {sought.namespace}: {error}") from error

    @_speaking
    async def cluster_view(
        self, job: ResolvedJob | None = None, *, with_free: bool = False
    ) -> ClusterSnapshot:
        """Return the nodes that pods may go to."""
        return await cluster_view(self.api, job, with_free=with_free)

    @property
    def _has_callback(self) -> bool:
        return bool(self._options.callback_url) and self._callback_token is not None

    async def _with_agent(
        self, run: RunRef, instances: Sequence[InstanceSpec], *, record_uid: str
    ) -> pods.PodOptions:
        """Return the options, with the agent's ConfigMap made where an instance needs it."""
        if not any(pods.needs_agent(each, self._options) for each in instances):
            return self._options
        program = portable_agent()
        document = objects.agent_document(run, program, record_uid=record_uid)
        await self._objects.make_config_map(run, document)
        return dataclasses.replace(self._options, agent_config_map=names.agent_name(run, program))

    # creating ----------------------------------------------------------------------------------
    @contextlib.contextmanager
    def _awaiting_room(self, run: RunRef) -> Iterator[None]:
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

    def _note_room(self, run: RunRef, outcomes: Iterable[Outcome]) -> None:
        """The same for instances."""
        quotas = self._quotas_of(run)
        if quotas is not None:
            kept_out = {each.ref.key for each in outcomes if each.reason == QUOTA_EXCEEDED}
            quotas.end(run.uid, {each.ref.key for each in outcomes} - kept_out)
            quotas.begin(run.uid, kept_out)

    def _quotas_of(self, run: RunRef) -> QuotaWatch | None:
        shared = self._watches.get((asyncio.get_running_loop(), run.namespace, run.controller))
        return None if shared is None or not shared.is_followed(run) else shared.quotas

    async def _short_of(
        self, run: RunRef, facts: RunFacts, instances: Sequence[InstanceSpec]
    ) -> ApiError | None:
        """Return why not all pods of a job attempt would be taken now, before its first one is made."""
        job_attempt = instances[0].ref.job_attempt
        if not facts.needs or (run.uid, job_attempt) in self._begun:
            return None
        short = await shortage(self.api, run.namespace, facts.needs)
        if short is None:
            return None
        own = [pod for pod in await self._instances.all(run) if not is_over(pod)]
        begun = any(names.parse_ref(pod).job_attempt == job_attempt for pod in own)
        return None if begun else short

    async def _create_one(
        self,
        spec: InstanceSpec,
        facts: RunFacts,
        record_uid: str,
        options: pods.PodOptions,
        others: Sequence[Mapping[str, Any]],
        short: ApiError | None,
    ) -> Outcome:
        """Create one pod; `short`: why the server would not take all that are needed together."""
        ref = spec.ref
        why = stale_reason(facts, ref.run.generation)
        if why:
            return Outcome(ref=ref, result="refused", message=f"run {ref.run.uid}: {why}")
        spec = self._limited(spec)
        document: Mapping[str, Any] = {}
        try:
            if short is not None:
                raise short
            for pod in others:
                if identity(names.parse_ref(pod))[:2] != (ref.role, ref.index):
                    continue
                verdict = judge(pod, ref)
                if verdict.step in ("wait", "refuse") and not is_over(pod):
                    return Outcome(
                        ref=ref,
                        result="refused",
                        reason=WAITING_FOR_OLD_INSTANCE,
                        message=verdict.message,
                    )
                if verdict.step == "replace" and not is_over(pod):  # it stays for a look inside
                    await self._instances.delete(ref.run, pod, grace_seconds=0)
            data = pods.file_data(spec)
            document = pods.pod_of(spec, facts, record_uid, options=options)
            if data:
                files = objects.files_document(
                    ref.run, document["metadata"]["name"], data, record_uid=record_uid
                )
                await self._objects.make_config_map(ref.run, files)
            return await self._instances.create(ref, document)
        except ApiError as error:
            at = field_of(error, document, spec.resolved) if error.fields and document else ""
            return outcome_of(ref, error, at=at)
        except InputError as error:
            return Outcome(ref=ref, result="impossible", message=str(error))

    def _limited(self, spec: InstanceSpec) -> InstanceSpec:
        """Return the spec with the life of its pod, no longer than any may have."""
        life = pods.life_seconds(
            spec.deadline_seconds, most=self._max_run_seconds, keep_seconds=spec.keep_seconds
        )
        return dataclasses.replace(spec, deadline_seconds=life)

    async def _unless_removed(
        self, run: RunRef, record_uid: str, outcomes: Sequence[Outcome]
    ) -> Sequence[Outcome]:
        """Take back what was created while somebody removed the run; refuse where it has a new holder."""
        record = await self._records.read(run)
        gone = record is None or record["metadata"]["uid"] != record_uid
        facts = None if record is None or gone else RunFacts.from_document(record)
        why = "was removed" if facts is None else stale_reason(facts, run.generation)
        if not why:
            return outcomes
        if facts is None or facts.removed >= run.generation:
            made = [each.ref for each in outcomes if each.result == "created"]
            await self.delete(made, grace_seconds=0)
        # else the new holder, who may have adopted it by now, decides about it
        return [
            Outcome(ref=each.ref, result="refused", message=f"run {run.uid}: {why}")
            for each in outcomes
        ]


def _keeps(facts: RunFacts, pod: Mapping[str, Any]) -> bool:
    """Return whether a pod stays to be looked at: one that has ended, or was told to stay."""
    return turns.stays_now(pod, now=time.time()) or _keeps_ended(facts, pod)


def _keeps_ended(facts: RunFacts, pod: Mapping[str, Any]) -> bool:
    ended = is_over(pod) or is_ending(pod)
    if not ended or pod["metadata"].get("deletionTimestamp"):
        return False
    if facts.clean_pod_policy == "All":
        return False
    ttl, ended_at = facts.ttl_seconds_after_finished, observe(pod, now=time.time()).finished_at
    return ttl is None or ended_at is None or time.time() < ended_at + ttl


def _keeps_none(_: Mapping[str, Any]) -> bool:
    return False


def _controller_problem(run: RunRef) -> Problem | None:
    message = names.controller_problem(run.controller)
    if not message:
        return None
    return Problem(code="bad_name", field="[training] deployment_id", message=message)


def _earlier_run(run: RunRef) -> Problem:
    name = names.record_name(run)
    return Problem(
        code="conflict",
        field="run_id",
        message="an earlier run of this id, which the store does not know, has left"
        f" ConfigMap {name} in namespace {run.namespace}, and pods that belong to it",
        hint=f"take another run id, or: kubectl delete configmap {name} -n {run.namespace}",
    )


def _refused(instances: Sequence[InstanceSpec], message: str) -> list[Outcome]:
    return [Outcome(ref=each.ref, result="refused", message=message) for each in instances]
