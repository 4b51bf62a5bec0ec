"""From a program on this machine to a run of a target: capture, ask, send what is missing, start."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from airflow_training.capture.known_contents import KnownContents
from airflow_training.capture.project import ProjectCapture, capture_run
from airflow_training.cloud.client import CloudClient
from airflow_training.cloud.data_sharing import keep_manifest
from airflow_training.cloud.journal import (
    SubmittedRun,
    begin_submission,
    end_submission,
    keep_run,
    known_run,
)
from airflow_training.cloud.own_files import own_files
from airflow_training.cloud.packing import plan_packs
from airflow_training.cloud.protocol import (
    DataReference,
    SubmissionAnswer,
    SubmissionRequest,
    TreeManifest,
    key_of,
)
from airflow_training.cloud.shared_data import SharedData, find_shared_data
from airflow_training.cloud.targets import cloud_folder
from airflow_training.environments.recording import record
from airflow_training.errors import InputError, RuntimeUnavailable

__all__ = ["RunOptions", "Submission", "SubmissionResult", "prepare", "submit"]

_RUN = re.compile(r"[-a-z0-9]{1,60}")
_ROUNDS = 5
"""Of asking what is missing and sending it: documents, content, content that was found damaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How it is to run; see `cloud.run`."""

    framework: str = ""
    replicas: int = 1
    resources: Mapping[str, Any]
    returns: str = "model"
    until: str = ""
    hours: float = 0.0
    team: str = ""
    data: Sequence[str] = ()
    """Files and folders that stay and may be read, beside what is found."""
    data_wait: float = 1.0
    """Hours for which the run waits for them before it is paused."""
    env: Sequence[str] = ()
    """NAME=VALUE."""
    root: Path | None = None
    allow_secrets: Sequence[str] = ()
    allow_missing: Sequence[str] = ()

    def capture(self, argv: Sequence[str], *, cwd: Path) -> ProjectCapture:
        """What of a command travels; nothing of it is executed. Call its `check` before it is sent."""
        return capture_run(
            argv,
            working_dir=cwd,
            environ=os.environ,
            root=self.root,
            env=self.env,
            allow_secrets=self.allow_secrets,
            allow_missing=self.allow_missing,
            excluded=own_files(),
            known=KnownContents(cloud_folder() / "client" / "contents.json"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A program as it was captured: what is asked for, and where each content lies."""

    capture: ProjectCapture
    request: SubmissionRequest
    sources: Mapping[str, Path | bytes]
    at_ns: int
    shared: SharedData | None = None
    """What stays here and may be read; None for a target that reads it where it lies."""

    @property
    def content(self) -> str:
        return self.request.content


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionResult:
    run_id: str
    answer: SubmissionAnswer
    again: bool
    """It takes an interrupted submission up, which may have started already."""
    sent: int
    """Bytes of all bodies."""


def prepare(
    argv: Sequence[str], options: RunOptions, *, cwd: Path, is_here: bool = True
) -> Submission:
    """Capture `SCRIPT ARGS` or `-m MODULE ARGS`; nothing of it is executed. Raises InputError.

    `is_here`: the run reads what does not travel where it lies; else it comes on demand.
    """
    at_ns = time.time_ns()
    captured = options.capture(argv, cwd=cwd)
    captured.check()
    shared = None
    data: list[DataReference] = []
    if is_here:
        data = [
            DataReference(path=each.path, source=str(each.source), size=each.size)
            for each in captured.local_data
        ]
    else:
        shared = find_shared_data(captured, options.data, working_dir=cwd)
        shared.check()
    manifest = TreeManifest(tree=captured.tree, data=data).to_bytes()
    environment = json.dumps(record(root=captured.root).to_json(), sort_keys=True).encode()
    sources: dict[str, Path | bytes] = {**captured.contents}
    digests = {}
    for name, document in (("manifest", manifest), ("environment", environment)):
        digests[name] = hashlib.sha256(document).hexdigest()
        sources[digests[name]] = document
    if shared is not None and shared.document:
        digests["data"] = hashlib.sha256(shared.document).hexdigest()
        sources[digests["data"]] = shared.document
    request = SubmissionRequest(
        key="0" * 64,
        name=_label(captured.command.entry),
        tree_digest=captured.tree.digest,
        manifest=digests["manifest"],
        files=sum(each.kind == "file" for each in captured.tree.entries),
        size=sum(each.size for each in captured.tree.entries),
        command=captured.command if shared is None else shared.command,
        environment=digests["environment"],
        replicas=options.replicas,
        framework=options.framework,
        resources=options.resources,
        returns=options.returns,
        until=options.until,
        hours=options.hours,
        team=options.team,
        data=digests.get("data", ""),
        data_wait=options.data_wait,
    )
    return Submission(
        capture=captured, request=request, sources=sources, at_ns=at_ns, shared=shared
    )


