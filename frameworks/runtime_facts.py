"""What frameworks are told of the runtime that a job goes to: facts, so that none of them needs its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["RuntimeFacts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeFacts:
    """`runtimes.adapter.Adapter.facts` of one runtime.

    >>> RuntimeFacts(name="slurm").template_names
    {'runtime': 'slurm', 'runs_here': False, 'files_dir': ''}
    """

    name: str
    runs_here: bool = False
    """Instances are processes of one machine: of this one."""
    files_dir: str = ""
    """Folder of files that are written for an instance which has a file system of its own; "": they are
    in the instance's own folder, and a remote shell is the runtime's (`TRAINING_REMOTE_SHELL`)."""

    @property
    def template_names(self) -> Mapping[str, Any]:
        """Names that templates and conditions of frameworks see of it."""
        return {"runtime": self.name, "runs_here": self.runs_here, "files_dir": self.files_dir}
