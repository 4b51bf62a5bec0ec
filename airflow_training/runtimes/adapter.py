"""What one runtime brings to all other rooms: the questions that need no connection to its engine.

A folder of its own makes one; `registry` finds it by name. The defaults are those of a runtime
that starts processes somewhere and has no rules of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import ResolvedJob, RunRef
from airflow_training.errors import Problem
from airflow_training.frameworks.pods import training_container
from airflow_training.frameworks.render import INSTANCE_DIR
from airflow_training.frameworks.runtime_facts import RuntimeFacts
from airflow_training.runtimes.port import Address, Addresses, Capabilities, ClusterSnapshot

if TYPE_CHECKING:
    from pydantic import BaseModel

    from airflow_training.runtimes.clock import Clock
    from airflow_training.runtimes.port import Runtime
    from airflow_training.settings import Settings

__all__ = [
    "Adapter",
    "Leftover",
    "Reports",
    "RuntimeContext",
    "SweepQuery",
    "missing_key_problems",
    "runs_nothing",
]

Reports = Callable[
    [str, Collection[InstanceKey]], Mapping[InstanceKey, Sequence[Mapping[str, Any]]]
]
"""(Run uid, instances whose newest record is wanted, beside all ends) -> records, oldest first. Blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeContext:
    """What an adapter gets to open its engine with, besides the settings."""

    connection: str = ""
    """Of the job; "": the deployment's."""
    connect: Callable[[str], Any] | None = None
    """Connection name -> what Airflow makes of a connection of the adapter's type; None: there is no Airflow."""
    callback_token: Callable[[str], str] | None = None
    """Run uid -> the token of its callbacks; None where the deployment has no callback URL."""
    reports: Reports | None = None
    """What instances left at the callback URL."""
    simulate: Path | None = None
    """Fault script of a simulation."""
    clock: Clock | None = None
    """What it lives by; None: the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepQuery:
    """Which leftovers are looked for: those of one deployment at one place."""

    controller: str
    namespace: str
    living: Collection[str]
    """Uids of runs that are not over."""
    known: Collection[str]
    """Of all runs: what they keep on purpose is no leftover."""
    older_than: float
    """Epoch seconds; what is younger may belong to a run that begins now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """Something of a run that should not be there any more."""

    run: RunRef
    why: str
    end: Callable[[], Awaitable[None]] | None = None
    """None: the run is known, and is cleaned up under its lease."""


