"""Where a run ran and with what: models, and pure functions that make and compare them.

Instances that do not differ are told together: most runs have one group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import ResolvedRole
from airflow_training.documents.resolved_blocks import ResolvedEnvironment
from airflow_training.state.records import EnvironmentRecord, RunState

__all__ = [
    "ChosenEnvironment",
    "EnvironmentAnswer",
    "EnvironmentDifference",
    "KnownEnvironment",
    "KnownEnvironments",
    "environment",
    "environment_difference",
]

_FRAMEWORKS = (
    *("torch", "torchvision", "torchaudio", "pytorch-lightning", "lightning", "torch-xla"),
    *("tensorflow", "tensorflow-cpu", "keras", "jax", "jaxlib", "flax", "paddlepaddle"),
    *("paddlepaddle-gpu", "xgboost", "lightgbm", "scikit-learn", "transformers", "accelerate"),
    *("deepspeed", "horovod", "mpi4py", "ray", "numpy"),
)
"""Packages that people mean by framework, shown first; by the names of the package index."""
_LONGEST_TEXT = 500
_MOST_PACKAGES = 5000


class DeviceKind(BaseModel):
    name: str
    count: int
    """Of one instance."""
    bytes: int | None


class EnvironmentGroup(BaseModel):
    """What instances have that do not differ. None: not told."""

    instances: list[str]
    """`worker-0`; never empty."""
    image: str | None
    system: str | None
    """Name of the distribution: in a container, of its image."""
    machine: str | None
    python: str | None
    executable: str | None
    devices: list[DeviceKind]
    gpu: dict[str, str]
    """What GPUs are used through: `CUDA`, `cuDNN` and `ROCm` with what says so, `Driver`; only what is told."""
    frameworks: dict[str, str]
    """Of the packages, those that people mean by framework."""
    packages: dict[str, str]
    packages_left_out: int
    """How many there are that are not told."""


class NodeAnswer(BaseModel):
    node: str
    instances: list[str]


class ChosenEnvironment(BaseModel):
    """The environment that the job names, as its admission has found it."""

    name: str
    version: str
    digest: str
    """Empty: it was not looked up."""
    image: str | None


class EnvironmentAnswer(BaseModel):
    framework: str
    """Of the job."""
    runtime: str
    environment: ChosenEnvironment | None
    """None: the job names none, and runs on the Python that is there."""
    nodes: list[NodeAnswer]
    groups: list[EnvironmentGroup]


class KnownEnvironment(BaseModel):
    """An environment that jobs may name."""

    name: str
    version: str
    digest: str
    python: str
    packages: list[str]
    """`name==version`."""
    image: str | None
    cached: bool
    """On this machine, where instances of it run."""
    pinned: bool


class KnownEnvironments(BaseModel):
    environments: list[KnownEnvironment]
    """The built-in one first."""
    problem: str | None
    """Why those of the storage are missing; None: they are not."""


class EnvironmentChange(BaseModel):
    """One thing that two runs have differently; None: one of them has it not, or has not told."""

    name: str
    before: str | None
    after: str | None


class EnvironmentDifference(BaseModel):
    """What `after` has differently than `before`."""

    surroundings: list[EnvironmentChange]
    """Nodes, image, Python and so on."""
    packages_told: bool
    """Both have told theirs: else they are not compared."""
    packages: list[EnvironmentChange]
    packages_equal: int


def environment(
    state: RunState,
    *,
    software: Mapping[InstanceKey, Mapping[str, Any]],
    looks: Mapping[InstanceKey, Sequence[EnvironmentRecord]],
) -> EnvironmentAnswer:
    """Return where a run ran and with what. `looks`: the newest records of instances."""
    roles = {role.name: role for role in state.job.roles}
    members = sorted(
        (each for each in state.ledger.instances.values() if not each.retired),
        key=lambda each: ([*roles].index(each.role) if each.role in roles else 0, each.index),
    )
    nodes: dict[str, list[str]] = {}
    groups: dict[str, EnvironmentGroup] = {}
    for each in members:
        name = str(each.key)
        record = looks[each.key][-1].body if looks.get(each.key) else {}
        host = record.get("node")
        node = each.node or (_text(host.get("host")) if isinstance(host, Mapping) else None)
        if node:
            nodes.setdefault(node, []).append(name)
        group = _group(roles.get(each.role), software.get(each.key) or {}, record)
        known = groups.setdefault(group.model_dump_json(), group)
        known.instances.append(name)
    return EnvironmentAnswer(
        framework=state.job.framework,
        runtime=state.job.runtime,
        environment=_chosen(state.job.environment),
        nodes=[NodeAnswer(node=node, instances=names) for node, names in nodes.items()],
        groups=[*groups.values()],
    )


def _chosen(found: ResolvedEnvironment | None) -> ChosenEnvironment | None:
    if found is None:
        return None
    return ChosenEnvironment(
        name=found.name,
        version=found.version,
        digest=found.digest,
        image=found.image or None,
    )


def _group(
    role: ResolvedRole | None, software: Mapping[str, Any], record: Mapping[str, Any]
) -> EnvironmentGroup:
    told = software.get("packages")
    # instances write this: what is no text says nothing
    pairs = [(_text(n), _text(v)) for n, v in told.items()] if isinstance(told, Mapping) else []
    packages = {name: version for name, version in pairs if name and version}
    left_out = software.get("left_out")
    cut = max(0, len(packages) - _MOST_PACKAGES)
    packages = dict(sorted(packages.items())[:_MOST_PACKAGES])
    python = [_text(software.get(name)) for name in ("implementation", "python")]
    return EnvironmentGroup(
        instances=[],
        image=None if role is None else _image(role),
        system=_text(software.get("system")),
        machine=_text(software.get("machine")),
        python=" ".join(filter(None, python)) or None,
        executable=_text(software.get("executable")),
        devices=_devices(record.get("devices")),
        gpu=_gpu(software.get("gpu")),
        frameworks={name: packages[name] for name in _FRAMEWORKS if name in packages},
        packages=packages,
        packages_left_out=cut + (left_out if isinstance(left_out, int) else 0),
    )


def _image(role: ResolvedRole) -> str | None:
    for each in (role.template.get("spec") or {}).get("containers") or ():
        if each.get("name") == role.container:
            return _text(each.get("image"))
    return None


_GPU = {"driver": "Driver", "CUDA": "CUDA", "cuDNN": "cuDNN", "ROCm": "ROCm"}


def _gpu(told: Any) -> dict[str, str]:
    told = told if isinstance(told, Mapping) else {}
    return {shown: text for name, shown in _GPU.items() if (text := _text(told.get(name)))}


def _devices(told: Any) -> list[DeviceKind]:
    """Return how many there are of each kind."""
    found: Counter[tuple[str, int | None]] = Counter()
    for each in told if isinstance(told, list) else ():
        if isinstance(each, Mapping) and not (each.get("id") == "all" and each.get("error")):
            size = each.get("bytes")
            name = _text(each.get("name")) or "device"
            found[name, size if isinstance(size, int) else None] += 1
    return [DeviceKind(name=name, count=count, bytes=size) for (name, size), count in found.items()]


def _text(value: Any) -> str | None:
    return value[:_LONGEST_TEXT] if isinstance(value, str) and value else None


def environment_difference(
    before: EnvironmentAnswer, after: EnvironmentAnswer
) -> EnvironmentDifference:
    """Differences between two environments. Where instances of a run differ, all their values stand beside each other."""
    surroundings = _changes(_surroundings(before), _surroundings(after))
    told = all(any(each.python for each in run.groups) for run in (before, after))
    old, new = (_packages(before), _packages(after)) if told else ({}, {})
    packages = _changes(old, new)
    return EnvironmentDifference(
        surroundings=surroundings,
        packages_told=told,
        packages=packages,
        packages_equal=len(old.keys() | new.keys()) - len(packages),
    )


def _environment_text(chosen: ChosenEnvironment | None) -> str:
    return f"{chosen.name}@{chosen.version} {chosen.digest[:12]}" if chosen else "none"


def _changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[EnvironmentChange]:
    names = [*before, *(name for name in after if name not in before)]
    return [
        EnvironmentChange(name=name, before=before.get(name), after=after.get(name))
        for name in names
        if before.get(name) != after.get(name)
    ]


def _surroundings(found: EnvironmentAnswer) -> dict[str, str]:
    """Return name -> text of everything but packages, in the order in which it is shown."""
    groups = found.groups
    texts: dict[str, list[str | None]] = {
        "Framework": [found.framework],
        "Runtime": [found.runtime],
        "Environment": [_environment_text(found.environment)],
        "Nodes": [each.node for each in found.nodes],
        "Image": [each.image or "none" for each in groups],
        "System": [each.system for each in groups],
        "Machine": [each.machine for each in groups],
        "Python": [each.python for each in groups],
        "Executable": [each.executable for each in groups],
        "Devices": [
            ", ".join(f"{kind.count} x {kind.name}" for kind in each.devices) or "none"
            for each in groups
        ],
    }
    texts |= {
        shown: [each.gpu.get(shown, "none") if each.python else None for each in groups]
        for shown in _GPU.values()
        if any(each.gpu.get(shown) for each in groups)
    }
    return {name: text for name, values in texts.items() if (text := _joined(values))}


def _packages(found: EnvironmentAnswer) -> dict[str, str]:
    """Return package -> version, or all that there are."""
    names = sorted({name for group in found.groups for name in group.packages})
    return {name: _joined([each.packages.get(name) for each in found.groups]) for name in names}


def _joined(values: Collection[str | None]) -> str:
    return ", ".join(sorted({each for each in values if each}))
