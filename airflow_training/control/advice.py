"""What to write into the document for the next run, from what this one met. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from airflow_training.control import reasons
from airflow_training.control.causes import RootCause
from airflow_training.control.memory import memory_of
from airflow_training.control.model import InstanceEntry, Ledger
from airflow_training.documents.quantities import bytes_text
from airflow_training.documents.resolved import ResolvedJob, ResolvedRole
from airflow_training.frameworks.pods import container_env, training_container

__all__ = ["advice_of", "parameter_to_lower"]

_GPU_MEMORY, _HOST_MEMORY = "cuda-out-of-memory", "host-out-of-memory"
_BATCH = re.compile(r"(?:^|[._-])(?:batch|bs|mbs)(?:$|[._-])|batch_?size", re.IGNORECASE)
_OF_A_DEVICE = re.compile(r"micro|mbs|per_(?:device|gpu)|local", re.IGNORECASE)
_NOT_OF_TRAINING = re.compile(
    r"eval|valid|test|accum|global|workers|sampler|num_batch", re.IGNORECASE
)
_BY_FRAMEWORK: Mapping[str, str] = {
    "lightgbm": "max_bin",
    "xgboost": "max_bin or max_depth",
}
_ANYWHERE = "the batch of one device, in the script"


def advice_of(job: ResolvedJob, ledger: Ledger) -> list[str]:
    """Return sentences for people; none where nothing was met that another document would spare."""
    return [*_of_host_memory(job, ledger), *_of_device_memory(job, ledger)]


def _of_host_memory(job: ResolvedJob, ledger: Ledger) -> Iterator[str]:
    """Yield what instances ended up asking for: what the document says was too little."""
    for role in job.roles:
        raised = [
            each for each in ledger.instances.values() if each.memory and each.role == role.name
        ]
        said = memory_of(role)
        if raised and said is not None:
            most = max(each.memory.bytes for each in raised if each.memory)
            names = ", ".join(str(each.key) for each in raised[:4])
            if any(_ran_out_again(each, ledger.job.root_cause) for each in raised):
                yield (
                    f"{names} ran out of {bytes_text(said)} of memory, and of {bytes_text(most)} too:"
                    f" set resources.limits.memory of {role.name} to more than {bytes_text(most)}"
                    " (with restart.onOutOfMemory.upTo above it), or let it need less"
                )
                continue
            yield (
                f"{names} ran out of {bytes_text(said)} of memory and asked for up to {bytes_text(most)}:"
                f" set resources.limits.memory of {role.name} to {bytes_text(most)}"
            )


def _ran_out_again(entry: InstanceEntry, root: RootCause | None) -> bool:
    """Return whether an instance failed for good for want of memory, with all that it could ask for."""
    if entry.state != "failed" or not entry.final:
        return False
    proven = root is not None and root.id == _HOST_MEMORY and root.key == entry.key
    return proven or entry.reason == reasons.OUT_OF_MEMORY


def _of_device_memory(job: ResolvedJob, ledger: Ledger) -> Iterator[str]:
    """Yield which parameter to lower in each role that ran out of the memory of its devices."""
    root = ledger.job.root_cause
    met = {record.role for record in ledger.job.restarts if record.cause == _GPU_MEMORY}
    if root is not None and root.id == _GPU_MEMORY and root.role:
        met.add(root.role)
    for role in job.roles:
        if role.name in met:
            yield f"{role.name} ran out of device memory: lower {parameter_to_lower(job, role)}"


def parameter_to_lower(job: ResolvedJob, role: ResolvedRole) -> str:
    """Return the name, and the value where it is known, of what decides on the memory of a device."""
    found = [each for each in _settings(job, role) if _is_batch(each[0])]
    found.sort(key=lambda each: not _OF_A_DEVICE.search(each[0]))
    for name, value in found:
        return f"{name} (now {value})" if value else name
    return _BY_FRAMEWORK.get(job.framework, _ANYWHERE)


def _is_batch(name: str) -> bool:
    name = name.replace("-", "_")
    return _BATCH.search(name) is not None and _NOT_OF_TRAINING.search(name) is None


def _settings(job: ResolvedJob, role: ResolvedRole) -> Iterator[tuple[str, str]]:
    """Yield name and value of what a document may tell a script: options, variables, parameters."""
    container = training_container(role.template, None, name=role.container)
    words = [*_sentence(container.get("command")), *_sentence(container.get("args"))]
    for word, following in pairwise([*words, ""]):
        name, equals, value = word.partition("=")
        if equals and not name.startswith("$"):
            yield name, value
        elif word.startswith("--"):
            yield word, "" if following.startswith("-") else following
    own = {each["name"]: each.get("value") for each in container_env(container)}
    for name, given in {**role.env, **own}.items():
        yield name, str(given or "")
    for name, given in (job.variables.get("params") or {}).items():
        yield f"params.{name}", str(given)


def _sentence(parts: Any) -> Iterator[str]:
    for part in parts or ():
        yield from _split(str(part))


def _split(part: str) -> list[str]:
    """Return the words of what may be a command for a shell."""
    try:
        return shlex.split(part)
    except ValueError:
        return [part]
