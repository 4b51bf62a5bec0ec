"""Submissions: let in, completed with their content, started. Blocks; knows no HTTP."""

from __future__ import annotations

import contextlib
import fcntl
import json
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from airflow_training.capture.model import Tree
from airflow_training.cloud.protocol import (
    MissingContent,
    SubmissionAnswer,
    SubmissionRequest,
    TreeManifest,
    run_id_of,
    submission_id_of,
)
from airflow_training.cloud.service.account_room import AccountRoom
from airflow_training.cloud.service.admission import Admission, Caller, QuotaRefused
from airflow_training.cloud.service.content import ContentFolder, PackWriter, digest_of
from airflow_training.cloud.service.launching import RunLauncher
from airflow_training.cloud.service.layout import check_tree
from airflow_training.cloud.service.places import FolderPlace, RunPlace
from airflow_training.cloud.service.run_data import (
    RunData,
    read_manifest,
    with_variables,
)
from airflow_training.cloud.service.submission_events import submission_events
from airflow_training.cloud.service.unneeded import FolderGuard, GarbageTimer, trim_chunks
from airflow_training.environments import Match
from airflow_training.errors import InputError
from airflow_training.remote_data.manifest import DataManifest
from airflow_training.settings import load_settings
from airflow_training.state.store import open_store

__all__ = ["Submissions"]

