"""What tells one Python from another, each with what becomes of it. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal
from urllib.parse import unquote

from packaging.version import InvalidVersion, Version

from airflow_training.environments.framework_builds import (
    accelerator_of,
    find_framework,
    framework_of,
    is_accelerator_label,
)
from airflow_training.environments.markers import holds
from airflow_training.environments.model import InstalledDistribution, PythonEnvironment

__all__ = ["DifferenceOutcome", "EnvironmentMismatch", "check_available", "compare", "is_needed"]

DifferenceOutcome = Literal["told", "installed", "rebuilt", "refused"]
"""Told: the script runs with it. Installed: on top of the image. Rebuilt: in an environment without the
image's packages. Refused: nothing that the target does brings it about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentMismatch:
    """One thing that is not the same on both sides."""

    name: str
    """A distribution, or `python`, `platform`, `libc` ..."""
    kind: str
    """`version`, `missing`, `build`, `origin` ..."""
    local: str
    target: str
    outcome: DifferenceOutcome
    fix: str = ""
    """What to type so that it is gone."""

    def __str__(self) -> str:
        what = f"{self.name}: {self.local or 'none'} here, {self.target or 'none'} on the target"
        return f"{what}: {_OUTCOMES[self.outcome]}"

    def to_json(self) -> Mapping[str, Any]:
        return asdict(self)


_OUTCOMES: Mapping[DifferenceOutcome, str] = {
    "told": "is used as it is",
    "installed": "is installed on top of the image",
    "rebuilt": "is installed in an environment of its own",
    "refused": "cannot be had there",
}

_NOT_OF_THE_SCRIPT = frozenset({"pip", "wheel", "uv", "virtualenv", "airflow-training"})
"""Tools that install; and this package, which a target has in its own version."""


def is_needed(each: InstalledDistribution, target: PythonEnvironment) -> bool:
    """Say whether the script's environment has this on the target's platform."""
    return each.name not in _NOT_OF_THE_SCRIPT and holds(each.marker, target)


def compare(
    local: PythonEnvironment, target: PythonEnvironment, *, leave_out: Collection[str] = ()
) -> list[EnvironmentMismatch]:
    """Return every difference, the interpreter's first; what only the target has is none."""
    found = [*_interpreter(local, target)]
    installed = target.by_name
    for each in local.distributions:
        if each.name in leave_out or each.name in _NOT_OF_THE_SCRIPT:
            continue
        if is_needed(each, target):
            found += _distribution(each, local, target, there=installed.get(each.name))
        elif each.installed:
            found.append(
                EnvironmentMismatch(
                    name=each.name,
                    kind="platform_only",
                    local=each.version,
                    target=f"not needed on {target.system}",
                    outcome="told",
                )
            )
    return found


def _interpreter(
    local: PythonEnvironment, target: PythonEnvironment
) -> Iterator[EnvironmentMismatch]:
    def difference(
        name: str, one: str, other: str, outcome: DifferenceOutcome = "told", fix: str = ""
    ) -> Iterator[EnvironmentMismatch]:
        if one != other:
            yield EnvironmentMismatch(
                name=name, kind=name, local=one, target=other, outcome=outcome, fix=fix
            )

    fix = f"uv venv --python {target.minor}"
    if target.implementation != "cpython":
        fix = f"uv venv --python {target.implementation}{target.minor}"
    if target.free_threaded:
        fix += "t"
    yield from difference(
        "implementation", local.implementation, target.implementation, "refused", fix
    )
    threads = {True: "free-threaded", False: "with the GIL"}
    yield from difference(
        "threading", threads[local.free_threaded], threads[target.free_threaded], "refused", fix
    )
    same_minor = local.minor == target.minor
    yield from difference(
        "python", local.python, target.python, "told" if same_minor else "refused", fix
    )
    yield from difference(
        "platform", f"{local.system} {local.machine}", f"{target.system} {target.machine}"
    )
    if local.system == target.system:
        yield from difference("libc", local.libc, target.libc)
    if local.conda and not target.conda:  # libraries of conda that are no distributions stay behind
        yield from difference("conda", "a conda environment", "none")


