"""What a job may say to Slurm, under `spec.runtime.options`. Checked here, read as `AllocationOptions`."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

__all__ = ["SlurmOptions"]

_NAME = "one name, without blanks and commas"
_WORD = r"^[^\s,;'\"=]+$"
_OURS = (
    "array", "comment", "cpus-per-task", "dependency", "error", "export", "gpus-per-task", "job-name", "mem", "mem-per-cpu",
    "mem-per-gpu", "ntasks", "output", "parsable", "requeue", "no-requeue", "signal", "wait", "wrap", "test-only", "input",
    "open-mode", "clusters", "uid", "gid", "help", "usage", "version", "verbose",
)  # fmt: skip
_OURS_WITH_SPARE_NODES = (
    "nodes", "ntasks-per-node", "no-kill", "distribution", "exclude", "nodelist", "nodefile", "use-min-nodes", "spread-job",
)  # fmt: skip
_TIME = r"^(?:\d+-\d{1,2}(?::\d{2}){0,2}|\d+(?::\d{2}){0,2})$"


class SlurmOptions(BaseModel):
    """Options of `sbatch` for every allocation of the job."""

    # strict: what is read later is what was written
    model_config = ConfigDict(extra="forbid", strict=True)

    partition: str = Field(
        default="",
        pattern=r"^$|^[^\s;'\"=]+$",
        description="one or more names, separated by commas",
    )
    """Empty: the cluster's default."""
    account: str = Field(default="", pattern=rf"^$|{_WORD}", description=_NAME)
    qos: str = Field(default="", pattern=rf"^$|{_WORD}", description=_NAME)
    constraint: str = Field(
        default="", pattern=r"^$|^[^\s;'\"]+$", description="features without blanks: a100&nvlink"
    )
    """Features that nodes must have, as `sbatch --constraint` takes them."""
    gres: str = Field(
        default="", pattern=r"^$|^[^\s;'\"]+$", description="resources without blanks: license:2"
    )
    """Generic resources of each node; GPUs of an instance are asked for in `resources`."""
    time: str = Field(
        default="",
        pattern=rf"^$|{_TIME}",
        description="minutes, hours:minutes:seconds or days-hours:minutes: 90, 12:00:00, 1-12:00",
    )
    """Limit of an allocation."""
    exclusive: bool = False
    reservation: str = Field(default="", pattern=rf"^$|{_WORD}", description=_NAME)
    signal_seconds: int = Field(default=60, ge=0, le=65535, alias="signalSeconds")
    """How long before the end of the limit instances get SIGTERM."""
    idle_seconds: float = Field(default=60, ge=0, alias="idleSeconds")
    """How long an allocation in which nothing runs is kept for a restart."""
    spare_nodes: int = Field(default=0, ge=0, alias="spareNodes")
    """Nodes that a gang's allocation has beside those it needs: what runs on a node that is lost moves there."""
    instances_per_node: int = Field(default=1, ge=1, alias="instancesPerNode")
    """How many instances share a node where there are spare ones."""
    python: str = Field(
        default="", pattern=r"^$|^/", description="a path from the root: /opt/venv/bin/python"
    )
    """Interpreter of our agent on the nodes; empty: the one that starts the job."""
    container_runtime: Literal["", "apptainer", "singularity"] = Field(
        default="", alias="containerRuntime"
    )
    """What runs the image of a role on the nodes; empty: nothing, its command runs on the node itself."""
    binds: list[Annotated[str, Field(pattern=r"^/[^,\n]*$")]] = Field(
        default_factory=list,
        description="paths from the root, as --bind takes them: /data:/data:ro",
    )
    """Folders of the node that containers see, besides home, /tmp and the run's own."""
    extra: list[str] = Field(default_factory=list)
    """Further options of `sbatch`, each as one word: `--nice=100`."""

    @model_validator(mode="after")
    def _has_containers_for_binds(self) -> SlurmOptions:
        if self.binds and not self.container_runtime:
            raise ValueError("binds count only with containerRuntime")
        return self

    @model_validator(mode="after")
    def _has_layout_of_nodes(self) -> SlurmOptions:
        if not self.spare_nodes:
            if "instances_per_node" in self.model_fields_set:
                raise ValueError("instancesPerNode counts only with spareNodes")
            return self
        for word in self.extra:
            name = word[2:].partition("=")[0]
            if any(each.startswith(name) for each in _OURS_WITH_SPARE_NODES):
                raise ValueError(f"{word!r} is set by us where there are spareNodes: leave it out")
        return self

    @field_validator("extra")
    @classmethod
    def _are_options(cls, words: list[str]) -> list[str]:
        for word in words:
            if not re.match(r"--[a-z][a-z-]*(?:=|$)", word) or "\n" in word:
                raise ValueError(f"{word!r} is no option of sbatch: write it as --name=value")
            name = word[2:].partition("=")[0]
            if any(each.startswith(name) for each in _OURS):  # sbatch takes abbreviations
                raise ValueError(f"{word!r} is set by us: leave it out")
        return words
