"""What this machine brings as a runtime, and what can be said of a job before anything starts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

from airflow_training.documents.resolved import ResolvedJob
from airflow_training.errors import Problem
from airflow_training.runtimes.adapter import (
    Adapter,
    Leftover,
    RuntimeContext,
    SweepQuery,
    missing_key_problems,
)
from airflow_training.runtimes.local.blocked_folders import blocked_folders
from airflow_training.runtimes.local.capabilities import CAPABILITIES
from airflow_training.runtimes.local.ignored import ignored
from airflow_training.runtimes.local.missing_scripts import absent_programs, absent_scripts
from airflow_training.runtimes.port import ClusterSnapshot, Runtime
from airflow_training.settings import Settings

if TYPE_CHECKING:
    from airflow_training.runtimes.local.runtime import LocalRuntime

__all__ = ["LOCAL"]


class _Local(Adapter):
    name = "local"
    module = "airflow_training.runtimes.local.runtime"
    capabilities = CAPABILITIES
    spares_hint = "it may stay: a cluster holds places"

    def open(self, settings: Settings, given: RuntimeContext) -> Runtime:  # noqa: ARG002 - there is nothing to reach
        from airflow_training.runtimes.local.runtime import LocalRuntime

        return LocalRuntime.from_settings(settings)

    def refused_in_airflow(self, settings: Settings) -> Problem | None:
        if settings.allow_local:
            return None
        return Problem(
            code="not_allowed",
            field="spec.runtime.name",
            value=self.name,
            message="the local runtime is off inside Airflow",
            hint="an administrator may set [training] allow_local = True",
        )

    def place(self, settings: Settings) -> str:
        if not settings.allow_local:
            return ""
        return self.open(settings, RuntimeContext()).capabilities.place

    def predictions_dir(self, settings: Settings, run_uid: str) -> str:
        from airflow_training.runtimes.folders.paths import RunFolder

        return str(RunFolder(settings.local_dir.absolute(), run_uid).predictions)

    def files_of_run(self, settings: Settings, run_uid: str) -> str:
        from airflow_training.runtimes.folders.paths import RunFolder

        return str(RunFolder(settings.local_dir.absolute(), run_uid).files)

    def machine(self) -> ClusterSnapshot:
        from airflow_training.runtimes.local.node import this_node

        return ClusterSnapshot(nodes=[this_node()])

    def missing(self, job: ResolvedJob) -> Sequence[Problem]:
        command = missing_key_problems(job, "command", "this machine starts a command")
        return [*command, *blocked_folders(job)]

    def warnings(self, job: ResolvedJob) -> Sequence[Problem]:
        return [*super().warnings(job), *ignored(job), *absent_programs(job), *absent_scripts(job)]

    def places(
        self,
        runs: Iterable[tuple[str, str]],  # noqa: ARG002 - forgotten runs live here too
        settings: Settings,  # noqa: ARG002 - the adapter's signature
    ) -> Iterable[tuple[str, str]]:
        return [("", "")]

    async def leftovers(self, runtime: Runtime, sought: SweepQuery) -> Sequence[Leftover]:
        own = cast("LocalRuntime", runtime)
        return [
            Leftover(
                run=orphan.run,
                why=f"{', '.join(orphan.instances)} on {', '.join(orphan.hosts)}: alive without a run",
                end=partial(own.remove, orphan.run),
            )
            for orphan in await own.find_orphans(
                controller=sought.controller, known_uids=sought.living
            )
        ]


LOCAL = _Local()
