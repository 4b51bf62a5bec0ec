"""What a job may say to Slurm, under `spec.runtime.options`. Checked here, read as `AllocationOptions`."""

from __future__ import annotations

import re

from pydantic import BaseModel, ConfigDict, Field, field_validator

__all__ = ["SlurmOptions"]

_WORD = r"^[^\s,;'\"=]+$"
_OURS = (
    "array", "comment", "cpus-per-task", "dependency", "error", "export", "gpus-per-task", "job-name", "mem", "mem-per-cpu",
    "mem-per-gpu", "ntasks", "output", "parsable", "requeue", "no-requeue", "signal", "wait", "wrap", "test-only", "input",
    "open-mode", "clusters", "uid", "gid", "help", "usage", "version", "verbose",
)  # fmt: skip
_TIME = r"^(?:\d+-\d{1,2}(?::\d{2}){0,2}|\d+(?::\d{2}){0,2})$"


class SlurmOptions(BaseModel):
    """Options of `sbatch` for every allocation of the job."""

    # strict: what is read later is what was written
    model_config = ConfigDict(extra="forbid", strict=True)

    partition: str = Field(default="", pattern=r"^$|^[^\s;'\"=]+$")
    """One or more, separated by commas; empty: the cluster's default."""
    account: str = Field(default="", pattern=rf"^$|{_WORD}")
    qos: str = Field(default="", pattern=rf"^$|{_WORD}")
    constraint: str = Field(default="", pattern=r"^$|^[^\s;'\"]+$")
    """Features that nodes must have, as `sbatch --constraint` takes them."""
    gres: str = Field(default="", pattern=r"^$|^[^\s;'\"]+$")
    """Generic resources of each node; GPUs of an instance are asked for in `resources`."""
    time: str = Field(default="", pattern=rf"^$|{_TIME}")
    """Limit of an allocation: minutes, `hours:minutes:seconds` or `days-hours:minutes`."""
    exclusive: bool = False
    reservation: str = Field(default="", pattern=rf"^$|{_WORD}")
    signal_seconds: int = Field(default=60, ge=0, le=65535, alias="signalSeconds")
    """How long before the end of the limit instances get SIGTERM."""
    idle_seconds: float = Field(default=60, ge=0, alias="idleSeconds")
    """How long an allocation in which nothing runs is kept for a restart."""
    python: str = Field(default="", pattern=r"^$|^/")
    """Interpreter of our agent on the nodes; empty: the one that starts the job."""
    extra: list[str] = Field(default_factory=list)
    """Further options of `sbatch`, each as one word: `--nice=100`."""

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
