"""What Slurm brings as a runtime, and what can be said of a job before anything is queued."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, cast

from airflow_training.documents.resolved import ResolvedJob
from airflow_training.errors import Problem
from airflow_training.frameworks.pods import training_container
from airflow_training.runtimes.adapter import (
    Adapter,
    Leftover,
    RuntimeContext,
    SweepQuery,
    missing_key_problems,
)
from airflow_training.runtimes.port import Address, Addresses, Runtime
from airflow_training.runtimes.slurm.allocation_program import host_name
from airflow_training.runtimes.slurm.capabilities import CAPABILITIES, GANG, LOGIN_CAPABILITIES
from airflow_training.runtimes.slurm.options import SlurmOptions
from airflow_training.runtimes.slurm.requests import gang_components
from airflow_training.settings import Settings

if TYPE_CHECKING:
    from airflow_training.runtimes.slurm.login.channel import LoginChannel
    from airflow_training.runtimes.slurm.login.runtime import LoginRuntime
    from airflow_training.runtimes.slurm.login.ssh_login import SshLogin
    from airflow_training.runtimes.slurm.runtime import SlurmRuntime

__all__ = ["SLURM"]

_WITHOUT_EFFECT = ("envFrom", "image", "volumeMounts", "livenessProbe", "startupProbe", "lifecycle")


class _Slurm(Adapter):
    name = "slurm"
    module = "airflow_training.runtimes.slurm.runtime"
    capabilities = CAPABILITIES
    options = SlurmOptions
    spares_hint = "spec.runtime.options.spareNodes gives an allocation spare nodes"
    connection_type = "ssh"

    def at(self, connection: str) -> Adapter:
        return _LOGIN if connection else self

    def open(self, settings: Settings, given: RuntimeContext) -> Runtime:
        if given.connection:
            from airflow_training.runtimes.slurm.login.runtime import LoginRuntime

            return LoginRuntime(_channel(given.connection, given.connect, settings.local_env))
        from airflow_training.runtimes.slurm.runtime import SlurmRuntime

        return SlurmRuntime.from_settings(settings)

    def refused_in_airflow(self, settings: Settings) -> Problem | None:
        if settings.allow_local:
            return None
        return Problem(
            code="not_allowed",
            field="spec.runtime.name",
            value=self.name,
            message="jobs on Slurm run as the user of the triggerer: that is off inside Airflow",
            hint="an administrator may set [training] allow_local = True",
        )

    def predictions_dir(self, settings: Settings, run_uid: str) -> str:
        from airflow_training.runtimes.folders.paths import RunFolder

        return str(RunFolder(settings.local_dir.absolute() / "slurm", run_uid).predictions)

    def files_of_run(self, settings: Settings, run_uid: str) -> str:
        from airflow_training.runtimes.folders.paths import RunFolder

        return str(RunFolder(settings.local_dir.absolute() / "slurm", run_uid).files)

    def problems(self, job: ResolvedJob) -> Sequence[Problem]:
        found = []
        is_gang = job.scheduling.gang == GANG
        if is_gang and job.scheduling.min_available not in (None, job.instances):
            found.append(
                Problem(
                    code="not_supported",
                    field="spec.schedulingPolicy.minAvailable",
                    value=job.scheduling.min_available,
                    message="an allocation has all instances of the job",
                    hint="leave it out",
                )
            )
        spare = job.runtime_options.get("spareNodes")
        kinds = {component for component, count in gang_components(job).values() if count}
        if spare and len(kinds) != 1:
            message = "roles that ask for different resources are components of one job, which have no spare nodes"
            found.append(
                Problem(
                    code="not_supported",
                    field="spec.runtime.options.spareNodes",
                    value=spare,
                    message=message
                    if is_gang
                    else "only the one allocation of a gang has spare nodes",
                    hint="give all roles the same resources"
                    if is_gang
                    else f"write schedulingPolicy.gang: {GANG}",
                )
            )
        return [*found, *_container_problems(job)]

    def missing(self, job: ResolvedJob) -> Sequence[Problem]:
        found = missing_key_problems(job, "command", "a node of Slurm starts a command")
        program = job.runtime_options.get("containerRuntime")
        if program:
            found = [*found, *missing_key_problems(job, "image", f"{program} runs one")]
        return found

    def warnings(self, job: ResolvedJob) -> Sequence[Problem]:
        from airflow_training.runtimes.folders.deletion import deleted_with_run

        found = [*super().warnings(job), *deleted_with_run(job)]
        written = sorted(
            {
                key
                for role in job.roles
                for key in training_container(role.template, None, name=role.container)
                if key in _WITHOUT_EFFECT
            }
        )
        found += [
            Problem(
                code="not_supported",
                field="spec.replicaSpecs",
                value=key,
                message=f"{key} has no effect on Slurm: instances are processes of its nodes",
            )
            for key in written
            if key != "image"  # a job for several runtimes has one
        ]
        for role in job.roles:
            for key, given, why in (
                ("networkPolicy", role.network_policy, "nodes have one network for all"),
                ("spot", role.spot, "runtime.options says where allocations are"),
            ):
                if given is not None:
                    found.append(
                        Problem(
                            code="not_supported",
                            field=f"spec.roles.{role.name}.{key}",
                            message=f"has no effect on Slurm: {why}",
                        )
                    )
        return found

    def gang_advice(self, job: ResolvedJob) -> str:
        if job.scheduling.gang == "none" and job.instances > 1:
            return f"each instance waits in the queue by itself; schedulingPolicy.gang: {GANG} asks for one allocation"
        return ""

    def expected_addresses(self, job: ResolvedJob, prefix: str) -> Addresses:
        known: dict[str, Sequence[Address]] = {}
        before = 0
        for role in job.roles:
            known[role.name] = [
                Address(
                    host=host_name(role.name, index, prefix),
                    ports={name: port + before + index for name, port in role.ports.items()},
                )
                for index in range(role.replicas)
            ]
            before += role.replicas
        return known

    def places(
        self,
        runs: Iterable[tuple[str, str]],
        settings: Settings,
    ) -> Iterable[tuple[str, str]]:
        found = {(connection, "") for connection, _ in runs if connection}
        if (settings.local_dir / "slurm").is_dir():  # with forgotten runs too
            found.add(("", ""))
        return found

    async def leftovers(self, runtime: Runtime, sought: SweepQuery) -> Sequence[Leftover]:
        own = cast("SlurmRuntime | LoginRuntime", runtime)
        found = await own.living_runs(sought.controller, older_than=sought.older_than)
        return [
            Leftover(
                run=run,
                why=f"Slurm jobs {jobs}: alive without a run",
                end=partial(own.remove, run),
            )
            for run, jobs in found
            if run.uid not in sought.living
        ]


def _container_problems(job: ResolvedJob) -> list[Problem]:
    """Return what a job cannot do in containers."""
    program = job.runtime_options.get("containerRuntime")
    values = [each for role in job.roles for each in role.env.values()]
    if not program or not any("$(TRAINING_REMOTE_SHELL)" in each for each in values):
        return []
    return [
        Problem(
            code="not_supported",
            field="spec.runtime.options.containerRuntime",
            value=program,
            message=f"a launcher of {job.framework} in a container cannot start ranks on other nodes",
            hint=f"leave it out, and start each rank in its container: mpirun {program} exec IMAGE COMMAND",
        )
    ]


class _SlurmByLogin(_Slurm):
    """The same for jobs whose cluster is logged in to: no file of this machine is theirs, nor its user's rights."""

    capabilities = LOGIN_CAPABILITIES

    def refused_in_airflow(self, settings: Settings) -> Problem | None:  # noqa: ARG002 - of the base class
        return None

    def predictions_dir(self, settings: Settings, run_uid: str) -> str:  # noqa: ARG002 - of the base class
        return ""

    def files_of_run(self, settings: Settings, run_uid: str) -> str:  # noqa: ARG002 - of the base class
        return ""

    def warnings(self, job: ResolvedJob) -> Sequence[Problem]:
        addresses = {
            "spec.output.uri": job.output_uri,
            "spec.checkpoint.uri": "" if job.checkpoint is None else job.checkpoint.uri,
        }
        paths = [
            Problem(
                code="not_supported",
                field=field,
                value=uri,
                message="is a path of the cluster: what lies there is not read by this machine, nor shown",
                hint="an address of a storage that both reach (s3://...) is",
            )
            for field, uri in addresses.items()
            if uri and "://" not in uri
        ]
        return [*super().warnings(job), *paths]


@cache  # one that was dropped would be made again beside a process that lives
def _channel(
    connection: str, connect: Callable[[str], Any] | None, inherit: tuple[str, ...]
) -> LoginChannel:
    """Return the one connection of this process to a login node."""
    from airflow_training.runtimes.slurm.login.channel import LoginChannel
    from airflow_training.runtimes.slurm.login.ssh_login import SshLogin

    async def find() -> SshLogin:
        if connect is None:
            return SshLogin.parse(connection)
        return SshLogin.from_airflow(connection, **await connect(connection))

    if connect is None:
        SshLogin.parse(connection)  # a mistake in it is told at once
    return LoginChannel(connection, find, inherit=inherit)


_LOGIN = _SlurmByLogin()
SLURM = _Slurm()
"""What Slurm can as a runtime: known before anything is queued."""
