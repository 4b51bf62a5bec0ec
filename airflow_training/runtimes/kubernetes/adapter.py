"""What Kubernetes brings: its capabilities, and what can be said of a job without asking a cluster."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

from airflow_training.control.recovery import needs_all
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.errors import InputError, Problem
from airflow_training.frameworks.naming import service_host, service_name
from airflow_training.runtimes.adapter import (
    Adapter,
    Leftover,
    RuntimeContext,
    SweepQuery,
    missing_key_problems,
)
from airflow_training.runtimes.kubernetes.capabilities import (
    CAPABILITIES,
    CODE_DIR_IN_POD,
    OUTPUT_DIR_IN_POD,
)
from airflow_training.runtimes.kubernetes.gang_rules import (
    kueue_problems,
    kueue_warnings,
    unknown_kind,
)
from airflow_training.runtimes.kubernetes.lost_with_pods import lost_with_pods
from airflow_training.runtimes.kubernetes.never_kept import never_kept
from airflow_training.runtimes.kubernetes.written_names import name_warnings, refused_names
from airflow_training.runtimes.port import Address, Addresses, Runtime
from airflow_training.settings import Settings

if TYPE_CHECKING:
    from airflow_training.runtimes.kubernetes.runtime import KubernetesRuntime

__all__ = ["KUBERNETES"]


class _Kubernetes(Adapter):
    name = "kubernetes"
    module = "airflow_training.runtimes.kubernetes.runtime"
    capabilities = CAPABILITIES
    output_dir = OUTPUT_DIR_IN_POD
    code_dir = CODE_DIR_IN_POD
    files_dir = "/etc/training"
    connection_type = "kubernetes"
    shows_objects = True

    def open(self, settings: Settings, given: RuntimeContext) -> Runtime:
        from airflow_training.runtimes.kubernetes.connection import connect_from_here
        from airflow_training.runtimes.kubernetes.runtime import KubernetesRuntime

        if find_spec("kubernetes_asyncio") is None:
            raise InputError.of(
                code="not_supported",
                field="spec.runtime.name",
                value=self.name,
                message="the client of Kubernetes is not installed here",
                hint="pip install 'airflow-training[kubernetes]'",
            )
        return KubernetesRuntime.from_settings(
            settings,
            connect=given.connect or connect_from_here,
            connection=given.connection or settings.kubernetes_connection,
            callback_token=given.callback_token,
            reports=given.reports,
        )

    def problems(self, job: ResolvedJob) -> Sequence[Problem]:
        return [*unknown_kind(job), *kueue_problems(job)]

    def refused_names(self, job: ResolvedJob) -> Collection[Problem]:
        return refused_names(job)

    def missing(self, job: ResolvedJob) -> Sequence[Problem]:
        return missing_key_problems(job, "image", "a pod needs an image")

    def warnings(self, job: ResolvedJob) -> Sequence[Problem]:
        gang, queue = job.scheduling.gang, job.scheduling.queue
        found = [*lost_with_pods(job), *name_warnings(job), *kueue_warnings(job)]
        if not queue or gang not in ("none", "coscheduling"):
            return found
        useless = Problem(
            code="not_supported",
            field="spec.schedulingPolicy.queue",
            value=queue,
            message=f"has no effect: gang {gang} knows no queues",
        )
        return [*found, useless]

    def deployment_warnings(self, job: ResolvedJob, settings: Settings) -> Sequence[Problem]:
        return never_kept(job, callback_url=settings.callback_url)

    def gang_advice(self, job: ResolvedJob) -> str:
        if job.scheduling.gang != "none" or not needs_all(job):
            return ""
        return (
            "no instance is of use without the others, and a part of them may hold places while the rest"
            " waits: where the namespace has a queue of Kueue, gang: kueue lets all of them in or none"
        )

    def expected_addresses(self, job: ResolvedJob, prefix: str) -> Addresses:
        return {
            role.name: [
                Address(
                    host=service_host(prefix, job.namespace, role.name, i), ports=dict(role.ports)
                )
                for i in range(role.replicas)
            ]
            for role in job.roles
        }

    def services(self, job: ResolvedJob, prefix: str) -> Sequence[Mapping[str, Any]]:
        return [
            {"name": service_name(prefix, role.name), "headless": True}
            for role in job.roles
            if role.replicas
        ]

    def places(
        self, runs: Iterable[tuple[str, str]], settings: Settings
    ) -> Iterable[tuple[str, str]]:
        """Return the namespaces of its runs, and of those that jobs may name where they run here."""
        found = set(runs)
        if found or settings.default_runtime == self.name:
            named = (each for each in settings.allowed_namespaces if not set(each) & set("*?["))
            found |= {("", each) for each in named}
        return found

    async def leftovers(self, runtime: Runtime, sought: SweepQuery) -> Sequence[Leftover]:
        own = cast("KubernetesRuntime", runtime)
        found = []
        for orphan in await own.find_orphans(sought):
            where = f"{', '.join(orphan.instances)} on {', '.join(orphan.hosts)}"
            known = orphan.run.uid in sought.known
            why = "left over from a run that has ended" if known else "without a run"
            end = None if known else partial(own.purge, orphan.run)
            found.append(Leftover(run=orphan.run, why=f"{where}: {why}", end=end))
        return found


KUBERNETES = _Kubernetes()
