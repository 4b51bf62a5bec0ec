"""A named environment: a version of it never changes, and its digest says all that is in it. Data only.

```yaml
apiVersion: airflow-training/v1
kind: Environment
metadata: {name: torch-cpu, version: "1"}
spec: {record: ..., files: [{name: torch-2.9.1-cp311-cp311-linux_x86_64.whl, sha256: ..., size: 183000000}]}
```
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from airflow_training.environments.model import PythonEnvironment
from airflow_training.errors import InputError

__all__ = ["NamedEnvironment", "PackageFile", "is_package_key", "split_name"]

_API_VERSION = "airflow-training/v1"
_KIND = "Environment"
_PART = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class PackageFile:
    """A wheel of a distribution."""

    name: str
    sha256: str
    size: int
    """In bytes."""

    @property
    def key(self) -> str:
        """Where a store keeps it; wheels of equal bytes are kept once."""
        return f"files/{self.sha256}/{self.name}"

    @property
    def requirement(self) -> str:
        """The line of a requirements file that installs this file and no other."""
        name, version, *_ = parse_wheel_filename(self.name)
        return f"{name}=={version} --hash=sha256:{self.sha256}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedEnvironment:
    name: str
    version: str
    record: PythonEnvironment
    files: Sequence[PackageFile]
    """Sorted."""
    image: str = ""
    """A container image that has all of it; empty: none was named."""

    @property
    def title(self) -> str:
        return f"{self.name}@{self.version}"

    @property
    def key(self) -> str:
        return f"{self.name}/{self.version}.json"

    @property
    def digest(self) -> str:
        """SHA-256 of its content; the name is not in it."""
        return hashlib.sha256(json.dumps(self._spec(), sort_keys=True).encode()).hexdigest()

    def _spec(self) -> Mapping[str, Any]:
        files = [asdict(each) for each in sorted(self.files)]
        image = {"image": self.image} if self.image else {}
        return {"record": self.record.to_json(), "files": files, **image}

    def to_json(self) -> Mapping[str, Any]:
        metadata = {"name": self.name, "version": self.version, "digest": self.digest}
        spec = self._spec()
        return {"apiVersion": _API_VERSION, "kind": _KIND, "metadata": metadata, "spec": spec}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> NamedEnvironment:
        """Raises InputError for what is no such document, or is not what its digest says."""
        if not isinstance(document, Mapping):
            raise _broken(f"is no document of kind {_KIND}")
        if (document.get("apiVersion"), document.get("kind")) != (_API_VERSION, _KIND):
            raise _broken(f"is no document of kind {_KIND}")
        metadata: Any = document.get("metadata")
        try:
            spec = document["spec"]
            found = cls(
                name=metadata["name"],
                version=metadata["version"],
                record=PythonEnvironment.from_json(spec["record"]),
                files=[_file(row) for row in spec["files"]],
                image=str(spec.get("image") or ""),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise _broken(f"lacks what a document of kind {_KIND} has: {error}") from error
        split_name(found.title)
        if found.digest != metadata.get("digest"):
            raise _broken("is not what its digest says: it was changed after it was added")
        return found


def is_package_key(key: str) -> bool:
    """Say whether a key of a store is one that `PackageFile.key` gives; a folder `files` can be another's too."""
    return re.fullmatch(r"files/[0-9a-f]{64}/[^/]+\.whl", key) is not None


def split_name(text: str) -> tuple[str, str]:
    """Return name and version of `NAME@VERSION`; raises InputError for other texts."""
    name, _, version = text.partition("@")
    if not _PART.fullmatch(name) or not _PART.fullmatch(version):
        raise InputError.of(
            code="bad_value",
            field="NAME@VERSION",
            message="is a name and a version of small letters, digits, '.', '_' and '-'",
            value=text,
            hint="for example torch-cpu@1",
        )
    return name, version


def _file(row: Mapping[str, Any]) -> PackageFile:
    file = PackageFile(**row)
    if not re.fullmatch(r"[0-9a-f]{64}", file.sha256):
        raise ValueError(f"{file.sha256!r:.80} is no digest")
    if type(file.size) is not int or file.size < 0:
        raise ValueError(f"{file.size!r:.80} is no size")
    if "/" in file.name:
        raise ValueError(f"{file.name!r:.80} is no name of a file")
    try:
        parse_wheel_filename(file.name)
    except InvalidWheelFilename as error:
        raise ValueError(str(error)) from error
    return file


def _broken(message: str) -> InputError:
    return InputError.of(
        code="bad_value",
        field="environment",
        message=message,
        hint="add it again under another version",
    )
