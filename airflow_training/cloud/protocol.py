"""What client and service say to each other, version 1. Data only: no HTTP, no files."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from airflow_training.capture.model import CapturedCommand, Tree
from airflow_training.errors import InputError, Problem

__all__ = [
    "CLIENT_PATH",
    "PREFIX",
    "VERSION",
    "CloudRunState",
    "DataReference",
    "MissingContent",
    "SubmissionAnswer",
    "SubmissionRequest",
    "TreeManifest",
    "key_of",
    "returned_path",
    "returns_early",
    "run_id_of",
    "submission_id_of",
]

VERSION = 1
PREFIX = "/training/cloud/v1"
CLIENT_PATH = "/training/client"
"""Where the client itself can be had."""
RETURNS = ("none", "address", "model", "checkpoints", "model=PATH", "checkpoints=PATH")
_NAMING = ("model=", "checkpoints=")
MOST_FILES = 200_000
MOST_BYTES = 16 << 30
MOST_REPLICAS = 10_000
MOST_HOURS = 100_000
_LIMITS = (("replicas", 1, MOST_REPLICAS), ("files", 0, MOST_FILES), ("size", 0, MOST_BYTES))
_DIGEST = re.compile(r"[0-9a-f]{64}")
_FOLDER = re.compile(r"(?:project|imports)(?:/(?!\.\.?(?:/|$))[^/]+)*")
_ENTRY_FIELDS = ("path", "kind", "mode", "size", "sha256", "link")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataReference:
    """A file or folder that does not travel and that the run may read."""

    path: str
    """In the tree: `project/...`."""
    source: str
    """Absolute, on the machine of whoever submits."""
    size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeManifest:
    """All that stands in a run's folder: sent once for each content, and called by its digest from then on."""

    tree: Tree
    data: Sequence[DataReference] = ()

    def to_bytes(self) -> bytes:
        """Equal manifests give equal bytes."""
        document = {"entries": self.tree.rows, "data": [asdict(each) for each in self.data]}
        return json.dumps(document, separators=(",", ":"), sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> TreeManifest:
        """Raises InputError for what no client writes."""
        try:
            document = json.loads(data)
            rows = [dict(zip(_ENTRY_FIELDS, row, strict=True)) for row in document["entries"]]
            tree = Tree.from_json({"entries": rows})
            roots = [DataReference(**each) for each in document["data"]]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise _mistake("tree.manifest", f"cannot be read: {error}") from None
        if not all(_is_text(text) for each in roots for text in (each.path, each.source)):
            raise _mistake("tree.manifest", "the place of data is no text")
        return cls(tree=tree, data=roots)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionRequest:
    """What is asked for, before anything of the content moves. A few hundred bytes."""

    key: str
    """SHA-256 of the content and a number used once: a retry has the same, another run another."""
    name: str
    tree_digest: str
    manifest: str
    """SHA-256 of `TreeManifest.to_bytes`."""
    files: int
    size: int
    """Bytes of all files together."""
    command: CapturedCommand
    environment: str
    """SHA-256 of the environment's record as it is sent."""
    replicas: int = 1
    framework: str = ""
    resources: Mapping[str, Any] = field(default_factory=dict)
    """Of each replica."""
    returns: str = "model"
    until: str = ""
    hours: float = 0.0
    """How long it may run; 0: nobody says."""
    team: str = ""
    """Who pays, where accounts are kept; empty: the only team of the account."""
    data: str = ""
    """SHA-256 of the list of what stays and is read on demand; empty: nothing."""
    data_wait: float = 1.0
    """Hours for which the run waits for data before it is paused."""

    def to_json(self) -> Mapping[str, Any]:
        values = asdict(self)
        if not self.data:  # as services know it that know no data on demand
            del values["data"], values["data_wait"]
        return {"protocol": VERSION, **values}

    @classmethod
    def from_json(cls, document: Any) -> SubmissionRequest:
        """Raises InputError with everything that is wrong."""
        if not isinstance(document, dict):
            raise _mistake("", "is no JSON object")
        values = dict(document)
        version = values.pop("protocol", None)
        if version != VERSION:
            raise InputError.of(
                code="not_supported",
                field="protocol",
                message="this service speaks another version of the protocol",
                value=version,
                allowed=[VERSION],
                hint="install the version of airflow-training that the service has",
            )
        try:
            values["command"] = CapturedCommand.from_json(values["command"])
            request = cls(**values)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise _mistake("", f"is no submission: {error}") from None
        if problems := list(_mistakes(request)):
            raise InputError(problems=problems)
        return request

    @property
    def content(self) -> str:
        """Digest of what would run, without the number used once."""
        document = {**self.to_json(), "key": ""}
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingContent:
    """A content that the service has not, or has the beginning of."""

    sha256: str
    have: int = 0
    """Bytes that are there: sending goes on from here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionAnswer:
    """What the service says to a request that it lets in; asked again, how it stands."""

    id: str
    run_id: str
    started: bool
    missing: Sequence[MissingContent]
    account: str = ""
    reservation: Mapping[str, Any] | None = None
    estimate: str = ""
    environment: str = ""
    """What it will run in, in words."""
    reads_data: bool = True
    """Whether its runs read data that stays where it was sent from."""

    def to_json(self) -> Mapping[str, Any]:
        rows = [[each.sha256, each.have] for each in self.missing]
        return {**asdict(self), "missing": rows}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> SubmissionAnswer:
        missing = [MissingContent(sha256=sha256, have=have) for sha256, have in document["missing"]]
        return cls(**{**document, "missing": missing})


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudRunState:
    """How a run stands, for whoever follows it."""

    run_id: str
    uid: str
    state: str
    over: bool
    exit_code: int | None
    """Of rank 0 where it failed, else of the first that did; 0 for success; None while it runs."""
    message: str
    instances: Sequence[Mapping[str, Any]] = ()
    """`rank`, `name`, `state`, `progress` of each."""

    def to_json(self) -> Mapping[str, Any]:
        return asdict(self)


def returned_path(returns: str) -> str:
    """The file or folder that is to come back; empty: what known savers write."""
    return returns.partition("=")[2] if returns.startswith(_NAMING) else ""


def returns_early(returns: str) -> bool:
    """Whether models come back while the run goes on, each as soon as it is whole."""
    return returns.partition("=")[0] == "checkpoints"


def key_of(content: str, nonce: str) -> str:
    """The key of a submission: the same for the same content and number."""
    return hashlib.sha256(f"{content}\n{nonce}".encode()).hexdigest()


def submission_id_of(account: str, key: str) -> str:
    """Nobody reaches the submissions of another account, whatever key they give."""
    return hashlib.sha256(f"{account}\n{key}".encode()).hexdigest()[:32]


def run_id_of(name: str, submission_id: str) -> str:
    """The same submission is the same run, however often it is started."""
    return f"{name}-{submission_id[:10]}"


def _mistakes(request: SubmissionRequest) -> Iterator[Problem]:
    values: Mapping[str, Any] = asdict(request)
    for name in ("key", "tree_digest", "manifest", "environment", "data"):
        if name == "data" and values[name] == "":
            continue
        if not _is_text(values[name]) or not _DIGEST.fullmatch(values[name]):
            yield _problem(name, values[name], "is no SHA-256 in hexadecimal")
    if not _is_text(values["name"]) or not _LABEL.fullmatch(values["name"]):
        yield _problem("name", values["name"], "is no label of at most 40 characters")
    for name, least, most in _LIMITS:
        value = values[name]
        if type(value) is not int or not least <= value <= most:  # True is no number here
            yield _problem(name, value, f"has to be a whole number from {least} to {most}")
    for name in ("hours", "data_wait"):
        hours = values[name]
        if type(hours) not in (int, float) or not 0 <= hours <= MOST_HOURS:
            yield _problem(name, hours, f"has to be a number from 0 to {MOST_HOURS}")
    returns = values["returns"]
    if not _is_text(returns) or not (
        returns in RETURNS[:4] or (returns.startswith(_NAMING) and returned_path(returns))
    ):
        yield _problem(
            "returns",
            returns,
            f"{returns!r} is not known: it says what comes back",
            allowed=RETURNS,
        )
    if not isinstance(values["resources"], dict):
        yield _problem("resources", values["resources"], "is no object")
    for name in ("framework", "until", "team"):
        if not _is_text(values[name]):
            yield _problem(name, values[name], "is no text")
    yield from _command_mistakes(values["command"])


def _command_mistakes(command: Mapping[str, Any]) -> Iterator[Problem]:
    if command["kind"] not in ("script", "module"):
        yield _problem("command.kind", command["kind"], "is unknown", allowed=("script", "module"))
    for name in ("entry", "working_dir"):
        if not _is_text(command[name]) or not command[name]:
            yield _problem(f"command.{name}", command[name], "is no text")
    for name in ("args", "import_paths"):
        rows = command[name]
        if not isinstance(rows, (list, tuple)) or not all(map(_is_text, rows)):
            yield _problem(f"command.{name}", rows, "is no list of texts")
            return
    for folder in (command["working_dir"], *command["import_paths"]):
        if _is_text(folder) and not _FOLDER.fullmatch(folder):
            yield _problem("command", folder, "is no folder below project/ or imports/")
    env = command["env"]
    if not isinstance(env, dict) or not all(map(_is_text, [*env, *env.values()])):
        yield _problem("command.env", env, "is no object of texts")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and "\0" not in value


def _problem(field: str, value: Any, message: str, *, allowed: Sequence[str] = ()) -> Problem:
    return Problem(code="not_allowed", field=field, value=value, message=message, allowed=allowed)


def _mistake(field: str, message: str) -> InputError:
    return InputError.of(code="wrong_type", field=field or "submission", message=message)
