"""A shell inside an instance: a step of `srun` beside its own asks its agent, which starts it."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Sequence

from airflow_training.agent.files import AttemptFolder, read_json
from airflow_training.errors import InputError
from airflow_training.runtimes.folders.attempt_state import AgentLiveness, AttemptState
from airflow_training.runtimes.slurm.allocation_program import enter_words
from airflow_training.runtimes.terminal import SHELL

__all__ = ["shell_words"]

_LIVES = frozenset({AgentLiveness.ALIVE, AgentLiveness.WAITING, AgentLiveness.STAYING})


def shell_words(
    found: tuple[AttemptFolder, AttemptState] | None,
    name: str,
    command: Sequence[str],
    *,
    terminal: bool,
) -> list[str]:
    """Return the words of a command that runs another beside that of an attempt, from a node that has `srun`.

    Raises InputError.
    """
    if found is None:
        raise _refused(f"there is no instance {name}")
    folder, state = found
    if state.life not in _LIVES:
        hint = f"its files are in {folder.path}"
        raise _refused(f"nothing of {name} lives{'' if state.end else ' yet'}", hint=hint)
    machine = read_json(folder.control / "machine.json") or {}
    if "job" not in machine:
        raise _refused(f"{name} was started by a version that could not do this")
    if shutil.which("srun") is None:
        message = "there is no command srun here, which takes one to the node"
        raise _refused(message, hint="open the shell where Slurm's commands are")
    there = enter_words(machine["job"], machine["group"], machine["name"], terminal=terminal)
    there.append("--chdir=/")  # where we are is no folder of the node; the agent enters its own
    line = shlex.join(command or SHELL)
    return [*there, *machine["agent"], "shell", str(folder.path), line]


def _refused(message: str, *, hint: str = "") -> InputError:
    return InputError.of(code="not_found", field="RUN", message=message, hint=hint)
