"""What is recorded with a run that was submitted, at the beginning of its story. Pure but for the clock."""

from __future__ import annotations

import time
from collections.abc import Sequence

from airflow_training.cloud.protocol import SubmissionRequest
from airflow_training.control.model import Event
from airflow_training.documents.text import counted
from airflow_training.environments import Match, PreparedEnvironment
from airflow_training.remote_data.manifest import DataManifest

__all__ = ["submission_events"]


def submission_events(
    request: SubmissionRequest,
    *,
    account: str,
    submission: str,
    found: Match,
    ready: PreparedEnvironment,
    shared: DataManifest | None,
) -> Sequence[Event]:
    """What was sent and by whom, what it runs in and on, and what stays where it was sent from."""
    now, command = time.time(), request.command
    text = " ".join(["-m"] * (command.kind == "module") + [command.entry, *command.args])
    submitted = Event(
        at=now,
        reason="Submitted",
        message=f"{text}: {request.files} files, {request.size} bytes, by {account}",
        data={
            "tree": request.tree_digest,
            "command": {**command.to_json(), "env": sorted(command.env)},  # names: values stay out
            "environment": request.environment,
            "by": account,
            "submission": submission,
        },
    )
    installed = f"; installed: {', '.join(ready.installed)}" if ready.installed else ""
    document = {key: each for key, each in found.to_json().items() if key != "requirements"}
    asked = {"instances": request.replicas, "resources": dict(request.resources)}
    prepared = Event(
        at=now,
        reason="EnvironmentReady",
        message=f"{found.description}{installed}; for {_asked_text(request)}",
        data={**document, **ready.to_json(), "asked": asked},
    )
    if shared is None:
        return [submitted, prepared]
    files = sum(len(root.files) for root in shared.roots)
    stays = Event(
        at=now,
        reason="DataShared",
        message=f"{files} files of {shared.size} bytes stay where it was sent from, and come when they are read",
        data={"files": files, "bytes": shared.size},
    )
    return [submitted, prepared, stays]


def _asked_text(request: SubmissionRequest) -> str:
    """What is asked for, of nodes and of their networks: kinds and numbers."""
    each = ", ".join(f"{kind}={amount}" for kind, amount in request.resources.items())
    return counted(request.replicas, "instance") + (f", each with {each}" if each else "")