def _distribution(
    each: InstalledDistribution,
    local: PythonEnvironment,
    target: PythonEnvironment,
    *,
    there: InstalledDistribution | None,
) -> Iterator[EnvironmentMismatch]:
    framework = framework_of(each.name)
    if there is None and framework:
        there = find_framework(framework, target)
    if there is not None and _source(each) == _source(there) and each.version == there.version:
        if framework:
            yield from _build(each, local, there, target)
        return
    found = check_available(each, there)
    if found:
        yield found
        return
    if there is None:
        yield EnvironmentMismatch(
            name=each.name, kind="missing", local=each.version, target="",
            outcome="rebuilt" if framework else "installed",
            fix=f"add {each.name}=={each.version} to the image",
        )  # fmt: skip
    elif _source(each) != _source(there) and "git" in (each.origin, there.origin):
        yield EnvironmentMismatch(
            name=each.name, kind="origin", local=_source(each), target=_source(there),
            outcome="rebuilt" if framework else "installed",
            fix=f"pip install {each.name}=={there.version}",
        )  # fmt: skip
    elif framework:
        if each.public_version != there.public_version:
            yield _version(each, there, "rebuilt")
        else:
            yield from _build(each, local, there, target)
    elif _is_older(there.version, each.version):
        yield _version(each, there, "installed")
    elif each.version != there.version:
        yield _version(each, there, "told")


def check_available(
    each: InstalledDistribution, there: InstalledDistribution | None
) -> EnvironmentMismatch | None:
    """Return the difference of what no index has: it lies in a folder, or somebody built it. `there` is the image's."""
    if each.origin in ("folder", "editable") or each.url.startswith(("file:", "/")):
        return _of_a_folder(each, there)
    if is_index_version(each) or each.origin not in ("index", "conda"):
        return None
    return EnvironmentMismatch(
        name=each.name,
        kind="own_build",
        local=each.version,
        target=there.version if there else "",
        outcome="refused",
        fix=f"pip install {each.name}=={each.public_version}",
    )


def _version(
    each: InstalledDistribution, there: InstalledDistribution, outcome: DifferenceOutcome
) -> EnvironmentMismatch:
    return EnvironmentMismatch(
        name=each.name,
        kind="version",
        local=each.version,
        target=there.version,
        outcome=outcome,
        fix=f"pip install {there.name}=={there.version}",
    )


def _build(
    each: InstalledDistribution,
    local: PythonEnvironment,
    there: InstalledDistribution,
    target: PythonEnvironment,
) -> Iterator[EnvironmentMismatch]:
    """Builds of one version for different accelerators: from a CPU to any is an ordinary move, back it is not."""
    one, other = accelerator_of(each, local), accelerator_of(there, target)
    if one == other and (each.name, each.version) == (there.name, there.version):
        return
    kinds = [(text or "cpu").split()[0] for text in (one, other)]
    lost = kinds[0] != "cpu" and kinds[0] != kinds[1]

    def words(found: InstalledDistribution, accelerator: str) -> str:
        name = found.name if each.name != there.name else ""
        build = f"({accelerator})" if accelerator and accelerator != found.label else ""
        return " ".join(part for part in (name, found.version, build) if part)

    yield EnvironmentMismatch(
        name=each.name,
        kind="build",
        local=words(each, one),
        target=words(there, other),
        outcome="rebuilt" if lost else "told",
        fix=f"pip install {there.name}=={there.version}" if lost else "",
    )


def _of_a_folder(
    each: InstalledDistribution, there: InstalledDistribution | None
) -> EnvironmentMismatch:
    """No index has it: code of an editable install travels with the project, of another folder nothing does."""
    path = unquote(each.url.removeprefix("file://").partition("#")[0]) or each.name
    editable = each.origin == "editable"
    fix = f"pip install -e {shlex.quote(path)}"
    if "://" in path or path.endswith((".whl", ".gz", ".zip", ".bz2", ".xz")):
        fix = f"pip install --force-reinstall {each.name}=={each.version}"
    return EnvironmentMismatch(
        name=each.name,
        kind="editable" if editable else "folder",
        local=f"{each.version} of {path}",
        target="its code travels with the project" if editable else there.version if there else "",
        outcome="told" if editable else "refused",
        fix="" if editable else fix,
    )


def _source(each: InstalledDistribution) -> str:
    """What makes two distributions of one version the same: for git its commit."""
    return f"{each.url}@{each.commit}" if each.origin == "git" else "an index"


def is_index_version(each: InstalledDistribution) -> bool:
    """Say whether an index can have this version: a local label that names no accelerator is somebody's own build."""
    return not each.label or is_accelerator_label(each.label)


def _is_older(version: str, than: str) -> bool:
    try:
        return Version(version.partition("+")[0]) < Version(than.partition("+")[0])
    except InvalidVersion:
        return version != than
