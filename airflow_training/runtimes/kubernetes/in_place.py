"""Attempts that follow one another inside one pod: what is ordered of the agents that wait there."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_training.documents.resolved import RunRef
from airflow_training.errors import LeaseLost
from airflow_training.runtimes.kubernetes import names, pod_files, pods
from airflow_training.runtimes.kubernetes import pod_attempts as turns
from airflow_training.runtimes.kubernetes.agent_reports import AgentReports
from airflow_training.runtimes.kubernetes.creating import PodCreation
from airflow_training.runtimes.kubernetes.facts import RunFacts
from airflow_training.runtimes.kubernetes.instances import Instances, gather_all, identity
from airflow_training.runtimes.kubernetes.log_reading import LogReading
from airflow_training.runtimes.kubernetes.pod_attempts import AgentReport
from airflow_training.runtimes.kubernetes.pod_view import PodView
from airflow_training.runtimes.kubernetes.record import Records
from airflow_training.runtimes.port import InstanceRef, InstanceSpec, Outcome

__all__ = ["InPlaceAttempts"]


class InPlaceAttempts:
    """The pods of one cluster in which an agent stays when its command has ended."""

    def __init__(
        self,
        instances: Instances,
        *,
        reports: AgentReports,
        creation: PodCreation,
        records: Records,
        logs: LogReading,
    ) -> None:
        self._instances = instances
        self._reports = reports
        self._creation = creation
        self._records = records
        self._logs = logs

    async def by_uid(self, run: RunRef) -> dict[str, tuple[PodView, AgentReport | None]]:
        """Return uid of an instance -> its pod, and what its agent said last."""
        found = await self._instances.all(run)
        said = await self._reports.of(run.uid, found)
        told = [(pod, said.get(pod.uid)) for pod in found]
        return {turns.ref_of(pod, turn).uid: (pod, turn) for pod, turn in told}

    async def order(self, instances: Sequence[InstanceRef], do: str, **more: Any) -> None:
        """Order something of the agents of these instances, through an annotation."""
        for run in {ref.run for ref in instances}:
            known = await self.by_uid(run)
            meant = [known[ref.uid] for ref in instances if ref.run == run and ref.uid in known]
            await gather_all(
                self._instances.mark(run, pod, {"annotations": turns.order_for(turn, do, **more)})
                for pod, turn in meant
                if turn is not None
            )

    async def finish(self, instances: Sequence[InstanceRef], *, grace_seconds: float) -> None:
        """Order agents to finish; those of pods that do not stay have said nothing, and are in their first turn."""
        for run in {ref.run for ref in instances}:
            known = await self.by_uid(run)
            meant = [known[ref.uid] for ref in instances if ref.run == run and ref.uid in known]
            await gather_all(
                self._instances.mark(run, pod, {"annotations": order})
                for pod, turn in meant
                for order in [
                    turns.order_for(
                        turn or turns.AgentReport(number=0), "finish", grace_seconds=grace_seconds
                    )
                ]
                if any(pod.annotations.get(name) != text for name, text in order.items())
            )

    async def replace_files(self, given: Sequence[tuple[InstanceRef, Mapping[str, str]]]) -> None:
        """Give agents other content of files, through an annotation; raises LeaseLost."""
        for run in {ref.run for ref, _ in given}:
            await self._records.claim(run)
            known = await self.by_uid(run)
            meant = [
                (known[ref.uid][0], pod_files.files_annotation(files))
                for ref, files in given
                if ref.run == run and ref.uid in known
            ]
            await gather_all(
                self._instances.mark(run, pod, {"annotations": files})
                for pod, files in meant
                if files
            )

    async def can_replace_files(self, instances: Sequence[InstanceRef]) -> bool:
        """Return whether all of these pods that are there were made with files that their agents write."""
        for run in {ref.run for ref in instances}:
            known = await self.by_uid(run)
            meant = [known[ref.uid][0] for ref in instances if ref.run == run and ref.uid in known]
            if not all(pod.replaces_files for pod in meant):
                return False
        return True

    async def keep(self, instance: InstanceRef, *, seconds: float) -> None:
        """Order the agent that waits to stay, and note in its pod until when."""
        pod, turn = (await self.by_uid(instance.run)).get(instance.uid, (None, None))
        if pod is None or turn is None or not turn.waits or turns.kept_until(pod) is not None:
            return
        until = {names.KEPT_UNTIL: f"{time.time() + seconds:.0f}"}
        order = turns.order_for(turn, "stay", seconds=seconds)
        await self._instances.mark(instance.run, pod, {"annotations": {**order, **until}})

    async def restart(self, instance: InstanceRef, spec: InstanceSpec) -> Outcome:
        """Order the agent that waits to go on as the next attempt: same pod, labels of the attempt.

        Returns when it was ordered; once the agent has begun, the watch tells of the new instance.
        """
        ref, run = spec.ref, spec.ref.run
        try:
            record = await self._records.claim(run)
        except LeaseLost as lost:
            return Outcome(ref=ref, result="refused", message=str(lost))
        if record is None:
            return Outcome(ref=ref, result="refused", message=f"run {run.uid} was removed")
        known = await self.by_uid(instance.run)
        pod, turn = known.get(instance.uid, (None, None))
        for each, _ in known.values():
            if identity(each.ref) == identity(ref) and turns.number_of(each):
                adopted = dataclasses.replace(ref, uid=turns.intended_uid(each))
                return Outcome(ref=adopted, result="adopted")
        refused = Outcome(ref=ref, result="refused", message="nothing waits there")
        if pod is None or turn is None or not turn.waits or pod.is_over:
            return refused
        if names.attempt_of(ref) <= names.attempt_of(turns.ref_of(pod, turn)):
            return dataclasses.replace(refused, message="a newer attempt exists")
        facts, uid = RunFacts.from_document(record), record["metadata"]["uid"]
        document = await self._creation.next_document(spec, facts, record_uid=uid)
        marks = turns.restart_marks(pod, turn, document, ref)
        fits = len(marks["annotations"][names.ORDER]) <= pod_files.ANSWER_BYTES
        age_seconds = time.time() - (pod.started_at or time.time())
        follows = pods.can_follow(pod, PodView.of(document), age_seconds=age_seconds)
        if not (fits and follows):
            return dataclasses.replace(refused, message="the next attempt needs another pod")
        await self._logs.archive_so_far(turns.ref_of(pod, turn), pod)
        if not await self._instances.mark(run, pod, marks):
            return dataclasses.replace(refused, message="its pod has changed meanwhile")
        begun = dataclasses.replace(ref, uid=f"{pod.uid}.{turn.number + 1}")
        return Outcome(ref=begun, result="created")
