"""From a submission to the job that runs it. Pure but for the framework it looks up."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow_training.builtin_runtimes import HERE
from airflow_training.capture.command import storage_addresses
from airflow_training.cloud import LOCAL, MODE_VARIABLE
from airflow_training.cloud.protocol import SubmissionRequest
from airflow_training.errors import InputError
from airflow_training.frameworks.model import FrameworkSpec
from airflow_training.frameworks.registry import find
from airflow_training.interception.protocol import PARAMETERS

__all__ = ["framework_of", "job_document", "literal", "role_sizes"]

_BRACES = re.compile(r"\{\{|\{%")


def framework_of(request: SubmissionRequest) -> str:
    """The framework that is meant: where none is named, ranks are those of PyTorch."""
    return request.framework or ("custom" if request.replicas == 1 else "pytorch")


def role_sizes(name: str, spec: FrameworkSpec, replicas: int) -> Mapping[str, int]:
    """How many instances each role has, so that all run the same program; raises InputError."""
    if not spec.roles:
        return {"worker": replicas}
    chief = next((each for each in spec.roles if each.chief and each.max_replicas == 1), None)
    if spec.single_role is None:
        raise InputError.of(
            code="not_supported",
            field="framework",
            value=name,
            message=f"the roles of {name} run different programs",
            hint="write a job file: airflow-training init",
        )
    if replicas == 1:
        return {spec.single_role: 1}
    if chief is None:
        return {spec.single_role: replicas}
    return {chief.name: 1, "worker": replicas - 1}


def job_document(
    request: SubmissionRequest, *, interpreter: str, folder: Path | None, runtime: str = HERE
) -> Mapping[str, Any]:
    """The TrainingJob of a submission whose tree lies in `folder`; raises InputError.

    None: it lies where `spec.code` of the job is laid out, which is for the caller to add.

    A script that fails is not started again: it ends as it would have ended where it came from.
    """
    name = framework_of(request)
    sizes = role_sizes(name, find(name).framework.spec, request.replicas)
    command = request.command
    words = ["-m", command.entry] if command.kind == "module" else [_script(request)]
    spec: dict[str, Any] = {
        "framework": name,
        "runtime": {"name": runtime},
        "command": [literal(each) for each in (interpreter, *words, *command.args)],
        "workingDir": str(folder / command.working_dir) if folder else command.working_dir,
        "env": _environment(request, folder),
        "roles": [
            {"name": role, "replicas": size, "restartPolicy": "Never"}
            for role, size in sizes.items()
        ],
    }
    if request.resources:
        spec["resources"] = {"limits": {key: str(each) for key, each in request.resources.items()}}
    if request.hours:
        spec["activeDeadlineSeconds"] = request.hours * 3600
    if addresses := storage_addresses(command.args):
        spec["data"] = {"uri": literal(addresses[0])}
    if request.until:
        spec["stop"] = {"until": request.until}
    return {
        "apiVersion": "airflow-training/v1",
        "kind": "TrainingJob",
        "metadata": {
            "name": request.name,
            "annotations": {"airflow-training/tree": request.tree_digest},
        },
        "spec": spec,
    }


def _script(request: SubmissionRequest) -> str:
    """The script as its working directory sees it: what it was called by where it came from."""
    command = request.command
    return posixpath.relpath(f"project/{command.entry}", command.working_dir)


def _environment(request: SubmissionRequest, folder: Path | None) -> Sequence[Mapping[str, str]]:
    command = request.command
    values = {name: literal(text) for name, text in command.env.items()}
    above = literal(str(folder)) if folder else "$(TRAINING_CODE_DIR)"
    paths = [f"{above}/{literal(each)}" for each in command.import_paths]
    if given := values.pop("PYTHONPATH", ""):
        paths.append(given)
    if paths:
        values["PYTHONPATH"] = ":".join(paths)
    values = {PARAMETERS: "tell", **values, MODE_VARIABLE: LOCAL}
    return [{"name": name, "value": text} for name, text in values.items()]


def literal(text: str) -> str:
    """A text as it has to stand in a job: neither reference nor template."""
    return _BRACES.sub(lambda found: "{{ '" + found.group() + "' }}", text.replace("$", "$$"))
