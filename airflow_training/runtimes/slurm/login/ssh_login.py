"""Where a cluster is logged in to, and as whom: from what a job names as its connection."""

from __future__ import annotations

import base64
import binascii
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import ValidationError

from airflow_training.errors import InputError
from airflow_training.runtimes.slurm.options import SlurmOptions

__all__ = ["SshLogin"]

FOLDER = "~/.airflow-training/slurm"
"""Of the login's home, where nobody names another: homes are shared with the nodes on most clusters."""
_FIELD = "spec.runtime.connection"
_QUERY = ("python", "key", "known_hosts")
_WORD = re.compile(r"[A-Za-z0-9_][\w.+-]*")
_PROGRAM = re.compile(r"[\w./~+][\w./~+-]*", re.ASCII)
"""What a shell takes as it is."""
_FOLDER = re.compile(r"[/~][^\x00-\x1f\x7f]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class SshLogin:
    """A login by key. What is not said is as the user's own `ssh` has it: `~/.ssh/config`, agent, known hosts."""

    host: str
    user: str = ""
    port: int | None = None
    folder: str = FOLDER
    """Seen by login node and nodes at the same path; all of the runs is in there."""
    python: str = "python3"
    """There, 3.10 or newer: it runs what answers us, and agents where the job names no other."""
    key_file: str = ""
    private_key: str = field(default="", repr=False)
    host_key: str = ""
    """Type and key, as a line of `known_hosts` has them; "": known already."""
    known_hosts: str = ""
    """File of known hosts, instead of the user's."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of jobs that name no others, as `options.SlurmOptions` has them."""

    def __post_init__(self) -> None:
        if not _FOLDER.fullmatch(self.folder):
            raise _problem(
                self.folder,
                "is no folder of the cluster: it begins with / or ~, and has no line breaks",
                hint="as /shared/training, or ~/training in the home there",
            )
        if not _PROGRAM.fullmatch(self.python):
            raise _problem(
                self.python, "is no path of a Python", hint="as /shared/env/bin/python3.11"
            )

    def __str__(self) -> str:
        at = f"{self.user}@{self.host}" if self.user else self.host
        return at if self.port is None else f"{at}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> SshLogin:
        """Read `[user@]host` or `ssh://[user@]host[:port][/folder][?python=...&key=...&known_hosts=...]`.

        The folder is absolute, or begins with `/~/`. Raises InputError.
        """
        if "://" not in text:
            user, at, host = text.rpartition("@")
            _check_words(text, host, user if at else None)
            return cls(host=host, user=user)
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError as error:
            raise _problem(text, str(error)) from None
        if parts.scheme != "ssh":
            raise _problem(text, "only ssh:// is a way to a login node")
        if parts.password is not None:  # not shown: neither what was given nor the text around it
            raise _problem("", "a password is in it; logins are by key only")
        query = dict(parse_qsl(parts.query))
        unknown = ", ".join(sorted(query.keys() - set(_QUERY)))
        if unknown:
            # the text is not shown: it may have a password
            message = f"{unknown} is nothing that can be set here"
            raise _problem(unknown, message, allowed=_QUERY)
        host, user = parts.hostname or "", unquote(parts.username or "")
        _check_words(text, host, user or None)
        folder = unquote(parts.path)
        folder = folder[1:] if folder.startswith("/~") else folder
        return cls(
            host=host,
            user=user,
            port=port,
            folder=folder if folder.strip("/") else FOLDER,
            python=query.get("python", "python3"),
            key_file=query.get("key", ""),
            known_hosts=query.get("known_hosts", ""),
        )

    @classmethod
    def from_airflow(
        cls, name: str, *, host: str, user: str, port: int | None, extra: Mapping[str, Any]
    ) -> SshLogin:
        """Return the login of an Airflow connection of type `ssh`, with the extras of Airflow's SSH provider.

        Of our own are `folder`, `python` and `options`. Its password is not looked at. Raises InputError.
        """
        if str(extra.get("no_host_key_check", "")).lower() == "true":
            raise _problem(
                name,
                "no_host_key_check is set: the key of the host is always checked",
                hint="put the host's key into the extra host_key",
            )
        if extra.get("private_key_passphrase"):
            raise _problem(
                name,
                "its key has a passphrase, which nobody is there to type",
                hint="use a key without one, or ssh-agent",
            )
        _check_words(name, host, user or None)
        return cls(
            host=host,
            user=user,
            port=port,
            folder=str(extra.get("folder") or FOLDER),
            python=str(extra.get("python") or "python3"),
            key_file=str(extra.get("key_file") or ""),
            private_key=str(extra.get("private_key") or ""),
            host_key=_host_key(name, str(extra.get("host_key") or "")),
            options=_options(name, extra.get("options") or {}),
        )


def _check_words(text: str, host: str, user: str | None) -> None:
    # what ssh would take for an option is no name
    is_address = re.fullmatch(r"[0-9A-Fa-f:.]+", host) is not None
    if not (is_address or _WORD.fullmatch(host)) or not (user is None or _WORD.fullmatch(user)):
        raise _problem(
            text,
            "names no login node",
            hint="write [user@]host, or ssh://[user@]host[:port][/shared/folder]",
        )


def _options(name: str, options: Any) -> Mapping[str, Any]:
    try:
        SlurmOptions.model_validate(options)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, ("options", *wrong["loc"])))
        raise _problem(name, f"its extra {where}: {wrong['msg']}") from None
    for word in ("containerRuntime", "binds"):  # an image is checked with its job
        if word in options:
            raise _problem(name, f"its extra options.{word}: only a job can say it")
    return dict(options)


def _host_key(name: str, text: str) -> str:
    """Return type and key: of a key alone, as the provider takes it too, or of a line as `ssh-keyscan` prints it."""
    if not text.strip():
        return ""
    for word in text.split():
        kind = _kind_of_key(word)
        if kind:
            return f"{kind} {word}"
    raise _problem(name, "its host_key is no public key", hint="as ssh-keyscan prints it")


def _kind_of_key(word: str) -> str:
    """Return the type with which a public key begins; "" for any other word."""
    try:
        raw = base64.b64decode(word, validate=True)
        (length,) = struct.unpack_from(">I", raw)
        kind = raw[4 : 4 + length].decode("ascii")
    except (binascii.Error, struct.error, UnicodeDecodeError, ValueError):
        return ""
    return kind if len(kind) == length and re.fullmatch(r"[a-z0-9@.-]{4,64}", kind) else ""


def _problem(
    value: str, message: str, *, allowed: tuple[str, ...] = (), hint: str = ""
) -> InputError:
    return InputError.of(
        code="bad_reference", field=_FIELD, value=value, message=message, allowed=allowed, hint=hint
    )
