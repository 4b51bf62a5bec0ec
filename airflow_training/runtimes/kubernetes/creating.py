"""The pods of a run as they are created: one by one, adopted where they are there, taken back where the run is gone."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_training.agent.package import portable_agent, portable_environment_program
from airflow_training.control.reasons import WAITING_FOR_OLD_INSTANCE
from airflow_training.documents.resolved import RunRef
from airflow_training.errors import InputError
from airflow_training.runtimes.kubernetes import inject, names, objects, pod_files, pods
from airflow_training.runtimes.kubernetes.adoption import judge
from airflow_training.runtimes.kubernetes.api import Api
from airflow_training.runtimes.kubernetes.api_errors import ApiError
from airflow_training.runtimes.kubernetes.environment_volume import makes_environment
from airflow_training.runtimes.kubernetes.facts import RunFacts
from airflow_training.runtimes.kubernetes.gangs import marks_of
from airflow_training.runtimes.kubernetes.instances import Instances, gather_all
from airflow_training.runtimes.kubernetes.pod_view import PodView
from airflow_training.runtimes.kubernetes.quotas import shortage
from airflow_training.runtimes.kubernetes.record import stale_reason
from airflow_training.runtimes.kubernetes.refusals import field_of, outcome_of
from airflow_training.runtimes.kubernetes.run_objects import RunObjects
from airflow_training.runtimes.kubernetes.spares import spare_document
from airflow_training.runtimes.port import InstanceSpec, Outcome

__all__ = ["PodCreation"]


class PodCreation:
    """Makes pods of specs, by what the deployment says about pods."""

    def __init__(
        self,
        api: Api,
        instances: Instances,
        run_objects: RunObjects,
        options: pods.PodOptions,
        *,
        max_run_seconds: float | None,
    ) -> None:
        """`max_run_seconds`: longest life of any pod."""
        self._api = api
        self._instances = instances
        self._objects = run_objects
        self._options = options
        self._max_run_seconds = max_run_seconds
        self._begun: set[tuple[str, int]] = set()
        """(Run uid, job attempt) of which pods were made here: the server judges the others one by one."""

    def documents(
        self, run: RunRef, facts: RunFacts, specs: Sequence[InstanceSpec]
    ) -> Mapping[str, Mapping[str, Any]]:
        """Return role -> the pod of an instance, as it would be created."""
        options = dataclasses.replace(self._options, agent_config_map=names.record_name(run))
        return {
            spec.ref.role: pods.pod_of(self._limited(spec), facts, run.uid, options=options)
            for spec in specs
        }

    def spare_document(
        self, spec: InstanceSpec, facts: RunFacts, record_uid: str
    ) -> dict[str, Any]:
        """Return a pod that holds the place that an instance would take."""
        options = dataclasses.replace(
            self._options, agent_config_map=names.record_name(spec.ref.run)
        )
        pod = pods.pod_of(spec, facts, record_uid, options=options)
        written = spec.resolved.template.get("spec") or {}
        return spare_document(
            pod,
            spec.ref,
            marks_of(facts.gang, spec.ref.role),
            scheduler_name=written.get("schedulerName") or "",
        )

    async def next_document(
        self, spec: InstanceSpec, facts: RunFacts, *, record_uid: str
    ) -> dict[str, Any]:
        """Return the pod that a next attempt would get; what it mounts is made."""
        options = await self.with_agent(spec.ref.run, [spec], record_uid=record_uid)
        return pods.pod_of(self._limited(spec), facts, record_uid, options=options)

    async def with_agent(
        self, run: RunRef, instances: Sequence[InstanceSpec], *, record_uid: str
    ) -> pods.PodOptions:
        """Return the options, with the agent's ConfigMap made where an instance needs it."""
        if not any(pods.needs_agent(each, self._options) for each in instances):
            return self._options
        programs = {inject.PROGRAM_KEY: portable_agent()}
        if any(makes_environment(each) for each in instances):
            programs[inject.ENVIRONMENT_KEY] = portable_environment_program()
        document = objects.agent_document(run, programs, record_uid=record_uid)
        await self._objects.make_config_map(run, document)
        return dataclasses.replace(self._options, agent_config_map=document["metadata"]["name"])

    async def short_of(
        self, run: RunRef, facts: RunFacts, instances: Sequence[InstanceSpec]
    ) -> ApiError | None:
        """Return why not all pods of a job attempt would be taken now, before its first one is made."""
        job_attempt = instances[0].ref.job_attempt
        if not facts.needs or (run.uid, job_attempt) in self._begun:
            return None
        short = await shortage(self._api, run.namespace, facts.needs)
        if short is None:
            return None
        own = [pod for pod in await self._instances.all(run) if not pod.is_over]
        begun = any(pod.ref.job_attempt == job_attempt for pod in own)
        return None if begun else short

    async def create(
        self,
        specs: Sequence[InstanceSpec],
        facts: RunFacts,
        record_uid: str,
        options: pods.PodOptions,
        *,
        others: Sequence[PodView],
        short: ApiError | None,
    ) -> Sequence[Outcome]:
        """Create pods; `others`: those that are there already under names of their own.

        `short`: why the server would not take all that are needed together.
        """
        outcomes: Sequence[Outcome] = await gather_all(
            self._create_one(each, facts, record_uid, options, others, short) for each in specs
        )
        if any(each.result in ("created", "adopted") for each in outcomes):
            self._begun.add((specs[0].ref.run.uid, specs[0].ref.job_attempt))
        return outcomes

    def forget(self, run: RunRef) -> None:
        """A run is removed."""
        self._begun = {each for each in self._begun if each[0] != run.uid}

    async def _create_one(
        self,
        spec: InstanceSpec,
        facts: RunFacts,
        record_uid: str,
        options: pods.PodOptions,
        others: Sequence[PodView],
        short: ApiError | None,
    ) -> Outcome:
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
                if pod.ref.key != ref.key:
                    continue
                verdict = judge(pod, ref)
                if verdict.step in ("wait", "refuse") and not pod.is_over:
                    return Outcome(
                        ref=ref,
                        result="refused",
                        reason=WAITING_FOR_OLD_INSTANCE,
                        message=verdict.message,
                    )
                if verdict.step == "replace" and not pod.is_over:  # it stays for a look inside
                    await self._instances.delete(ref.run, pod, grace_seconds=0)
            data = pod_files.file_data(spec)
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
