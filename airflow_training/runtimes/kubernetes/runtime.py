"""`KubernetesRuntime`: the port, implemented on pods, services and gang objects.

Kubernetes is the engine. Everything of a run is owned by one ConfigMap, the run's record, which
also says which lease generation may create: a stale holder finds itself refused there.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from pathlib import Path

from airflow_training.control.attempts import FIRST_ATTEMPT, AttemptId
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import ResolvedJob, RunRef
from airflow_training.errors import InputError, LeaseLost, Problem, RuntimeUnavailable
from airflow_training.frameworks.naming import service_host
from airflow_training.runtimes.adapter import Reports, SweepQuery
from airflow_training.runtimes.kubernetes import names, pods
from airflow_training.runtimes.kubernetes import pod_attempts as turns
from airflow_training.runtimes.kubernetes.agent_reports import AgentReports
from airflow_training.runtimes.kubernetes.api import Api, Hearing
from airflow_training.runtimes.kubernetes.api_errors import ApiError, Forbidden
from airflow_training.runtimes.kubernetes.capabilities import CAPABILITIES
from airflow_training.runtimes.kubernetes.connection import Connect
from airflow_training.runtimes.kubernetes.creating import PodCreation
from airflow_training.runtimes.kubernetes.facts import RunFacts, facts_of
from airflow_training.runtimes.kubernetes.in_place import InPlaceAttempts
from airflow_training.runtimes.kubernetes.instances import (
    Instances,
    find_pod,
    gather_all,
    identity,
)
from airflow_training.runtimes.kubernetes.log_reading import LogReading
from airflow_training.runtimes.kubernetes.logs import LogArchive
from airflow_training.runtimes.kubernetes.nodes import cluster_view, unfit_pods
from airflow_training.runtimes.kubernetes.observing import observe
from airflow_training.runtimes.kubernetes.pod_view import PodView
from airflow_training.runtimes.kubernetes.quotas import room_problems
from airflow_training.runtimes.kubernetes.record import Records, stale_reason
from airflow_training.runtimes.kubernetes.refusals import as_mistakes_of_document, in_words_of_port
from airflow_training.runtimes.kubernetes.rights import (
    check_cluster,
    namespace_visibility,
    unused_queues,
)
from airflow_training.runtimes.kubernetes.run_objects import RunObjects
from airflow_training.runtimes.kubernetes.shared_watches import SharedWatches
from airflow_training.runtimes.kubernetes.shell import open_shell
from airflow_training.runtimes.kubernetes.spares import Spares
from airflow_training.runtimes.kubernetes.sweep import OrphanObjects, find_orphans
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
    SpareRequest,
    SparesAnswer,
    Streams,
)
from airflow_training.settings import Settings

__all__ = ["KubernetesRuntime"]


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
        hearing = Hearing()
        self.api = Api(connect, connection, budget_seconds=patience_seconds, hearing=hearing)
        self.log_api = Api(connect, connection, budget_seconds=patience_seconds, hearing=hearing)
        """Connections of their own: however many logs are read, nothing else waits for one."""
        self._agents = AgentReports(reports if options.callback_url else None)
        self._watches = SharedWatches(
            self.api,
            silent_seconds=patience_seconds,
            turns=self._agents.of if self._agents.are_read else None,
        )
        self._logs = LogReading(
            self.log_api,
            archive,
            folder=collected,
            watches=self._watches,
            reports=self._agents,
            find=functools.partial(find_pod, self.api),
        )
        self._records = Records(self.api)
        self._objects = RunObjects(self.api)
        self._instances = Instances(self.api, archive, self._logs.whole)
        self._spares = Spares(self.api)
        self._creation = PodCreation(
            self.api, self._instances, self._objects, options, max_run_seconds=max_run_seconds
        )
        self._in_place = InPlaceAttempts(
            self._instances,
            reports=self._agents,
            creation=self._creation,
            records=self._records,
            logs=self._logs,
        )
        self._options = options
        self._callback_token = callback_token
        self.capabilities = dataclasses.replace(
            self.capabilities, restart_in_place=self._agents.are_read
        )

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
    @in_words_of_port
    async def check(
        self, run: RunRef, job: ResolvedJob, firsts: Sequence[InstanceSpec]
    ) -> Sequence[Problem]:
        """Problems of the cluster with the job (rights, kinds, queues), and objects it refuses."""
        problem = _controller_problem(run)
        if problem is not None:
            return [problem]
        facts = facts_of(run, job)
        documents = self._creation.documents(run, facts, firsts)
        problems = await check_cluster(self.api, job, facts, documents, callback=self._has_callback)
        # only now: who may not read the record is told so with everything else that is missing
        if not problems and run.submitted_at is None and await self._records.read(run) is not None:
            return [_earlier_run(run)]
        return problems

    @in_words_of_port
    async def warnings(
        self, run: RunRef, job: ResolvedJob, firsts: Sequence[InstanceSpec]
    ) -> Sequence[Problem]:
        """Return the pods that no node could take even when empty, and the queue that a job might use."""
        facts = facts_of(run, job)
        documents = self._creation.documents(run, facts, firsts)
        unfit = await unfit_pods(self.api, job, documents)
        return [*unfit, *await unused_queues(self.api, job)]

    @in_words_of_port
    async def room_problems(self, job: ResolvedJob) -> Sequence[Problem]:
        """Say which quota of the namespace others have used up."""
        return await room_problems(self.api, job)

    @in_words_of_port
    async def prepare(
        self,
        run: RunRef,
        job: ResolvedJob,
        *,
        attempt: AttemptId = FIRST_ATTEMPT,  # noqa: ARG002 - a new pod has all ports of its own
    ) -> Addresses:
        """Make the run's record, services and gang; raises LeaseLost and InputError."""
        with self._watches.awaiting_room(run), as_mistakes_of_document(run):
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

    @in_words_of_port
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
        with self._watches.awaiting_room(run), as_mistakes_of_document(run):
            await self._objects.repair_services(run, facts, record_uid=uid)
        short = await self._creation.short_of(run, facts, instances)
        with self._watches.awaiting_room(run), as_mistakes_of_document(run):
            options = await self._creation.with_agent(run, instances, record_uid=uid)
        outcomes = await self._creation.create(
            instances, facts, uid, options, others=others, short=short
        )
        self._watches.note_room(run, outcomes)
        return await self._unless_removed(run, uid, outcomes)

    @in_words_of_port
    async def release(self, instances: Sequence[InstanceRef], answer: ReleaseAnswer) -> None:
        """Give held pods their answer, through an annotation that reaches them as a file."""
        await gather_all(self._instances.release(ref, answer) for ref in instances)

    @in_words_of_port
    async def stop_process(
        self,
        instances: Sequence[InstanceRef],
        *,
        grace_seconds: float,
        dump_stacks: bool = False,
    ) -> None:
        """Order agents to end their commands and stay, through an annotation."""
        how = {"grace_seconds": grace_seconds, "dump_stacks": dump_stacks}
        await self._in_place.order(instances, "stop", **how)

    @in_words_of_port
    async def finish_early(self, instances: Sequence[InstanceRef], *, grace_seconds: float) -> None:
        """Order agents to end their commands as ones that have done all, through an annotation."""
        await self._in_place.finish(instances, grace_seconds=grace_seconds)

    @in_words_of_port
    async def await_peers(
        self, instances: Sequence[InstanceRef], *, seconds: float, number: int
    ) -> None:
        """Tell agents through an annotation that their scripts wait for others."""
        await self._in_place.order(instances, "await", seconds=seconds, number=number)

    @in_words_of_port
    async def replace_files(self, given: Sequence[tuple[InstanceRef, Mapping[str, str]]]) -> None:
        """Have agents write other content into files, through an annotation; raises LeaseLost."""
        await self._in_place.replace_files(given)

    @in_words_of_port
    async def can_replace_files(self, instances: Sequence[InstanceRef]) -> bool:
        """Return whether agents of all these pods write their files."""
        return await self._in_place.can_replace_files(instances)

    @in_words_of_port
    async def restart_process(self, instance: InstanceRef, spec: InstanceSpec) -> Outcome:
        """Order the agent that waits to go on as the next attempt: same pod, labels of the attempt.

        Returns when it was ordered; once the agent has begun, the watch tells of the new instance.
        """
        return await self._in_place.restart(instance, spec)

    @in_words_of_port
    async def dismiss(self, instances: Sequence[InstanceRef]) -> None:
        """Order agents that wait to go; then their pods end as their commands did."""
        await self._in_place.order(instances, "leave")

    @in_words_of_port
    async def keep(self, instance: InstanceRef, *, seconds: float) -> None:
        """Order the agent that waits to stay, and note in its pod until when."""
        await self._in_place.keep(instance, seconds=seconds)

    @in_words_of_port
    async def end_kept(self, run: RunRef) -> None:
        """End pods that stay, and give back what went with them; raises StillAlive."""
        await self._remove(run, keeps=_keeps_ended)

    @in_words_of_port
    async def shell(self, instance: InstanceRef, command: Sequence[str], streams: Streams) -> int:
        """Run a command in the training container of an instance's pod."""
        pod = await find_pod(self.api, instance)
        if pod is None or pod.is_over:
            raise InputError.of(
                code="not_found",
                field="RUN",
                message=f"nothing of {instance.key} lives any more",
            )
        place = instance.run.namespace, pod.name, pod.container
        return await open_shell(self.log_api, *place, command, streams)

    @in_words_of_port
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
            found = {uid: pod for uid, (pod, _) in (await self._in_place.by_uid(run)).items()}
            by_attempt = {identity(pod.ref): pod for pod in found.values()}
            meant = [
                found.get(ref.uid) if ref.uid else by_attempt.get(identity(ref)) for ref in refs
            ]
            await gather_all(
                self._instances.delete(run, pod, grace_seconds=grace_seconds)
                for pod in meant
                if pod is not None
            )

    @in_words_of_port
    async def hold_spares(self, run: RunRef, requests: Sequence[SpareRequest]) -> SparesAnswer:
        """Make, and end, pods that do nothing but hold a place with the image of their role."""
        record = await self._records.claim(run)
        if record is None:
            return SparesAnswer()
        facts, uid = RunFacts.from_document(record), record["metadata"]["uid"]
        answers = []
        for each in requests:
            document = None
            if each.spec is not None:
                document = self._creation.spare_document(each.spec, facts, uid)
            answers.append(await self._spares.hold(run, each, document))
        why, removed = await self._reason_to_leave(run, uid)
        if removed:  # somebody did so meanwhile, and saw nothing of those that were being made
            await self._spares.end_all(run)
        if why:
            raise LeaseLost(f"run {run.uid}: {why}")
        return SparesAnswer(
            held=[spare for each in answers for spare in each.held],
            yielded=[spare for each in answers for spare in each.yielded],
            refused={role: words for each in answers for role, words in each.refused.items()},
        )

    def watch(self, run: RunRef) -> AsyncGenerator[Change, None]:
        """Yield a snapshot, then changes; raises RuntimeUnavailable."""
        return self._watches.follow(run)

    @in_words_of_port
    async def read_log(
        self, instance: InstanceRef, cursor: Cursor, *, limit: int, attempt: int | None = None
    ) -> LogChunk:
        """Return bytes of an attempt's log: of the archive once it has ended, else live."""
        if attempt is not None:
            instance = instance.at_attempt(attempt)
        return await self._logs.read(instance, cursor, limit=limit)

    @in_words_of_port
    async def tail_log(self, instance: InstanceRef, *, limit: int) -> bytes:
        """Return the last lines of an attempt's log: of its pod by one request, else of the archive."""
        return await self._logs.tail(instance, limit=limit)

    async def collect_logs(
        self, run: RunRef, *, only: Collection[InstanceKey] | None = None
    ) -> None:
        """Follow the logs of the run's pods, one stream each; nothing is lost as nodes rotate them.

        `only`: for somebody who looks at them beside the one who drives the run. Where that one is
        on this machine, its copies are read.
        """
        await self._logs.collect(run, only=only)

    @in_words_of_port
    async def remove(self, run: RunRef) -> None:
        """End every pod, then everything else of the run; raises StillAlive.

        Ended pods stay where `cleanPodPolicy` says so, for `ttlSecondsAfterFinished` where the
        job has that, and with them the run's record. So does one that was told to stay.
        """
        await self._remove(run, keeps=_keeps)

    async def _remove(self, run: RunRef, *, keeps: Callable[[RunFacts, PodView], bool]) -> None:
        facts = await self._records.bury(run)
        await self._spares.end_all(run)
        kept = await self._instances.end_all(
            run, keeps=functools.partial(keeps, facts) if facts else _keeps_none
        )
        await self._objects.remove(run, with_record=not kept)
        self._creation.forget(run)
        await self._logs.archive_rest(run)

    @in_words_of_port
    async def purge(self, run: RunRef) -> None:
        """As `remove`, but nothing is kept: for runs that no store knows; raises StillAlive."""
        await self._records.bury(run)
        await self._spares.end_all(run)
        await self._instances.end_all(run, keeps=_keeps_none)
        await self._objects.remove(run, with_record=True)
        await self._logs.forget(run)

    async def due_runs(self) -> Sequence[str]:
        """Return nothing: `sweep` looks at all runs of the store, here is no list of them."""
        return ()

    async def look_again(self, uid: str, *, seconds: float) -> None:
        """Do nothing: no run is in `due_runs`."""

    async def quarantine(self, run: RunRef) -> None:
        """Delete the logs of a removed run, of which nothing can be set aside; raises OSError where something of them stays.

        Its pods, and volumes that are theirs, are gone by then.
        """
        await self._logs.forget(run)
        await self._logs.delete(run.uid)

    async def delete_quarantined(self, uid: str) -> None:
        """Do nothing: nothing is set aside."""

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

    @in_words_of_port
    async def cluster_view(
        self, job: ResolvedJob | None = None, *, with_free: bool = False
    ) -> ClusterSnapshot:
        """Return the nodes that pods may go to."""
        return await cluster_view(self.api, job, with_free=with_free)

    @property
    def _has_callback(self) -> bool:
        return bool(self._options.callback_url) and self._callback_token is not None

    async def _unless_removed(
        self, run: RunRef, record_uid: str, outcomes: Sequence[Outcome]
    ) -> Sequence[Outcome]:
        """Take back what was created while somebody removed the run; refuse where it has a new holder."""
        why, removed = await self._reason_to_leave(run, record_uid)
        if not why:
            return outcomes
        if removed:
            made = [each.ref for each in outcomes if each.result == "created"]
            await self.delete(made, grace_seconds=0)
        # else the new holder, who may have adopted it by now, decides about it
        return [
            Outcome(ref=each.ref, result="refused", message=f"run {run.uid}: {why}")
            for each in outcomes
        ]

    async def _reason_to_leave(self, run: RunRef, record_uid: str) -> tuple[str, bool]:
        """Return why a run is not ours any more ("": it is), and whether somebody has removed it."""
        record = await self._records.read(run)
        gone = record is None or record["metadata"]["uid"] != record_uid
        facts = None if record is None or gone else RunFacts.from_document(record)
        why = "was removed" if facts is None else stale_reason(facts, run.generation)
        return why, facts is None or facts.removed >= run.generation


def _keeps(facts: RunFacts, pod: PodView) -> bool:
    """Return whether a pod stays to be looked at: one that has ended, or was told to stay."""
    return turns.stays_now(pod, now=time.time()) or _keeps_ended(facts, pod)


def _keeps_ended(facts: RunFacts, pod: PodView) -> bool:
    if not (pod.is_over or pod.is_ending) or pod.deletion is not None:
        return False
    if facts.clean_pod_policy == "All":
        return False
    ttl, since = facts.ttl_seconds_after_finished, facts.removed_at
    if since is None:  # an older version did not write it down
        since = observe(pod, now=time.time()).finished_at
    return ttl is None or since is None or time.time() < since + ttl


def _keeps_none(_: PodView) -> bool:
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