def submit(
    client: CloudClient,
    submission: Submission,
    *,
    target: str,
    told: Callable[[str], None] | None = None,
) -> SubmissionResult:
    """Start a submission, exactly once: interrupted anywhere and called again, it goes on.

    `told`: what it will cost, where accounts are kept, and what is installed for it, before it is sent.
    Raises InputError with what the service refuses, before any content has moved.
    """
    attempted = begin_submission(submission.content, target=target)
    request = replace(submission.request, key=key_of(submission.content, attempted.nonce))
    before = client.sent
    try:
        answer, run_id = _start(client, request, submission, told or _nobody, target=target)
    except InputError:
        end_submission(submission.content, target=target)  # refused: nothing to take up
        raise
    _keep(submission, run_id, target=target)
    end_submission(submission.content, target=target)
    return SubmissionResult(
        run_id=run_id, answer=answer, again=attempted.again, sent=client.sent - before
    )


def _nobody(text: str) -> None:
    """Tell nobody."""


def _start(
    client: CloudClient,
    request: SubmissionRequest,
    submission: Submission,
    told: Callable[[str], None],
    *,
    target: str,
) -> tuple[SubmissionAnswer, str]:
    sizes = {
        sha256: len(source) if isinstance(source, bytes) else 0
        for sha256, source in submission.sources.items()
    }
    sizes |= submission.capture.tree.blobs
    said = {""}
    for _ in range(_ROUNDS):
        answer = client.submit(request)
        _check_id(answer.run_id, client, target=target)
        for name, text in (("estimate", answer.estimate), ("environment", answer.environment)):
            if text not in said:
                told(f"{name}: {text}")
                said.add(text)
        if request.data and not answer.reads_data and "data" not in said:
            told(
                "warning: its runs do not read what stays here; let the script read a storage that both reach"
            )
            said.add("data")
        for pack in plan_packs(answer.missing, sizes):
            client.send(answer.id, pack, submission.sources)
        if answer.missing:
            continue
        if request.data and submission.shared is not None and answer.reads_data:
            keep_manifest(answer.run_id, submission.shared.document)
        try:
            run_id = client.start(answer.id)
        except InputError as error:
            if error.problems[0].code not in ("conflict", "missing"):
                raise
            refused = (
                error  # the service's copy of a content was damaged, and is gone: send it again
            )
            if not client.submit(request).missing:
                raise refused from None
        else:
            _check_id(run_id, client, target=target)
            return answer, run_id
    raise InputError.of(
        code="conflict",
        field="content",
        message="what the service stores is damaged again and again; nothing was executed",
        hint="look at the disk of the service",
    )


def _check_id(run_id: str, client: CloudClient, *, target: str) -> None:
    """A run's id is a name of files here, among them what it may read: not those of another service's run."""
    known = known_run(run_id)
    if not _RUN.fullmatch(run_id) or (known is not None and known.target != target):
        raise RuntimeUnavailable(f"{client.url} answers with {run_id!r}, which is no new run of it")


def _keep(submission: Submission, run_id: str, *, target: str) -> None:
    digests = {
        each.path.removeprefix("project/"): each.sha256
        for each in submission.capture.tree.entries
        if each.kind == "file" and each.path.startswith("project/")
    }
    keep_run(
        SubmittedRun(
            run_id=run_id,
            target=target,
            root=str(submission.capture.root),
            returns=submission.request.returns,
            at_ns=submission.at_ns,
            digests=digests,
        )
    )


def _label(entry: str) -> str:
    """The name of the run's job, after its script."""
    stem = Path(entry).stem if "/" in entry or entry.endswith(".py") else entry
    text = re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")[:40].strip("-")
    return text or "train"
