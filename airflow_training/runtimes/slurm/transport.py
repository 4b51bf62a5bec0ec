"""How the commands of Slurm are run. Here: on this machine. Another way (SSH) is another class of this shape."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from airflow_training.errors import InputError, RuntimeUnavailable

__all__ = ["CommandResult", "LocalCommands", "SlurmCommands", "environment_without_job"]

_SECONDS = 60.0
_KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT")
"""How the cluster is found, and who we are where it takes tokens. All else are options of people's own commands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    code: int
    output: str
    errors: str


class SlurmCommands(Protocol):
    """Runs one command of Slurm; blocks."""

    def run(
        self, words: Sequence[str], *, given: str = "", keep: Sequence[int] = ()
    ) -> CommandResult:
        """Run a command of Slurm; raises RuntimeUnavailable where it could not be run to its end.

        `given`: its standard input. `keep`: descriptors that stay open as long as it lives.
        """


@dataclass(frozen=True, slots=True)
class LocalCommands:
    """The commands of this machine: a login node, with the user's own rights."""

    where: str = "this machine"
    """What it is called by those who are told of it."""
    hint: str = "start the job where Slurm's commands are, as on a login node"
    """What helps where they are not found."""

    def run(
        self, words: Sequence[str], *, given: str = "", keep: Sequence[int] = ()
    ) -> CommandResult:
        """Run it with our environment, and times as epoch seconds."""
        if shutil.which(words[0]) is None:
            raise InputError.of(
                code="not_installed",
                field="spec.runtime.name",
                value="slurm",
                message=f"there is no command {words[0]} on {self.where}",
                hint=self.hint,
            )
        try:
            done = subprocess.run(
                list(words),
                input=given,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_SECONDS,
                pass_fds=tuple(keep),
                env={**environment_without_job(), "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C.UTF-8"},
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise RuntimeUnavailable(f"{words[0]} gave no answer within {_SECONDS:g} s") from error
        except OSError as error:
            raise RuntimeUnavailable(f"{words[0]}: {error}") from error
        return CommandResult(code=done.returncode, output=done.stdout, errors=done.stderr)


def environment_without_job() -> dict[str, str]:
    """Return our environment without that of a job we may run in ourselves, whose options `sbatch` would take over."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT
        or not name.startswith(("SLURM_", "SBATCH_", "SQUEUE_", "SCANCEL_", "SCONTROL_"))
    }
