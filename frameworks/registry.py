"""Where frameworks come from: built in, the user's folder, other packages, an address. Lazy, cached.

Addresses are `remote`'s business; this module reads local files and answers by name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from airflow_training.documents.base import is_label
from airflow_training.documents.parsing import TrainingJob
from airflow_training.documents.spelling import did_you_mean
from airflow_training.errors import InputError, Problem
from airflow_training.frameworks.model import Framework
from airflow_training.settings import Settings, frameworks_folder, load_settings

__all__ = [
    "ENTRY_POINT_GROUP",
    "FrameworkListing",
    "LoadedFramework",
    "builtin_names",
    "check_file",
    "find",
    "list_frameworks",
    "load_for",
    "load_reference",
    "parse_framework",
]

ENTRY_POINT_GROUP = "airflow_training.frameworks"
"""An entry point is named like its framework and leads to the path of its YAML file (text or
Path), to a function that returns one, or to a package that holds `<name>.yaml`."""

Origin = Literal["built in", "folder", "package", "address"]
_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedFramework:
    """A framework, and where it was found."""

    framework: Framework
    origin: Origin
    location: str
    digest: str
    """`sha256:...` of the text."""

    @property
    def may_hook(self) -> bool:
        """Return whether a Python hook of it may run: only installed packages bring code."""
        return self.origin in ("built in", "package")


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkListing:
    """One line of `frameworks list`."""

    name: str
    origin: Origin
    location: str
    description: str = ""
    problems: Sequence[Problem] = ()


def find(name: str, *, settings: Settings | None = None) -> LoadedFramework:
    """Return the framework called `name`; raises InputError (`unknown_framework`, or its mistakes).

    The user's folder goes before what is built in, and that before other packages.
    """
    folder = frameworks_folder() if settings is None else settings.frameworks_folder
    if not is_label(name):  # as every framework is called; a file system is not asked for the rest
        raise InputError(problems=(_unknown(name, folder),))
    for suffix in (".yaml", ".yml"):
        own = folder / f"{name}{suffix}"
        if own.is_file():
            return _from_file(own, origin="folder", expected=name)
    if name in builtin_names():
        return _builtin(name)
    path = _package_path(name)
    if path is not None:
        return _from_file(path, origin="package", expected=name)
    raise InputError(problems=(_unknown(name, folder),))


def load_for(
    job: TrainingJob, *, base_dir: str, fetch: bool, settings: Settings | None = None
) -> LoadedFramework:
    """Return the framework that a job names, by name or by address; raises InputError."""
    wanted = job.spec.framework
    if isinstance(wanted, str) or wanted.ref is None:
        name = wanted if isinstance(wanted, str) else wanted.name
        loaded = find(name, settings=settings)
        if not isinstance(wanted, str) and wanted.digest not in (None, loaded.digest):
            raise InputError(problems=(_other_digest(wanted.digest, loaded),))
        return loaded
    return load_reference(
        name=wanted.name,
        ref=wanted.ref,
        digest=wanted.digest,
        base_dir=base_dir,
        fetch=fetch,
        settings=settings,
    )


def load_reference(
    *,
    name: str,
    ref: str,
    digest: str | None,
    base_dir: str,
    fetch: bool,
    settings: Settings | None = None,
) -> LoadedFramework:
    """Return the framework at an address, checked against its digest.

    `ref`: a path relative to the job's folder `base_dir` ("" where there is none: a form), or an
    address whose text is taken from the cache, and fetched only where `fetch`. Raises InputError
    (`bad_reference`, `digest_mismatch`, or the document's own mistakes).
    """
    settings = settings or load_settings()
    from airflow_training.frameworks import remote

    if remote.is_remote(ref):
        text = remote.text_of(ref, digest=digest, fetch=fetch, settings=settings)
    else:
        text = remote.local_text(ref, digest=digest, base_dir=base_dir)
    framework, problems = parse_framework(text, path=ref)
    if framework is None or problems:
        raise InputError(problems=_inside_reference(ref, problems), path="")
    if framework.name != name:
        raise InputError.of(
            code="bad_reference",
            field="spec.framework.name",
            value=name,
            message=f"the framework at {ref} is called '{framework.name}'",
            allowed=[framework.name],
        )
    if framework.spec.hook:
        raise InputError.of(
            code="bad_reference",
            field="spec.framework.ref",
            value=ref,
            message="a hook comes only from an installed package, never from an address",
        )
    return LoadedFramework(
        framework=framework, origin="address", location=ref, digest=_digest(text)
    )


def parse_framework(text: str, *, path: str = "") -> tuple[Framework | None, Sequence[Problem]]:
    """Return the only framework of a YAML or JSON text and every mistake in it."""
    from airflow_training.frameworks.checks import check_document

    return check_document(text, path=path)


def _shape_of(text: str) -> Framework:
    """Return a framework of which only the shape is checked, which is fast."""
    from airflow_training.documents.loading import load_documents

    data = load_documents(text)[0].data
    framework: Framework = Framework.__pydantic_validator__.validate_python(data)
    return framework


def check_file(path: str | Path) -> Sequence[Problem]:
    """Return every mistake of a framework file; empty when it can be used."""
    try:
        text = _read(Path(path))
    except InputError as error:
        return error.problems
    return parse_framework(text, path=str(path))[1]


@lru_cache(maxsize=1)
def builtin_names() -> frozenset[str]:
    """Return the names of the frameworks that come with this package."""
    return frozenset(path.stem for path in _HERE.glob("*.yaml"))


def list_frameworks(*, settings: Settings | None = None) -> Sequence[FrameworkListing]:
    """Return all frameworks that `find` knows, sorted by name, broken ones with their mistakes."""
    settings = settings or load_settings()
    places: dict[str, tuple[Path | None, Origin]] = {}
    for name in _entry_points():
        places[name] = (_package_path(name), "package")
    for name in builtin_names():
        places[name] = (_HERE / f"{name}.yaml", "built in")
    for path in _folder_files(settings.frameworks_folder):
        places[path.stem] = (path, "folder")
    return [_listed(name, path, origin) for name, (path, origin) in sorted(places.items())]


def _listed(name: str, path: Path | None, origin: Origin) -> FrameworkListing:
    if path is None:
        broken = Problem(code="bad_reference", field="", message="the package names no file")
        return FrameworkListing(name=name, origin=origin, location="", problems=(broken,))
    try:
        loaded = _from_file(path, origin=origin, expected=name)
    except InputError as error:
        return FrameworkListing(
            name=name, origin=origin, location=str(path), problems=error.problems
        )
    description = loaded.framework.spec.description
    return FrameworkListing(name=name, origin=origin, location=str(path), description=description)


def _folder_files(folder: Path) -> Sequence[Path]:
    if not folder.is_dir():
        return ()
    return sorted(path for path in folder.iterdir() if path.suffix in (".yaml", ".yml"))


def _unknown(name: str, folder: Path) -> Problem:
    known = sorted(
        {*builtin_names(), *(path.stem for path in _folder_files(folder)), *_entry_points()}
    )
    return Problem(
        code="unknown_framework",
        field="spec.framework",
        value=name,
        message=f"no framework is called '{name}'",
        allowed=known,
        hint=did_you_mean(name, known) or f"or put {name}.yaml into {folder}",
    )


def _other_digest(wanted: str | None, loaded: LoadedFramework) -> Problem:
    return Problem(
        code="digest_mismatch",
        field="spec.framework.digest",
        value=wanted,
        message=f"the framework at {loaded.location} has the digest {loaded.digest}",
    )


def _inside_reference(ref: str, problems: Sequence[Problem]) -> Sequence[Problem]:
    """Return the mistakes of a referenced document as ones of the job that names it."""
    return [
        Problem(
            code="bad_reference",
            field="spec.framework.ref",
            value=ref,
            message=f"the framework there is not valid: {problem.field}: {problem.message}",
            hint=problem.hint,
            allowed=problem.allowed,
        )
        for problem in problems
    ]


@lru_cache(maxsize=64)
def _builtin(name: str) -> LoadedFramework:
    """Return a framework of this package; its file changes with the package only."""
    text = _read(_HERE / f"{name}.yaml")
    # the tests check these in full; here it would only slow down every DAG parse
    return LoadedFramework(
        framework=_shape_of(text),
        origin="built in",
        location=str(_HERE / f"{name}.yaml"),
        digest=_digest(text),
    )


def _from_file(path: Path, *, origin: Origin, expected: str) -> LoadedFramework:
    """Return a framework file's content; read again only when the file changed."""
    try:
        stat = path.stat()
    except OSError as error:
        raise InputError(problems=(_unreadable(path, error),)) from error
    return _cached(path, stat.st_mtime_ns, stat.st_size, origin, expected)


@lru_cache(maxsize=256)
def _cached(path: Path, mtime_ns: int, size: int, origin: Origin, expected: str) -> LoadedFramework:
    del mtime_ns, size  # part of the key: an edited file is read again
    text = _read(path)
    framework, problems = parse_framework(text, path=str(path))
    if framework is None or problems:
        raise InputError(problems=problems, path=str(path))
    if framework.name != expected:
        raise InputError.of(
            code="bad_name",
            field="metadata.name",
            value=framework.name,
            message=f"the file is found as '{expected}', so the framework must be called that",
            allowed=[expected],
            path=str(path),
        )
    if framework.spec.hook and origin == "folder":
        raise InputError.of(
            code="not_allowed",
            field="spec.hook",
            value=framework.spec.hook,
            message="a hook comes only from an installed package",
            path=str(path),
        )
    return LoadedFramework(
        framework=framework, origin=origin, location=str(path), digest=_digest(text)
    )


def _read(path: Path) -> str:
    from airflow_training.documents.loading import read_file

    return read_file(path)


def _unreadable(path: Path, error: OSError) -> Problem:
    reason = error.strerror or "cannot be read"
    return Problem(code="bad_reference", field="", value=str(path), message=f"{path}: {reason}")


def _digest(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


@lru_cache(maxsize=1)
def _entry_points() -> Mapping[str, Any]:
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}


def _package_path(name: str) -> Path | None:
    """Return the file that another package registered under `name`, or None."""
    point = _entry_points().get(name)
    if point is None:
        return None
    found = point.load()
    if hasattr(found, "__path__"):  # a package: its own folder holds the file
        return Path(next(iter(found.__path__))) / f"{name}.yaml"
    if callable(found) and not isinstance(found, Path):
        found = found()
    return Path(found)