_MANIFEST_BYTES = 64 << 20
_GB = 10**9
_SUBMISSION = re.compile(r"[0-9a-f]{32}")
_RUN = re.compile(r"[-a-z0-9]{1,60}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _KnownSubmission:
    id: str
    account: str
    request: SubmissionRequest
    run_id: str
    started: bool


class Submissions:
    """All submissions of a folder. Several processes may use it at once."""

    def __init__(
        self,
        folder: Path,
        admission: Admission,
        launcher: RunLauncher,
        *,
        same_machine: bool,
        environments: Path | None = None,
        place: Callable[[ContentFolder], RunPlace] | None = None,
        resources: Mapping[str, Any] | None = None,
    ) -> None:
        """`same_machine`: only this machine's user submits, whose data is here.

        `environments`: where those are kept that are built; None: in the cache of this user. `place`: where runs
        are, which is given the content; None: in folders of this machine. `resources`: of each replica, where a
        submission says nothing.
        """
        self._resources = resources or {}
        self._folder = folder
        self._admission = admission
        self.launcher = launcher
        self.content = ContentFolder(folder / "content")
        here = FolderPlace(
            folder / "runs", self.content, same_machine=same_machine, environments=environments
        )
        self.place: RunPlace = here if place is None else place(self.content)
        self._manifests: dict[str, TreeManifest] = {}
        settings = load_settings()
        self._guard = FolderGuard(folder)
        self._garbage = GarbageTimer(folder, most_bytes=settings.cloud_most_gb * _GB)
        self._room = AccountRoom(folder, self.content, most_bytes=settings.cloud_account_gb * _GB)

    def submit(self, account: str, request: SubmissionRequest) -> SubmissionAnswer:
        """Let a submission in, or say how it stands; raises InputError before anything of it is kept."""
        submission = submission_id_of(account, request.key)
        run_id = run_id_of(request.name, submission)
        known = self._read(submission)
        if known is not None and known.request != request:
            raise InputError.of(
                code="conflict",
                field="key",
                message="another submission has this key",
                value=request.key,
                hint="a key is made of what is submitted: see the protocol",
            )
        started = known is not None and known.started
        grant = None
        if not started:
            self.place.check(request)
            asked = self._with_resources(request)
            self.launcher.check(
                self.place.job(asked, run_id),
                run_id=run_id,
                folder=self._folder,
                by=account,
            )
            grant = self._admission.reserve(account, submission, asked)
        with self._room.asked():
            try:
                environment = self._environment(account, request)
                missing = () if started else self._missing(account, submission, request)
                self._check_room(account, submission, request, missing)
            except InputError:
                self._admission.release(account, submission)
                raise
            if known is None:
                self._write(
                    _KnownSubmission(
                        id=submission,
                        account=account,
                        request=request,
                        run_id=run_id,
                        started=False,
                    )
                )
        return SubmissionAnswer(
            id=submission,
            run_id=run_id,
            started=started,
            missing=missing,
            account=account,
            reservation=None if grant is None else grant.reservation,
            estimate="" if grant is None else grant.estimate,
            environment="" if environment is None else environment.description,
        )

    def _with_resources(self, request: SubmissionRequest) -> SubmissionRequest:
        """What is judged, reserved and run: with those of this service where none are asked for."""
        return request if request.resources else replace(request, resources=self._resources)

    def writer(self, account: str, submission: str) -> PackWriter:
        """Take the content that a submission is made of; raises InputError, KeyError for none such."""
        known = self._known(account, submission)
        wanted = partial(self._wanted, account, submission, known.request)
        return PackWriter(self.content, account=account, submission=submission, wanted=wanted)

    def _wanted(
        self, account: str, submission: str, request: SubmissionRequest
    ) -> Mapping[str, int]:
        """What may come of a submission, with the most bytes of each; raises QuotaRefused."""
        documents = dict.fromkeys(_documents(request), _MANIFEST_BYTES)
        manifest = self._manifest(account, request)
        if manifest is None:
            return documents
        if self._room.most_bytes:  # also of who does not ask again once the list is here
            with self._room.asked():
                missing = self._missing(account, submission, request)
                self._check_room(account, submission, request, missing)
        return {**manifest.tree.blobs, **documents}

    def is_complete(self, account: str, submission: str) -> bool:
        """Whether all of it has come; raises InputError, KeyError for none such."""
        request = self._known(account, submission).request
        is_listed = self._manifest(account, request) is not None
        return is_listed and not self._missing(account, submission, request)

    def start(self, account: str, submission: str) -> str:
        """Run it, once however often this is called, and return the run's id.

        Raises InputError where something is missing or was changed: then nothing was executed.
        """
        known = self._known(account, submission)
        request = known.request
        folder = self._run_folder(known.run_id)
        state_folder = self._state_folder(submission)
        with self._guard.shared(), _locked(state_folder / "lock"):
            manifest = self._manifest(account, request)
            found = self._environment(account, request)
            if manifest is None or found is None or self._missing(account, submission, request):
                raise InputError.of(
                    code="missing",
                    field="content",
                    message="not all of it has arrived",
                    hint="the same command again sends what is missing",
                )
            if not known.started:
                self._check_unused(known)
                self._verify(request, manifest)
                self.place.lay_out(manifest, known.run_id, shared=self._shared(account, request))
            try:
                ready = self.place.prepare(found)
            except InputError:  # what is sent again asks again
                self._admission.release(account, submission)
                raise
            self._admission.attach(account, submission, self.launcher.key(known.run_id).uid)
            shared = self._shared(account, request)
            tree = self.place.tree(manifest, shared).digest
            asked = self._with_resources(request)
            job = self.place.job(asked, known.run_id, found=found, ready=ready, tree=tree)
            data = None if shared is None else self._data(known)
            if shared is not None and data is not None:
                variables = data.start(shared, wait_hours=request.data_wait)
                job = with_variables(job, variables)
            try:
                self.launcher.begin(
                    job,
                    run_id=known.run_id,
                    folder=folder,
                    state_folder=state_folder,
                    by=account,
                    events=submission_events(
                        asked,
                        account=account,
                        submission=submission,
                        found=found,
                        ready=ready,
                        shared=shared,
                    ),
                )
            except InputError:
                if data is not None:
                    data.abandon()
                raise
            self._write(
                _KnownSubmission(
                    id=submission,
                    account=account,
                    request=request,
                    run_id=known.run_id,
                    started=True,
                )
            )
            self.content.end_submission(submission)
        self._garbage.look(open_store())
        return known.run_id

    def of_run(self, caller: Caller, run_id: str) -> SubmissionRequest:
        """What was submitted as a run; raises KeyError for what the caller does not reach."""
        index = self._run_index(run_id)
        if not _RUN.fullmatch(run_id) or not index.is_file():
            raise KeyError(run_id)
        known = self._read(json.loads(index.read_text())["submission"])
        if known is None or not (caller.reaches_others or known.account == caller.account):
            raise KeyError(run_id)
        return known.request

    def data_of_run(self, run_id: str, *, account: str | None = None) -> RunData | None:
        """The data of a run that stays where it was sent from; None where there is none.

        `account`: whose run it has to be; None: who asks shows the run's own token.
        """
        index = self._run_index(run_id)
        known = None
        if _RUN.fullmatch(run_id) and index.is_file():
            known = self._read(json.loads(index.read_text())["submission"])
        if known is None or account not in (None, known.account):
            return None
        return self._data(known) if known.request.data else None

    def _data(self, known: _KnownSubmission) -> RunData:
        return RunData(
            run_id=known.run_id,
            uid=self.launcher.key(known.run_id).uid,
            folder=self._run_folder(known.run_id),
            state=self._state_folder(known.id) / "data",
            place=self.place.data_place(known.account),
        )

    def run_ids(self, account: str) -> Sequence[str]:
        """The runs of an account that were started here, newest first."""
        found: list[tuple[int, str]] = []
        for index in (self._folder / "runs").glob("*.json"):
            with contextlib.suppress(FileNotFoundError):  # `cloud gc` has removed it just now
                started = index.stat().st_mtime_ns
                known = self._read(json.loads(index.read_text())["submission"])
                if known is not None and known.account == account:
                    found.append((started, known.run_id))
        return [run_id for _, run_id in sorted(found, reverse=True)]

    def _check_unused(self, known: _KnownSubmission) -> None:
        """Raise InputError where the run's id, made of the submission's by ten digits, is that of another one."""
        with contextlib.suppress(FileNotFoundError):
            index = json.loads(self._run_index(known.run_id).read_text())
            if index["submission"] != known.id:
                raise InputError.of(
                    code="conflict",
                    field="key",
                    message=f"the run {known.run_id} is another submission's; nothing was executed",
                    value=known.run_id,
                    hint="the same command again gets another run",
                )

    def _check_room(
        self,
        account: str,
        submission: str,
        request: SubmissionRequest,
        missing: Sequence[MissingContent],
    ) -> None:
        """Raise QuotaRefused where what is missing would not fit the account's part of the disk; nothing of it has come."""
        most = self._room.most_bytes
        if not most or not missing:
            return
        manifest = self._manifest(account, request)
        if manifest is None:  # before the list is here, what was announced has to fit alone
            if request.size > most:
                raise self._room.refusal(account, kept=0, coming=request.size)
            return
        sizes = manifest.tree.blobs
        wanted = {each.sha256: sizes.get(each.sha256, 0) for each in missing}
        try:
            left = self._room.check(account, submission, wanted)
        except QuotaRefused:  # it will not come, and holds nothing back from others
            (self._state_folder(submission) / "submission.json").unlink(missing_ok=True)
            self.content.end_submission(submission)
            raise
        place = self.place.data_place(account)
        if place.is_here:
            trim_chunks(Path(place.storage), most_bytes=left)

    def _verify(self, request: SubmissionRequest, manifest: TreeManifest) -> None:
        if manifest.tree.digest != request.tree_digest:
            raise InputError.of(
                code="conflict",
                field="tree",
                message="the manifest is not that of the tree that was submitted; nothing was executed",
                value=manifest.tree.digest,
                allowed=[request.tree_digest],
            )

    def _environment(self, account: str, request: SubmissionRequest) -> Match | None:
        """What it runs in; None while its record is missing. Raises InputError with the difference."""
        record = self._document(account, request.environment)
        if record is None:
            return None
        return self.place.match(record)

    def _missing(
        self, account: str, submission: str, request: SubmissionRequest
    ) -> Sequence[MissingContent]:
        """What has to come next: first what describes the content, then the content."""
        documents = _documents(request)
        missing = self.content.missing(documents, account=account, submission=submission)
        manifest = self._manifest(account, request)
        if missing or manifest is None:
            return missing
        return self.content.missing(manifest.tree.blobs, account=account, submission=submission)

    def _manifest(self, account: str, request: SubmissionRequest) -> TreeManifest | None:
        known = self._manifests.get(request.manifest)
        if known is None or not self.content.holds(account, request.manifest):
            data = self._document(account, request.manifest)
            if data is None:
                return None
            known = TreeManifest.from_bytes(data)
            check_tree(known.tree)  # its digests are names of files from here on
            self._manifests = {request.manifest: known}
        _check_announced(request, known.tree)
        return known

    def _shared(self, account: str, request: SubmissionRequest) -> DataManifest | None:
        """What stays and is read on demand; None where that is nothing, or its list has not come."""
        if not request.data:
            return None
        document = self._document(account, request.data)
        manifest = self._manifest(account, request)
        if document is None or manifest is None:
            return None
        return read_manifest(document, manifest.tree)

    def _document(self, account: str, sha256: str) -> bytes | None:
        """A content that the service itself reads; None where it has not come of the account, or is damaged."""
        if not self.content.holds(account, sha256):
            return None
        path = self.content.path(sha256)
        if path.stat().st_size > _MANIFEST_BYTES:
            raise InputError.of(
                code="out_of_range",
                field="tree.manifest",
                message=f"is larger than {_MANIFEST_BYTES >> 20} MiB",
                hint="leave folders out that the program does not need: .gitignore",
            )
        if digest_of(path) != sha256:
            self.content.forget(sha256)
            return None
        return path.read_bytes()

    def _run_folder(self, run_id: str) -> Path:
        return self._folder / "runs" / run_id

    def _run_index(self, run_id: str) -> Path:
        return self._folder / "runs" / f"{run_id}.json"

    def _state_folder(self, submission: str) -> Path:
        return self._folder / "submissions" / submission

    def _known(self, account: str, submission: str) -> _KnownSubmission:
        known = self._read(submission) if _SUBMISSION.fullmatch(submission) else None
        if known is None or known.account != account:
            raise KeyError(submission)
        return known

    def _read(self, submission: str) -> _KnownSubmission | None:
        try:
            document = json.loads((self._state_folder(submission) / "submission.json").read_text())
        except FileNotFoundError:
            return None
        return _KnownSubmission(
            id=submission,
            account=document["account"],
            request=SubmissionRequest.from_json(document["request"]),
            run_id=document["run_id"],
            started=document["started"],
        )

    def _write(self, known: _KnownSubmission) -> None:
        folder = self._state_folder(known.id)
        folder.mkdir(parents=True, exist_ok=True)
        document = {
            "account": known.account,
            "request": known.request.to_json(),
            "run_id": known.run_id,
            "started": known.started,
        }
        _replace(folder / "submission.json", document)
        index = self._run_index(known.run_id)
        if known.started and not index.exists():
            index.parent.mkdir(parents=True, exist_ok=True)
            _replace(index, {"submission": known.id})


def _documents(request: SubmissionRequest) -> Sequence[str]:
    """What describes the content, and comes before it."""
    return [each for each in (request.environment, request.manifest, request.data) if each]


def _check_announced(request: SubmissionRequest, tree: Tree) -> None:
    """Raise InputError where more would come than was let in."""
    files = [each.size for each in tree.entries if each.kind == "file"]
    if len(files) > request.files or sum(files) > request.size:
        raise InputError.of(
            code="conflict",
            field="tree.manifest",
            message=f"lists {len(files)} files of {sum(files)} bytes,"
            f" and {request.files} of {request.size} were announced",
        )


def _replace(path: Path, document: Mapping[str, Any]) -> None:
    # of one writer: two threads may write it, and two containers have processes of the same number
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}.draft")
    draft.write_text(json.dumps(document))
    draft.replace(path)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
