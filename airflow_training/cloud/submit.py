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

from airflow_training.capture.known_contents import KnownContents
from airflow_training.capture.project import ProjectCapture, capture_run
from airflow_training.cloud.client import CloudClient
from airflow_training.cloud.data_sharing import keep_manifest, known_digests
from airflow_training.cloud.journal import (
    SubmittedRun,
    begin_submission,
    end_submission,
    keep_run,
    known_run,
)
from airflow_training.cloud.observed_loads import ObservedLoads, read_loads
from airflow_training.cloud.options import RunOptions
from airflow_training.cloud.own_files import own_files
from airflow_training.cloud.packing import Pack, PackHeader, plan_packs
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

__all__ = [
    "Submission",
    "SubmissionResult",
    "capture_program",
    "prepare",
    "share_data",
    "submit",
]

_RUN = re.compile(r"[-a-z0-9]{1,60}")
_ROUNDS = 5
"""Of asking what is missing and sending it: documents, content, content that was found damaged."""


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


def capture_program(argv: Sequence[str], options: RunOptions, *, cwd: Path) -> ProjectCapture:
    """What of a command travels; nothing of it is executed. Call its `check` before it is sent."""
    return capture_run(
        argv,
        working_dir=cwd,
        environ=os.environ,
        root=Path(options.root) if options.root else None,
        env=_chosen_variables(options.env, os.environ),
        allow_secrets=options.allow_secrets,
        allow_missing=options.allow_missing,
        excluded=own_files(),
        known=KnownContents(cloud_folder() / "client" / "contents.json"),
        loaded=_loads(options).models,
    )


def _loads(options: RunOptions) -> ObservedLoads:
    return read_loads(Path(options.loads)) if options.loads else ObservedLoads()


def share_data(captured: ProjectCapture, options: RunOptions, *, cwd: Path) -> SharedData:
    """What a captured run may read of this machine, where it runs on another; no content is read."""
    seen = _loads(options)
    return find_shared_data(
        captured,
        options.data,
        loaded=[*seen.data, *seen.models],
        working_dir=cwd,
        known=known_digests(),
    )


def _chosen_variables(rows: Sequence[str], environ: Mapping[str, str]) -> Sequence[str]:
    """NAME or NAME=VALUE with its value; raises InputError for a name that is not set."""
    missing = [each for each in rows if "=" not in each and each not in environ]
    if missing:
        raise InputError.of(
            code="missing",
            field="--env",
            message=f"{', '.join(missing)}: not set here",
            value=", ".join(missing),
            hint=f"--env {missing[0]}=VALUE",
        )
    return [each if "=" in each else f"{each}={environ[each]}" for each in rows]


def prepare(
    argv: Sequence[str], options: RunOptions, *, cwd: Path, is_here: bool = True
) -> Submission:
    """Capture `SCRIPT ARGS` or `-m MODULE ARGS`; nothing of it is executed. Raises InputError.

    `is_here`: the run reads what does not travel where it lies; else it comes on demand.
    """
    at_ns = time.time_ns()
    captured = capture_program(argv, options, cwd=cwd)
    captured.check()
    shared = None
    data: list[DataReference] = []
    if is_here:
        data = [
            DataReference(path=each.path, source=str(each.source), size=each.size)
            for each in captured.local_data
        ]
    else:
        shared = share_data(captured, options, cwd=cwd)
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
    whole: bool = False,
) -> SubmissionResult:
    """Start a submission, exactly once: interrupted anywhere and called again, it goes on.

    `told`: what it will cost, where accounts are kept, and what is installed for it, before it is sent. `whole`: nothing
    is asked first: all of it is sent in one request, and starts as soon as it is there.

    Raises InputError with what the service refuses, before any content has moved unless it goes as a whole.
    """
    attempted = begin_submission(submission.content, target=target)
    request = replace(submission.request, key=key_of(submission.content, attempted.nonce))
    before = client.sent
    try:
        answer, run_id = _start(
            client, request, submission, told or _nobody, target=target, whole=whole
        )
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


def _send_whole(
    client: CloudClient, request: SubmissionRequest, submission: Submission
) -> tuple[SubmissionAnswer, str]:
    """Send all of it in one request, what it is described by first."""
    documents = [each for each in (request.manifest, request.environment, request.data) if each]
    contents = dict.fromkeys([*documents, *submission.sources])
    sizes = _sizes(submission)
    headers = [PackHeader(sha256=each, size=sizes[each]) for each in contents]
    return client.submit_whole(request, Pack(headers=headers), submission.sources)


def _sizes(submission: Submission) -> Mapping[str, int]:
    documents = {
        sha256: len(source)
        for sha256, source in submission.sources.items()
        if isinstance(source, bytes)
    }
    return {**documents, **submission.capture.tree.blobs}


def _start(
    client: CloudClient,
    request: SubmissionRequest,
    submission: Submission,
    told: Callable[[str], None],
    *,
    target: str,
    whole: bool,
) -> tuple[SubmissionAnswer, str]:
    sizes = _sizes(submission)
    said = {""}
    for number in range(_ROUNDS):
        run_id = ""
        if whole and not number:
            answer, run_id = _send_whole(client, request, submission)
        else:
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
        if _describes(request, answer):
            continue  # what it is made of is asked for next
        if request.data and submission.shared is not None and answer.reads_data:
            keep_manifest(answer.run_id, submission.shared.manifest)
        try:
            run_id = run_id or client.start(answer.id)
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


def _describes(request: SubmissionRequest, answer: SubmissionAnswer) -> bool:
    """Whether what was missing is what the content is described by."""
    documents = {request.manifest, request.environment, request.data}
    return any(each.sha256 in documents for each in answer.missing)


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
