"""Scripts that a job names and that are not on this machine, which would run them."""

from __future__ import annotations

from pathlib import Path

from airflow_training.documents.resolved import ResolvedJob
from airflow_training.errors import Problem
from airflow_training.frameworks.pods import training_container

__all__ = ["absent_scripts"]


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
