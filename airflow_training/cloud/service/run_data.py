"""The data of one run that stays where the run was sent from: what was shown, where it is laid out, who fetches it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import posixpath
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from airflow_training.capture.model import Tree
from airflow_training.cloud.locks import is_locked
from airflow_training.cloud.protocol import PREFIX, CloudRunState
from airflow_training.cloud.service.jobs import literal
from airflow_training.errors import InputError, RuntimeUnavailable, TrainingError
from airflow_training.remote_data.beside_command import VARIABLE
from airflow_training.remote_data.chunks import ChunkCache, open_chunk_store
from airflow_training.remote_data.mailbox import LetterBox
from airflow_training.remote_data.manifest import DataManifest
from airflow_training.remote_data.source_address import http_address, mailbox_address

__all__ = ["DataPlace", "RunData", "account_folder", "read_manifest", "with_variables"]

_PLACE = re.compile(r"project|(?:project|imports|data)(?:/(?!\.\.?(?:/|$))[^/\0]+)+")
_MOST_FILES = 200_000
_MOST_NUMBER = 1 << 63
_SEEN_SECONDS = 1.0
_TROUBLE = "trouble-"
_TROUBLE_SECONDS = 20.0
"""After so long without another, what could not be kept is over: it is sent again every two seconds."""
_START_SECONDS = 600.0


def read_manifest(document: bytes, tree: Tree) -> DataManifest:
    """What a submission shows; raises InputError for what no client writes, or what would lead out of its folder."""
    try:
        manifest = DataManifest.from_bytes(document, source="")
        problem = next(_mistakes(manifest, tree), "")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise _refused(f"cannot be read: {error}") from None
    if problem:
        raise _refused(problem)
    return manifest


def _refused(message: str) -> InputError:
    return InputError.of(code="wrong_type", field="data", message=message)


def _mistakes(manifest: DataManifest, tree: Tree) -> Iterator[str]:
    if sum(len(root.files) for root in manifest.roots) > _MOST_FILES:
        yield f"lists more than {_MOST_FILES} files"
    folders = {each.path for each in tree.entries if each.kind == "folder"}
    taken = {each.path for each in tree.entries} - folders
    links: set[str] = set()
    paths: list[str] = []
    for root in manifest.roots:
        if not _PLACE.fullmatch(root.name):
            yield f"{root.name!r} is no place in a run's folder"
        names = [*(file.path for file in root.files), *root.folders, *root.links]
        for name in names:
            if name != posixpath.normpath(name) or name.startswith(("/", "..")) or "\0" in name:
                yield f"{name!r} is no path below a root"
        for file in root.files:
            numbers = (file.size, file.mtime_ns, file.mode)
            if not all(type(each) is int for each in numbers) or not (
                0 <= file.size < _MOST_NUMBER
                and abs(file.mtime_ns) < _MOST_NUMBER
                and 0 <= file.mode <= 0o777
            ):
                yield f"{file.path!r} has no size, time and permissions"
        for name, target in root.links.items():
            leads = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
            if leads.startswith(("/", "..")):
                yield f"{name!r} leads out of its root"
        links |= {f"{root.name}/{name}" for name in root.links}
        paths += [f"{root.name}/{name}" for name in names]
    solid = links | taken
    for path in paths:
        if path in taken or any(above in solid for above in _above(path)):
            yield f"{path!r} lies where something else of the program does"


def _above(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path


def with_variables(document: Mapping[str, Any], variables: Mapping[str, str]) -> Mapping[str, Any]:
    """A job with variables more; what both have of PYTHONPATH is joined, theirs first."""
    given = {row["name"]: row["value"] for row in document["spec"].get("env", ())}
    added = {**variables}
    if "PYTHONPATH" in given and "PYTHONPATH" in added:
        added["PYTHONPATH"] += f":{given['PYTHONPATH']}"
    rows = [{"name": name, "value": text} for name, text in {**given, **added}.items()]
    return {**document, "spec": {**document["spec"], "env": rows}}


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPlace:
    """Where data that comes on demand is kept for an account, and who lays it out."""

    storage: str
    """Address of its mailboxes and chunks: nobody gets another's bytes by their digest."""
    is_here: bool = True
    """Whether a process of this machine lays it out and fetches; else each instance does."""
    address: str = ""
    """URL of the service as instances reach it; empty: they leave their requests in the storage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunData:
    """One run's data on the service's side. Several processes of the service may use it at once."""

    run_id: str
    uid: str
    folder: Path
    """Of the run: `project`, `imports`, `data`."""
    state: Path
    """What is kept of its data."""
    place: DataPlace

    @property
    def letters(self) -> LetterBox:
        """What the run asks for."""
        return LetterBox(open_chunk_store(self.place.storage), self.run_id)

    @property
    def chunks(self) -> ChunkCache:
        """What has come, of all runs of the account."""
        return ChunkCache(open_chunk_store(self.place.storage))

    @property
    def manifest(self) -> DataManifest:
        """What was shown, with this run as its source."""
        path = self.state / "config.json"
        return _manifest_of(path, path.stat().st_mtime_ns)

    @property
    def node_token(self) -> str:
        """What a node shows that fetches over HTTP, as it does not see the service's folder: for this run only."""
        path = self.state / "node-token"
        if not path.exists():
            draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
            draft.touch(mode=0o600)
            draft.write_text(secrets.token_urlsafe(32))
            with contextlib.suppress(FileExistsError):
                os.link(draft, path)
            draft.unlink()
        return path.read_text()

    def start(self, manifest: DataManifest, *, wait_hours: float) -> Mapping[str, str]:
        """Lay the data out without content and start the process that fetches it, once.

        Returns the variables of the run's processes. Raises InputError where data could not be guarded.
        """
        self.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        (self.state / "abandoned").unlink(missing_ok=True)
        config = self.state / "config.json"
        if not config.exists():
            document = {
                "run_id": self.run_id,
                "uid": self.uid,
                "folder": str(self.folder),
                "place": asdict(self.place),
                "wait_seconds": wait_hours * 3600,
                "manifest": replace(manifest, source=self.run_id).to_json(),
            }
            draft = config.with_suffix(".draft")
            draft.write_text(json.dumps(document), encoding="utf-8")
            draft.replace(config)
        self.revive()
        return self._variables() if self.place.is_here else self._instance_variables()

    def _instance_variables(self) -> Mapping[str, str]:
        """What agents need that fetch beside their commands; see `remote_data.beside_command`."""
        place = self.place
        source = mailbox_address(place.storage)
        if place.address:
            url = f"{place.address}{PREFIX}/runs/{self.run_id}/data"
            source = http_address(url, self.node_token)
        told = {"run": self.run_id, "source": source, "cache": place.storage}
        return {VARIABLE: literal(json.dumps(told))}

    def abandon(self) -> None:
        """Let the process that fetches end: there will be no run, unless `start` is called again."""
        (self.state / "abandoned").touch()

    @property
    def is_abandoned(self) -> bool:
        """Whether `abandon` was called since the last `start`."""
        return (self.state / "abandoned").exists()

    def revive(self) -> None:
        """Start the process that fetches again, should it have been killed."""
        is_begun = (self.state / "config.json").exists() and not self.is_abandoned
        if is_begun and not self.is_hosted() and not self.status().get("ended"):
            self._host()

    def is_hosted(self) -> bool:
        """Whether the process that fetches is there."""
        return self.state.is_dir() and is_locked(self.state / "host.lock")

    def _host(self) -> None:
        home = str(Path(__file__).resolve().parents[3])
        path = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH", ""))))
        with (self.state / "host.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "airflow_training.cloud.service.data_host", str(self.state)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # it outlives the service, as the run does
                cwd=self.state,
                env={**os.environ, "PYTHONPATH": path},
            )
        said = process.stdout.readline() if process.stdout is not None else ""
        if process.stdout is not None:
            process.stdout.close()
        if not said.startswith("{"):
            raise RuntimeUnavailable(f"data on demand did not start; see {self.state / 'host.log'}")
        told = json.loads(said)
        if "refused" in told:
            raise InputError.of(
                code="not_supported",
                field="data",
                value=str(self.folder),
                message=told["refused"],
                hint="let the script read its data from a storage that both reach",
            )

    def _variables(self) -> Mapping[str, str]:
        end = time.monotonic() + _START_SECONDS
        path = self.state / "variables.json"
        while not path.exists():  # another process of the service has just started it
            if not self.is_hosted() or time.monotonic() > end:
                raise RuntimeUnavailable(
                    f"data on demand did not start; see {self.state / 'host.log'}"
                )
            time.sleep(0.05)
        found: Mapping[str, str] = json.loads(path.read_text(encoding="utf-8"))
        return found

    def see(self) -> None:
        """Note that the sharing machine is there."""
        path = self.state / "seen"
        if time.time() - self.seen_at() > _SEEN_SECONDS:
            path.touch()

    def seen_at(self) -> float:
        """When it was there last, in epoch seconds; 0: never."""
        try:
            return (self.state / "seen").stat().st_mtime
        except FileNotFoundError:
            return 0.0

    def note_trouble(self, number: int) -> None:
        """Note that what was sent could not be kept; `number`: errno. An empty file has room on a full disk, too."""
        with contextlib.suppress(OSError):
            (self.state / f"{_TROUBLE}{number}").touch()

    def trouble(self) -> str:
        """What keeps this machine from keeping what is sent, in the system's words; empty: nothing, for a while."""
        for path in self.state.glob(f"{_TROUBLE}*"):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime < _TROUBLE_SECONDS:
                    return os.strerror(int(path.name[len(_TROUBLE) :]))
        return ""

    def status(self) -> Mapping[str, Any]:
        """What the fetching process has told last: `waiting`, `failure`, `counts`, `ended`."""
        with contextlib.suppress(FileNotFoundError):
            found: Mapping[str, Any] = json.loads((self.state / "status.json").read_text())
            return found
        return {}

    def tell_status(self, status: Mapping[str, Any]) -> None:
        """Replace it."""
        draft = self.state / "status.draft"
        draft.write_text(json.dumps(status))
        draft.replace(self.state / "status.json")

    def described(self, state: CloudRunState) -> CloudRunState:
        """A run's state with what there is to say of its data; it is over once its data is.

        A run that succeeded on bytes that nobody had sent has failed, and so has one of which nobody can say it. Where
        the process that fetches was killed, it is started again: the sharing machine, which does that too, may be away.
        """
        status = self.status()
        if not status.get("ended") and not self.is_hosted():
            try:
                self.revive()
            except (TrainingError, OSError) as error:
                return _failed(state, f"DataHostLost: {error}") if state.over else state
        if state.over and not status.get("ended") and not self.is_abandoned:
            status = self.status()
            if not status.get("ended"):
                return replace(state, over=False, exit_code=None)
        failure = status.get("failure") or {}
        if failure:
            return _failed(state, f"{failure['reason']}: {failure['message']}")
        if not state.over and (trouble := self.trouble()):
            text = (
                f"WaitingForData: the service cannot keep what is sent: {trouble}; make room there"
            )
            return replace(state, message=text)
        if status.get("waiting") and not state.over and state.state != "Paused":
            return replace(state, message=f"WaitingForData: {status['waiting']}")
        return state


def _failed(state: CloudRunState, message: str) -> CloudRunState:
    if state.over and state.state == "Succeeded":
        return replace(state, state="Failed", exit_code=1, message=message)
    return replace(state, message=message)


@lru_cache(maxsize=8)
def _manifest_of(config: Path, mtime_ns: int) -> DataManifest:
    # the time is part of the cache's key: each chunk that a node asks for would read a list of many files
    del mtime_ns
    document = json.loads(config.read_text(encoding="utf-8"))
    return DataManifest.from_json(document["manifest"])


def account_folder(account: str) -> str:
    """What the folder is called that has an account's mailboxes and chunks."""
    return hashlib.sha256(account.encode()).hexdigest()[:16]