class Adapter(ABC):
    """One runtime. `open` gives the port of its engine; all the rest is answered without."""

    name: str
    module: str
    """Of its `Runtime`: imported when it is opened, or before, by who forks or freezes."""
    capabilities = Capabilities()
    """Of all that it opens; what is opened may have more."""
    options: type[BaseModel] | None = None
    """Of what a job may say under `spec.runtime.options`; None: nothing."""
    output_dir = f"{INSTANCE_DIR}/output"
    """TRAINING_OUTPUT_DIR, as an instance sees it."""
    code_dir = f"{INSTANCE_DIR}/code"
    """TRAINING_CODE_DIR, as an instance of a job with `spec.code` sees it."""
    files_dir = ""
    """Folder of files that are written for an instance which has a file system of its own, as it sees it;
    "": they are in its own folder."""

    spares_hint = ""
    """What a job may say in place of `warmSpares` where no places are held (`Capabilities.spares`)."""
    connection_type = ""
    """Of the Airflow connections by which it reaches its engine; "": it takes none."""
    shows_objects = False
    """Its instances come with objects, which `explain` shows where nobody names a runtime."""

    @property
    def facts(self) -> RuntimeFacts:
        """The facts about this runtime for frameworks."""
        return RuntimeFacts(
            name=self.name, runs_here=self.capabilities.runs_here, files_dir=self.files_dir
        )

    def at(self, connection: str) -> Adapter:
        """Return the adapter of jobs that name this connection ("": none), where they are another matter."""
        return self

    @abstractmethod
    def open(self, settings: Settings, given: RuntimeContext) -> Runtime:
        """Return the port; raises InputError where something of it is not installed."""

    def refused_in_airflow(self, settings: Settings) -> Problem | None:
        """Return why Airflow's processes may not open it."""
        return None

    def place(self, settings: Settings) -> str:
        """Return the place (`Capabilities.place`) of this process; "" where it has none, or may not."""
        return ""

    def machine(self) -> ClusterSnapshot | None:
        """The resources that all jobs share where no engine behind divides them; None: one does."""
        return None

    def predictions_dir(self, settings: Settings, run_uid: str) -> str:
        """Return the folder of a run's predictions where the job names no storage; "": there is none."""
        return ""

    def files_of_run(self, settings: Settings, run_uid: str) -> str:
        """Return the folder of relative addresses of a document that lies in none, as one of a form; "": there is none.

        All instances and this process see it.
        """
        return ""

    # what of a job it can, and how ----------------------------------------------------------------
    def problems(self, job: ResolvedJob) -> Sequence[Problem]:
        """Problems of a resolved job that can never run here: rules of gangs."""
        return ()

    def refused_names(self, job: ResolvedJob) -> Collection[Problem]:
        """Return the names in a job's document that the engine does not take."""
        return ()

    def missing(self, job: ResolvedJob) -> Sequence[Problem]:
        """Problems of a job that cannot start here yet."""
        return missing_key_problems(job, "command", "a process needs a command")

    def warnings(self, job: ResolvedJob) -> Sequence[Problem]:
        """Fields of a job without effect here, and losses to expect."""
        found = []
        gang = job.scheduling.gang
        if gang not in self.capabilities.gangs:
            message = f"has no effect: the runtime {self.name} has no such gangs"
            field = "spec.schedulingPolicy.gang"
            found.append(Problem(code="not_supported", field=field, value=gang, message=message))
        if not self.capabilities.spares:
            found += [
                Problem(
                    code="not_supported",
                    field=f"spec.roles[{number}].warmSpares",
                    value=role.warm_spares,
                    message=f"has no effect: the runtime {self.name} holds no places",
                    hint=self.spares_hint,
                )
                for number, role in enumerate(job.roles)
                if role.warm_spares
            ]
        return found

    def deployment_warnings(self, job: ResolvedJob, settings: Settings) -> Sequence[Problem]:
        """Fields of a job that have no effect here as this deployment is set up."""
        return ()

    def gang_advice(self, job: ResolvedJob) -> str:
        """Advice for a job whose instances need each other and are not placed together; "" where that is no matter."""
        return ""

    def expected_addresses(self, job: ResolvedJob, prefix: str) -> Addresses:
        """Return where each instance would be reached, without preparing anything.

        Real ports are taken only when a run is prepared: the numbers here stand for them, one of
        its own for each instance, counted up from what the role declares.
        """
        known: dict[str, Sequence[Address]] = {}
        before = 0
        for role in job.roles:
            known[role.name] = [
                Address(
                    host="127.0.0.1",
                    ports={name: port + before + i for name, port in role.ports.items()},
                )
                for i in range(role.replicas)
            ]
            before += role.replicas
        return known

    def services(self, job: ResolvedJob, prefix: str) -> Sequence[Mapping[str, Any]]:
        """Objects created beside the instances, as `explain` shows them."""
        return ()

    # what is left over ----------------------------------------------------------------------------
    def places(
        self,
        runs: Iterable[tuple[str, str]],
        settings: Settings,
    ) -> Iterable[tuple[str, str]]:
        """Return (connection, namespace) of where something may be left. `runs`: those of its runs."""
        return runs

    async def leftovers(self, runtime: Runtime, sought: SweepQuery) -> Sequence[Leftover]:
        """Leftovers at a place; raises RuntimeUnavailable.

        Raises InputError where we have no rights at all, so that the place may be gone as well.
        """
        return ()


def runs_nothing(job: ResolvedJob) -> bool:
    """Whether an instance has neither a command nor an image: no runtime can run it."""
    containers = [
        training_container(role.template, None, name=role.container)
        for role in job.roles
        if role.replicas
    ]
    return not all(each.get("command") or each.get("image") for each in containers)


def missing_key_problems(job: ResolvedJob, key: str, why: str) -> Sequence[Problem]:
    """Return `missing` for the roles whose training container has no `key`."""
    bare = [
        role.name
        for role in job.roles
        if role.replicas
        and not training_container(role.template, None, name=role.container).get(key)
    ]
    if not bare:
        return ()
    return [
        Problem(
            code="missing",
            field=f"spec.{key}",
            message=f"no {key} for {', '.join(bare)}: {why}",
            hint=f"write spec.{key}, or {key} in the role",
        )
    ]
