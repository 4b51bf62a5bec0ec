"""What a job says to Slurm, as it was checked: read where there is no pydantic, as on a login node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["AllocationOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationOptions:
    """Options of `sbatch` for every allocation of a job; `options.SlurmOptions` says what each means."""

    partition: str = ""
    account: str = ""
    qos: str = ""
    constraint: str = ""
    gres: str = ""
    time: str = ""
    exclusive: bool = False
    reservation: str = ""
    signal_seconds: int = field(default=60, metadata={"name": "signalSeconds"})
    idle_seconds: float = field(default=60, metadata={"name": "idleSeconds"})
    spare_nodes: int = field(default=0, metadata={"name": "spareNodes"})
    instances_per_node: int = field(default=1, metadata={"name": "instancesPerNode"})
    python: str = ""
    container_runtime: str = field(default="", metadata={"name": "containerRuntime"})
    binds: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> AllocationOptions:
        """Return the options of a resolved job; what is unknown is of another version, and ignored."""
        found = {
            name: document[spelled]
            for name, each in cls.__dataclass_fields__.items()
            if (spelled := each.metadata.get("name", name)) in document
        }
        lists = {name: tuple(found.get(name, ())) for name in ("extra", "binds")}
        return cls(**{**found, **lists})
