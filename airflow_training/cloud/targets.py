"""Where runs go: targets by name with their addresses and keys, in a file that only this user reads."""

from __future__ import annotations

import ipaddress
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from airflow_training.documents.spelling import did_you_mean
from airflow_training.errors import InputError
from airflow_training.settings import airflow_home, load_settings

__all__ = [
    "HERE_NAME",
    "Target",
    "check_target",
    "cloud_folder",
    "find_target",
    "forget_target",
    "is_unencrypted",
    "list_targets",
    "save_target",
    "service_folders",
]

HERE_NAME = "here"
KEY_VARIABLE = "AIRFLOW_TRAINING_KEY"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
"""A folder may be called so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    name: str
    url: str = ""
    """Empty: this machine."""
    key: str = ""
    settings: Mapping[str, Any] | None = None
    """Of a target without a service: `TargetSettings` as JSON; a service of this machine submits to it."""

    @property
    def is_direct(self) -> bool:
        """Whether this machine drives the runs itself."""
        return self.settings is not None


def cloud_folder() -> Path:
    """What client and service of this machine keep: `$AIRFLOW_HOME/training-cloud`."""
    return airflow_home() / "training-cloud"


def service_folders() -> Sequence[Path]:
    """What each service of this machine keeps: of this machine, of others, of namespaces, of Airflow."""
    folder = cloud_folder()
    found = [folder / "service", folder / "served", *sorted((folder / "direct").glob("*"))]
    found.append(load_settings().cloud_folder)
    return [each for each in dict.fromkeys(found) if (each / "submissions").is_dir()]


def list_targets() -> Sequence[Target]:
    """All targets, this machine first."""
    return [Target(name=HERE_NAME), *_read().values()]


def find_target(name: str = "") -> Target:
    """The target called so; without a name the one of the newest login, else this machine.

    `AIRFLOW_TRAINING_KEY` goes before the key of the login. Raises InputError.
    """
    known = _read()
    chosen = name or [HERE_NAME, *known][-1]
    if chosen == HERE_NAME:
        return Target(name=HERE_NAME)
    if chosen not in known:
        raise InputError.of(
            code="not_found",
            field="--target",
            message=f"no target is called {chosen!r}",
            value=chosen,
            allowed=[HERE_NAME, *known],
            hint=did_you_mean(chosen, [HERE_NAME, *known])
            or "airflow-training cloud login NAME URL --key KEY",
        )
    found = known[chosen]
    key = os.environ.get(KEY_VARIABLE) or found.key
    return replace(found, key=key)


def check_target(target: Target) -> None:
    """Raise InputError for what is no name or address."""
    parts = urlsplit(target.url)
    if not target.is_direct and (parts.scheme not in ("http", "https") or not parts.hostname):
        raise InputError.of(
            code="not_allowed",
            field="URL",
            message=f"{target.url!r} is no address of a service",
            value=target.url,
            allowed=["http://...", "https://..."],
        )
    if not _NAME.fullmatch(target.name):
        raise InputError.of(
            code="bad_name",
            field="NAME",
            message="is made of letters, digits, '.', '_' and '-'",
            value=target.name,
        )
    if target.name == HERE_NAME:
        raise InputError.of(
            code="conflict", field="NAME", message="is this machine's own name", value=target.name
        )


def is_unencrypted(url: str) -> bool:
    """Whether keys and programs go to an address as plain text, through a network."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme != "http" or host == "localhost" or host.endswith(".localhost"):
        return False
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return True


def save_target(target: Target) -> Target | None:
    """Keep a target, the newest last; returns what was called so before."""
    known = {**_read()}
    before = known.pop(target.name, None)
    known[target.name] = target
    _write(known)
    return before


def forget_target(name: str, before: Target | None) -> None:
    """Take back what `save_target` did, which had returned `before`."""
    known = {**_read()}
    known.pop(name, None)
    if before is not None:
        known[name] = before
    _write(known)


def _write(known: Mapping[str, Target]) -> None:
    path = _path()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_suffix(".draft")
    with os.fdopen(os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as file:
        json.dump([asdict(each) for each in known.values()], file)
    draft.replace(path)


def _path() -> Path:
    return cloud_folder() / "targets.json"


def _read() -> Mapping[str, Target]:
    try:
        rows = json.loads(_path().read_text())
        return {row["name"]: Target(**row) for row in rows}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError) as error:
        raise InputError.of(
            code="wrong_type",
            field=str(_path()),
            message=f"cannot be read: {error}",
            hint="remove it and log in again",
        ) from None
