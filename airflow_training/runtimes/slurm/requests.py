"""From roles to what is asked of `sbatch`: components of an allocation, or elements of an array. Pure."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from airflow_training.documents.quantities import parse_quantity
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.frameworks.pods import training_container
from airflow_training.runtimes.slurm.allocation_options import AllocationOptions
from airflow_training.runtimes.slurm.capabilities import GANG

__all__ = [
    "AllocationComponent",
    "AllocationRequest",
    "component_tasks",
    "gang_components",
    "gang_request",
    "job_script",
    "log_pattern",
    "minutes_of_deadline",
    "single_requests",
    "submit_command",
]

_GPU = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationComponent:
    """What each of some instances gets; they are tasks of one part of an allocation."""

    cpus: int = 1
    memory_mb_per_cpu: int = 0
    """0: what the cluster gives by default."""
    gpus: int = 0

    @classmethod
    def of_resources(cls, resources: Mapping[str, Any]) -> AllocationComponent:
        """Return the component for limits (else requests) as Kubernetes spells them."""
        cpus = max(1, math.ceil(parse_quantity(resources.get("cpu", 1))))
        memory = parse_quantity(resources.get("memory", 0))
        return cls(
            cpus=cpus,
            memory_mb_per_cpu=math.ceil(memory / (1 << 20) / cpus),
            gpus=int(parse_quantity(resources.get(_GPU, 0))),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationRequest:
    """One `sbatch`. An element is one allocation: of each component, the instances that it is for."""

    components: tuple[AllocationComponent, ...]
    elements: tuple[tuple[tuple[str, ...], ...], ...]
    array: bool = False
    excluded: tuple[str, ...] = ()
    """Nodes that nothing of it may be on."""
    spare_nodes: int = 0
    """Beside those that the instances need; then a node that is lost does not end the allocation."""
    tasks_per_node: int = 0
    """Where there are spare nodes; 0: as Slurm packs them."""

    def document(self) -> dict[str, Any]:
        """The request as JSON has it."""
        return {
            "components": [asdict(each) for each in self.components],
            "elements": [[list(names) for names in element] for element in self.elements],
            "array": self.array,
            "excluded": list(self.excluded),
            "spare_nodes": self.spare_nodes,
            "tasks_per_node": self.tasks_per_node,
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> AllocationRequest:
        return cls(
            components=tuple(AllocationComponent(**each) for each in document["components"]),
            elements=tuple(
                tuple(tuple(names) for names in element) for element in document["elements"]
            ),
            array=bool(document["array"]),
            excluded=tuple(document.get("excluded", ())),
            spare_nodes=int(document.get("spare_nodes", 0)),
            tasks_per_node=int(document.get("tasks_per_node", 0)),
        )


def _resources(job: ResolvedJob, role: str) -> Mapping[str, Any]:
    """Return limits, else requests, of a role's training container."""
    found = job.role(role)
    container = training_container(found.template, None, name=found.container)
    resources = container.get("resources") or {}
    return {**(resources.get("requests") or {}), **(resources.get("limits") or {})}


def gang_components(job: ResolvedJob) -> dict[str, tuple[AllocationComponent, int]]:
    """The component of each role, and how many instances get one; empty for a job without our gang."""
    if job.scheduling.gang != GANG:
        return {}
    return {
        role.name: (
            AllocationComponent.of_resources(_resources(job, role.name)),
            role.replicas,
        )
        for role in job.roles
    }


def gang_request(
    components: Mapping[str, tuple[AllocationComponent, int]], options: AllocationOptions
) -> AllocationRequest:
    """Return the request for all instances together; `components`: role -> what each gets, how many.

    Roles that ask for the same share a component: fewer are found a place sooner. Only one component has spare nodes.
    """
    members: dict[AllocationComponent, list[str]] = {}
    for role, (component, count) in components.items():
        if count:
            members.setdefault(component, []).extend(f"{role}-{index}" for index in range(count))
    spare = options.spare_nodes if len(members) == 1 else 0
    return AllocationRequest(
        components=tuple(members),
        elements=(tuple(tuple(each) for each in members.values()),),
        spare_nodes=spare,
        tasks_per_node=options.instances_per_node if spare else 0,
    )


