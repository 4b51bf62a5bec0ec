"""The environment that a job names: described before it starts, and had where it runs. Built in, or of a storage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from airflow_training.environments.builtin import (
    BUILTIN,
    builtin_environment,
    builtin_folder,
    have_builtin,
)
from airflow_training.environments.cache import cached_environments
from airflow_training.environments.catalogue import catalogue_here
from airflow_training.environments.interpreters import find_python
from airflow_training.environments.named import NamedEnvironment
from airflow_training.environments.orders import EnvironmentOrder, builtin_source, minor_version
from airflow_training.environments.preparing import PreparedEnvironment
from airflow_training.environments.storage import (
    PackageStore,
    fetch,
    list_all,
    load,
)
from airflow_training.errors import InputError

__all__ = [
    "EnvironmentDescription",
    "Opener",
    "cached_titles",
    "describe_all",
    "find_environment",
    "have_environment",
]

Opener = Callable[[str], PackageStore]
"""Opens the storage at an address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentDescription:
    """An environment that jobs may name."""

    name: str
    version: str
    digest: str
    python: str
    """`3.11.7`."""
    packages: Sequence[str]
    """`name==version`, sorted."""
    image: str
    """Empty: none was named."""
    bytes: int | None = None
    """Of its files; None: it is made of what is installed."""

    @property
    def title(self) -> str:
        return f"{self.name}@{self.version}"


def have_environment(
    order: EnvironmentOrder, open_storage: Opener, cache_dir: Path
) -> PreparedEnvironment:
    """Have the environment of an order in a cache folder: found there, or made once for however many ask.

    Raises InputError for what cannot be had, OSError where its storage is away.
    """
    if order.source is not None:
        return have_builtin(order.source, order.digest, cache_dir)
    (image,) = catalogue_here(find_python(minor_version(order.python))).images
    store = open_storage(order.storage)
    return fetch(store, order.title, image, cache_dir, digest=order.digest)


def find_environment(
    name: str, version: str, *, storage: str, open_storage: Opener
) -> EnvironmentDescription:
    """Describe the environment that a job names; `version` may be empty for the built-in one.

    Raises InputError where there is none, OSError where the storage is away.
    """
    if name == BUILTIN:
        found = _builtin()
        if version not in ("", found.version):
            raise InputError.of(
                code="bad_reference",
                field="version",
                value=version,
                message="the built-in environment has the version of the package that is installed",
                allowed=(found.version,),
                hint="leave the version out: it is the installed one then",
            )
        return found
    if not storage:
        raise InputError.of(
            code="bad_reference",
            field="name",
            value=name,
            message="there is no such environment: no storage of named ones is set",
            allowed=(BUILTIN,),
            hint="set [training] environments to the storage's address",
        )
    store = open_storage(storage)
    if not version:
        raise InputError.of(
            code="missing",
            field="version",
            message=f"says which version of {name} is meant",
            allowed=[each.version for each in list_all(store) if each.name == name],
        )
    return _described(load(store, f"{name}@{version}"))


def describe_all(*, storage: str, open_storage: Opener) -> list[EnvironmentDescription]:
    """Return the built-in environment, where it can be made, and all of the storage; raises OSError where that is away."""
    try:
        found = [_builtin()]
    except InputError:  # who names it is told why
        found = []
    return [*found, *map(_described, list_all(open_storage(storage)) if storage else ())]


def cached_titles(
    descriptions: Sequence[EnvironmentDescription], cache_dir: Path
) -> Mapping[str, bool]:
    """Return which of these a machine has in its cache, by title, and whether they are pinned there."""
    here = {each.digest: each for each in cached_environments(cache_dir)}
    pinned = {each.name: each.pinned for each in here.values() if each.name}
    found = {}
    for each in descriptions:
        if each.name == BUILTIN:
            folder = here.get(builtin_folder(builtin_source(), each.digest))
            if folder is not None:
                found[each.title] = folder.pinned
        elif each.title in pinned:
            found[each.title] = pinned[each.title]
    return found


def _builtin() -> EnvironmentDescription:
    found = builtin_environment(builtin_source())
    return EnvironmentDescription(
        name=BUILTIN,
        version=found.version,
        digest=found.digest,
        python=found.python,
        packages=found.packages,
        image="",
    )


def _described(named: NamedEnvironment) -> EnvironmentDescription:
    return EnvironmentDescription(
        name=named.name,
        version=named.version,
        digest=named.digest,
        python=named.record.python,
        packages=sorted(file.requirement.split()[0] for file in named.files),
        image=named.image,
        bytes=sum(file.size for file in named.files),
    )
