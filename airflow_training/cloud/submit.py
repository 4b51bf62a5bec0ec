"""From a program on this machine to a run of a target: capture, ask, send what is missing, start."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from airflow_training.capture.model import CapturedCommand
from airflow_training.cloud.capturing import ProjectFiles, capture_files, find_root
from airflow_training.cloud.client import CloudClient
from airflow_training.cloud.environment import record_environment
from airflow_training.cloud.journal import (
    SubmittedRun,
    begin_submission,
    end_submission,
    keep_run,
)
from airflow_training.cloud.packing import plan_packs
from airflow_training.cloud.protocol import (
    DataRoot,
    SubmissionAnswer,
    SubmissionRequest,
    TreeManifest,
    key_of,
)
from airflow_training.errors import InputError

__all__ = ["LocalProgram", "RunOptions", "Submission", "SubmissionResult", "prepare", "submit"]

_ROUNDS = 5
"""Of asking what is missing and sending it: documents, content, content that was found damaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalProgram:
    """What was typed: a script or a module, with its arguments."""

    kind: str
    entry: str
    """A path as it was typed, or a dotted name."""
    args: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How it is to run; see `cloud.run`."""

    framework: str = ""
    replicas: int = 1
    resources: Mapping[str, Any]
    returns: str = "model"
    until: str = ""
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A program as it was captured: what is asked for, and where each content lies."""

    files: ProjectFiles
    request: SubmissionRequest
    sources: Mapping[str, Path | bytes]
    at_ns: int

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


def prepare(program: LocalProgram, options: RunOptions, *, cwd: Path) -> Submission:
    """Capture a program; nothing of it is executed. Raises InputError."""
    at_ns = time.time_ns()
    root, command = _command(program, options, cwd)
    files = capture_files(root, command)
    data = [
        DataRoot(path=f"project/{each.path}", source=str(root / each.path), size=each.size)
        for each in files.omissions
    ]
    manifest = TreeManifest(tree=files.tree, data=data).to_bytes()
    record = record_environment()
    sources: dict[str, Path | bytes] = {**files.sources}
    digests = {}
    for name, document in (("manifest", manifest), ("environment", record)):
        digests[name] = hashlib.sha256(document).hexdigest()
        sources[digests[name]] = document
    request = SubmissionRequest(
        key="0" * 64,
        name=_label(program.entry),
        tree_digest=files.tree.digest,
        manifest=digests["manifest"],
        files=sum(each.kind == "file" for each in files.tree.entries),
        size=sum(each.size for each in files.tree.entries),
        command=files.command,
        environment=digests["environment"],
        replicas=options.replicas,
        framework=options.framework,
        resources=options.resources,
        returns=options.returns,
        until=options.until,
    )
    return Submission(files=files, request=request, sources=sources, at_ns=at_ns)


def submit(client: CloudClient, submission: Submission, *, target: str) -> SubmissionResult:
    """Start a submission, exactly once: interrupted anywhere and called again, it goes on.

    Raises InputError with what the service refuses, before any content has moved.
    """
    attempted = begin_submission(submission.content, target=target)
    request = replace(submission.request, key=key_of(submission.content, attempted.nonce))
    before = client.sent
    try:
        answer, run_id = _start(client, request, submission)
    except InputError:
        end_submission(submission.content, target=target)  # refused: nothing to take up
        raise
    _keep(submission, run_id, target=target)
    end_submission(submission.content, target=target)
    return SubmissionResult(
        run_id=run_id, answer=answer, again=attempted.again, sent=client.sent - before
    )


def _start(
    client: CloudClient, request: SubmissionRequest, submission: Submission
) -> tuple[SubmissionAnswer, str]:
    sizes = {
        sha256: len(source) if isinstance(source, bytes) else 0
        for sha256, source in submission.sources.items()
    }
    sizes |= submission.files.tree.blobs
    for _ in range(_ROUNDS):
        answer = client.submit(request)
        for pack in plan_packs(answer.missing, sizes):
            client.send(answer.id, pack, submission.sources)
        if answer.missing:
            continue
        try:
            return answer, client.start(answer.id)
        except InputError as error:
            if error.problems[0].code not in ("conflict", "missing"):
                raise
            refused = (
                error  # the service's copy of a content was damaged, and is gone: send it again
            )
            if not client.submit(request).missing:
                raise refused from None
    raise InputError.of(
        code="conflict",
        field="content",
        message="what the service stores is damaged again and again; nothing was executed",
        hint="look at the disk of the service",
    )


def _keep(submission: Submission, run_id: str, *, target: str) -> None:
    digests = {
        each.path.removeprefix("project/"): each.sha256
        for each in submission.files.tree.entries
        if each.kind == "file" and each.path.startswith("project/")
    }
    keep_run(
        SubmittedRun(
            run_id=run_id,
            target=target,
            root=str(submission.files.root),
            returns=submission.request.returns,
            at_ns=submission.at_ns,
            digests=digests,
        )
    )


def _command(program: LocalProgram, options: RunOptions, cwd: Path) -> tuple[Path, CapturedCommand]:
    if program.kind == "module":
        root = find_root(cwd)
        entry = program.entry
        import_paths = [_below(root, cwd)]
    else:
        script = (cwd / program.entry).resolve()
        if script.suffix == ".ipynb":
            raise InputError.of(
                code="not_supported",
                field="SCRIPT",
                value=program.entry,
                message=f"{program.entry} is a notebook",
                hint=f"jupyter nbconvert --to script {program.entry}",
            )
        if not script.is_file():
            raise InputError.of(
                code="not_found",
                field="SCRIPT",
                value=program.entry,
                message=f"there is no file {program.entry}",
                hint="options come before the script, its own arguments after it",
            )
        root = find_root(script.parent if script.parent != cwd.resolve() else cwd.resolve())
        entry, import_paths = script.relative_to(root).as_posix(), []
    inside = cwd.resolve().is_relative_to(root)
    return root, CapturedCommand(
        kind="module" if program.kind == "module" else "script",
        entry=entry,
        args=[*program.args],
        working_dir=_below(root, cwd.resolve() if inside else root),
        import_paths=import_paths,
        env=options.env,
    )


def _below(root: Path, folder: Path) -> str:
    below = folder.relative_to(root).as_posix()
    return "project" if below == "." else f"project/{below}"


def _label(entry: str) -> str:
    """The name of the run's job, after its script."""
    stem = Path(entry).stem if "/" in entry or entry.endswith(".py") else entry
    text = re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")[:40].strip("-")
    return text or "train"