def single_requests(
    wanted: Mapping[str, AllocationComponent], *, longest_array: int
) -> list[AllocationRequest]:
    """Return requests for instances that need no company: arrays for each kind of component.

    Slurm takes an array as a whole or not at all, by its `MaxArraySize` and by what a user may submit: many
    instances are several arrays.
    """
    kinds: dict[AllocationComponent, list[str]] = {}
    for name, component in wanted.items():
        kinds.setdefault(component, []).append(name)
    return [
        AllocationRequest(
            components=(component,),
            elements=tuple(((name,),) for name in names[first : first + longest_array]),
            array=longest_array > 1,
        )
        for component, names in kinds.items()
        for first in range(0, len(names), longest_array)
    ]


def submit_command(
    request: AllocationRequest,
    options: AllocationOptions,
    *,
    name: str,
    comment: str,
    output: str,
    deadline_seconds: float | None,
) -> list[str]:
    """Return the words of `sbatch`, which reads the script from its standard input."""
    common = [
        "sbatch", "--parsable", "--no-requeue", "--open-mode=append", "--input=/dev/null",
        f"--job-name={name}", f"--comment={comment}", f"--output={output}",
        "--export=PATH,HOME,LANG,SLURM_CONF",
    ]  # fmt: skip
    if request.array:
        common.append(f"--array=0-{len(request.elements) - 1}")
    if options.signal_seconds:
        common.append(f"--signal=TERM@{options.signal_seconds}")
    minutes = minutes_of_deadline(options, deadline_seconds)
    if minutes is not None:
        common.append(f"--time={minutes}")
    words: list[str] = []
    for number, component in enumerate(request.components):
        count = component_tasks(request, number)
        words += [] if number == 0 else [":"]
        if request.spare_nodes:
            words += [
                f"--nodes={count // request.tasks_per_node}",
                f"--ntasks-per-node={request.tasks_per_node}",
                "--no-kill",
            ]
        words += [f"--ntasks={count}", f"--cpus-per-task={component.cpus}", *_options(options)]
        if component.memory_mb_per_cpu:
            words.append(f"--mem-per-cpu={component.memory_mb_per_cpu}M")
        if component.gpus:
            words.append(f"--gpus-per-task={component.gpus}")
        if request.excluded:
            words.append(f"--exclude={','.join(request.excluded)}")
    return [*common, *words]


def component_tasks(request: AllocationRequest, number: int) -> int:
    """Return how many tasks a component has, those of spare nodes too."""
    count = 1 if request.array else len(request.elements[0][number])
    if not request.spare_nodes:
        return count
    nodes = math.ceil(count / request.tasks_per_node) + request.spare_nodes
    return nodes * request.tasks_per_node


def minutes_of_deadline(options: AllocationOptions, deadline_seconds: float | None) -> int | None:
    """Return the limit of an allocation whose options name none; None: that of the partition."""
    if options.time or deadline_seconds is None:
        return None
    return math.ceil((deadline_seconds + options.signal_seconds) / 60) + 1


def _options(options: AllocationOptions) -> list[str]:
    named = ("partition", "account", "qos", "constraint", "gres", "time", "reservation")
    words = [f"--{name}={value}" for name in named if (value := getattr(options, name))]
    return [*words, *(["--exclusive"] if options.exclusive else []), *options.extra]


def log_pattern(folder: str) -> str:
    """The value of `--output` for the logs of keepers in a folder, of any name.

    `%` begins a pattern, unless a backslash is there: then nothing is one.
    """
    if "\\" in folder:
        return folder.replace("\\", "\\\\") + "/job.log"
    return folder.replace("%", "%%") + "/job-%j.log"


def job_script(words: Sequence[str], *, folder: str, array: bool) -> str:
    """Return the batch script that keeps the allocation; `words` are given the folder of its element."""
    element = "$SLURM_ARRAY_TASK_ID" if array else "0"
    return f"#!/bin/sh\nexec {shlex.join(words)} {shlex.quote(folder)}/{element}\n"
