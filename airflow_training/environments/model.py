"""What is known of a Python environment. Data only; as JSON it travels."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from airflow_training.errors import InputError

__all__ = ["InstalledDistribution", "PackageOrigin", "PythonEnvironment"]

PackageOrigin = Literal["index", "git", "archive", "folder", "editable", "conda"]
"""Where a distribution was installed from; of a `folder` or an `editable` no index has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledDistribution:
    """One distribution, as its metadata and a lock file say."""

    name: str
    """Normalised: lower case, with `-`."""
    version: str
    origin: PackageOrigin = "index"
    url: str = ""
    """Of `git`, `archive`, `folder` and `editable`; without user and password."""
    commit: str = ""
    """The full commit of `git`."""
    build: str = ""
    """What the framework says it was built for: `cuda 12.6`, `hip 6.2`; empty for CPUs and where it says nothing."""
    marker: str = ""
    """Where it is needed (PEP 508), for what is not needed on every platform."""
    hashes: Sequence[str] = ()
    """`sha256:...` of each file that a lock allows."""
    installed: bool = True
    """False for what a lock names for other platforms only."""

    @property
    def public_version(self) -> str:
        """Of `2.9.1+cu126` what stands before the local label (PEP 440)."""
        return self.version.partition("+")[0]

    @property
    def label(self) -> str:
        """Of `2.9.1+cu126` the local label."""
        return self.version.partition("+")[2]

    def to_json(self) -> Mapping[str, Any]:
        rows = ((each.name, getattr(self, each.name), each.default) for each in fields(self))
        return {name: value for name, value, default in rows if value != default}


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonEnvironment:
    """A Python with all that is installed for it."""

    python: str
    """`3.11.7`."""
    implementation: str = "cpython"
    free_threaded: bool = False
    system: str = "linux"
    """As `sys.platform` names it."""
    machine: str = "x86_64"
    platform: str = ""
    """As `sysconfig.get_platform()` names it."""
    libc: str = ""
    """`glibc 2.36`, `musl`; empty where there is none."""
    conda: bool = False
    lock: str = ""
    """The lock file that the hashes are from, `uv.lock` ...; empty where there is none."""
    lock_deviations: Sequence[str] = ()
    """What is installed in another version than the lock names: `numpy 2.0.1, uv.lock has 2.1.0`."""
    distributions: Sequence[InstalledDistribution] = ()
    """Sorted by name."""

    @property
    def minor(self) -> str:
        """`3.11` of `3.11.7`."""
        return ".".join(self.python.split(".")[:2])

    @property
    def by_name(self) -> Mapping[str, InstalledDistribution]:
        """What is installed, by its name: made anew each time."""
        return {each.name: each for each in self.distributions if each.installed}

    @property
    def digest(self) -> str:
        """SHA-256 over all that can change what a script does; where things lie is not in it."""
        document = dict(self.to_json())
        document["distributions"] = [
            {**row, "url": ""} if row.get("origin") in ("folder", "editable") else row
            for row in document["distributions"]
        ]
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()

    def to_json(self) -> Mapping[str, Any]:
        document: dict[str, Any] = {
            each.name: getattr(self, each.name)
            for each in fields(self)
            if each.name != "distributions"
        }
        document["distributions"] = [each.to_json() for each in self.distributions]
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> PythonEnvironment:
        """Raises InputError for what is no record; lines of a requirements file are made of these texts."""
        try:
            document = dict(document)
            distributions = [
                InstalledDistribution(**{**row, "hashes": tuple(row.get("hashes", ()))})
                for row in document["distributions"]
            ]
            for each in distributions:
                _check(each)
            deviations = tuple(document.get("lock_deviations", ()))
            more = {"lock_deviations": deviations, "distributions": distributions}
            found = cls(**{**document, **more})
            _check_interpreter(found)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError.of(
                code="bad_value",
                field="environment",
                message=f"is no record of a Python: {error}",
                hint="make it with `airflow-training environments record --output json`",
            ) from error
        return found


_PYTHON = re.compile(r"\d+\.\d+(\.\w+)*")
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_VERSION = re.compile(r"[A-Za-z0-9.+!_-]+")
_HASH = re.compile(r"sha256:[0-9a-f]{64}")
_URL = re.compile(r"(https?|ssh|git|file)://[^\s\\${}\x00-\x20\x7f-\U0010ffff]+")
"""Without what installers replace in a requirements file: `${VARIABLE}`, and `\\` at the end of a line."""
_COMMIT = re.compile(r"[0-9a-f]*")


def _check_interpreter(found: PythonEnvironment) -> None:
    """Raise ValueError for values of other types, and for what is no version of Python."""
    _check_types(found)
    if not _PYTHON.fullmatch(found.python):
        raise ValueError(f"{found.python!r:.80} is no version of Python")


def _check_types(found: InstalledDistribution | PythonEnvironment) -> None:
    """Raise ValueError for a value of another type than its field, such as `python: 3.11` of YAML, a number."""
    for each in fields(found):
        value = getattr(found, each.name)
        wanted = bool if isinstance(each.default, bool) else tuple if each.default == () else str
        if not isinstance(value, wanted) and not (wanted is tuple and isinstance(value, list)):
            raise ValueError(f"{each.name} is {value!r:.80}, which is no {_TYPES[wanted]}")


_TYPES = {bool: "boolean", str: "text", tuple: "list"}


def _check(each: InstalledDistribution) -> None:
    """Raise ValueError for texts that would be more than a name, a version and so on in a requirements file."""
    _check_types(each)
    sound = (
        _NAME.fullmatch(each.name)
        and _VERSION.fullmatch(each.version)
        and _COMMIT.fullmatch(each.commit)
        and each.origin in get_args(PackageOrigin)
        and (each.origin not in ("git", "archive") or _URL.fullmatch(each.url))
        and (each.origin != "git" or each.commit)
        and all(_HASH.fullmatch(digest) for digest in each.hashes)
    )
    if not sound:
        raise ValueError(f"{each.name!r:.80} is no distribution with a version and hashes")
