"""Programs and scripts that a job names and that are not on this machine, which would run them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from airflow_training.documents.resolved import ResolvedJob
from airflow_training.errors import Problem
from airflow_training.frameworks.pods import training_container
from airflow_training.runtimes.folders.environment import path_with_our_python

__all__ = ["absent_programs", "absent_scripts"]


def absent_programs(resolved: ResolvedJob) -> list[Problem]:
    """Return the programs that commands begin with and that the PATH of its instances does not have; one with a folder of its own is none.

    Who brings an environment, code or a PATH of its own knows that. Where there is no `python`, ours is taken.
    """
    if resolved.code is not None or resolved.environment is not None:
        return []
    absent: dict[str, None] = {}
    path = path_with_our_python(os.environ.get("PATH", ""))
    for role in resolved.roles:
        container = training_container(role.template, None, name=role.container)
        words = [str(each) for each in (container.get("command") or ())]
        own_path = any(each.get("name") == "PATH" for each in container.get("env") or ())
        if not role.replicas or not words or words[0] == "python" or own_path:
            continue
        if any(sign in words[0] for sign in ("/", "$", "{")):
            continue
        if shutil.which(words[0], path=path) is None:
            absent.setdefault(words[0])
    return [
        Problem(
            code="bad_reference",
            field="spec.command",
            value=program,
            message=f"there is no program {program} on the PATH of this machine",
            hint=_like(program),
        )
        for program in absent
    ]


def _like(program: str) -> str:
    if program.startswith("python"):
        return "name one that is there, as with its path: `command -v python3` prints it"
    return "install it, or name it with its path"


def absent_scripts(resolved: ResolvedJob) -> list[Problem]:
    """Return the scripts that commands name and that are not there.

    A script is the first word of a command that ends in `.py`; who makes it later knows that.
    """
    if not resolved.base_dir or resolved.code is not None:
        return []
    absent: dict[str, str] = {}
    for role in resolved.roles:
        container = training_container(role.template, None, name=role.container)
        words = [*(container.get("command") or ()), *(container.get("args") or ())]
        script = next((word for word in map(str, words) if word.endswith(".py")), "")
        if not script or any(sign in script for sign in (" ", "$", "{")):
            continue
        folder = Path(resolved.base_dir, str(container.get("workingDir") or ""))
        if role.replicas and not (folder / script).is_file():
            absent.setdefault(script, f"there is no file {script} in {folder}")
    return [
        Problem(
            code="bad_reference",
            field="spec.command",
            value=script,
            message=message,
            hint="put it there, or set workingDir to the folder that has it",
        )
        for script, message in absent.items()
    ]
