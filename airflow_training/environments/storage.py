"""Named environments in object storage: added once, listed, fetched with every byte checked, removed."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from airflow_training.environments.addresses import public_url
from airflow_training.environments.building import prepare
from airflow_training.environments.catalogue import CatalogueImage
from airflow_training.environments.contents import sha256_of
from airflow_training.environments.differences import compare, is_needed
from airflow_training.environments.matching import Match
from airflow_training.environments.model import InstalledDistribution, PythonEnvironment
from airflow_training.environments.named import (
    NamedEnvironment,
    PackageFile,
    is_package_key,
    split_name,
)
from airflow_training.environments.preparing import PreparedEnvironment
from airflow_training.environments.programs import pip_hint
from airflow_training.environments.ready import remember
from airflow_training.errors import InputError, Problem, TrainingError

__all__ = [
    "PackageStore",
    "add",
    "delete_unused_files",
    "fetch",
    "list_all",
    "load",
    "remove_named",
]

_PIECE_BYTES = 8 << 20


class PackageStore(Protocol):
    """Objects under keys, as `checkpoints.store` opens them for any address."""

    def create(self, key: str, data: Any) -> None:
        """Write an object; raises a TrainingError where there is one."""

    def read(self, key: str, start: int = 0, size: int | None = None) -> bytes: ...

    def list(self, prefix: str) -> list[tuple[str, int]]: ...

    def delete(self, key: str) -> None: ...


def add(
    store: PackageStore, title: str, record: PythonEnvironment, python: str, *, image: str = ""
) -> NamedEnvironment:
    """Put a Python's distributions into a store, as wheels, under a name and a version that were free.

    The wheels come from where pip looks on this machine; what is no wheel is built into one. `image`: a container
    image that has the same, for instances that are started from images. Raises InputError for
    what has no files anywhere (installed from a folder), and for a version that is there with other content.
    """
    name, version = split_name(title)
    rows = [
        each
        for each in record.distributions
        if each.installed and (is_needed(each, record) or _is_our_tool(each))
    ]
    problems = [
        Problem(
            code="not_allowed",
            field=each.name,
            message="is installed from a folder of this machine: no index has its files",
            value=each.url,
            hint=f"build a wheel of it, or leave it out: pip uninstall {each.name}",
        )
        for each in rows
        if each.origin in ("folder", "editable")
    ]
    if problems:
        raise InputError(problems=problems)
    with tempfile.TemporaryDirectory() as folder:
        paths = _wheels(rows, python, Path(folder))
        files = [
            PackageFile(name=path.name, sha256=sha256_of(path).hex(), size=path.stat().st_size)
            for path in paths
        ]
        named = NamedEnvironment(
            name=name, version=version, record=record, files=sorted(files), image=image
        )
        there = {key for key, _ in store.list("files")}
        for path, file in zip(paths, files, strict=True):
            if file.key not in there:
                _create(store, file.key, path.read_bytes())
    _create(store, named.key, json.dumps(named.to_json(), indent=1).encode())
    found = load(store, title)
    if found.digest != named.digest:
        raise InputError.of(
            code="not_allowed",
            field="NAME@VERSION",
            message="is there already, with other content; versions never change",
            value=title,
            hint="take the next version",
        )
    return found


def load(store: PackageStore, title: str) -> NamedEnvironment:
    """Return a named environment; raises InputError where there is none, or a changed one."""
    name, version = split_name(title)
    try:
        document = json.loads(store.read(f"{name}/{version}.json"))
    except FileNotFoundError:
        raise InputError.of(
            code="bad_reference",
            field="NAME@VERSION",
            message="is not there",
            value=title,
            allowed=_titles(store),
        ) from None
    except ValueError as error:
        message = f"is damaged: {error}"
        raise InputError.of(
            code="bad_value", field="NAME@VERSION", message=message, value=title
        ) from None
    found = NamedEnvironment.from_json(document)
    if found.title != title:
        message = f"is damaged: its document is that of {found.title}"
        raise InputError.of(code="bad_value", field="NAME@VERSION", message=message, value=title)
    return found


def list_all(store: PackageStore) -> list[NamedEnvironment]:
    """Return all named environments, by name and version."""
    return [load(store, title) for title in _titles(store)]


def fetch(
    store: PackageStore,
    title: str,
    image: CatalogueImage,
    cache_dir: Path,
    *,
    digest: str = "",
) -> PreparedEnvironment:
    """Have a named environment in a cache folder: its files are read once for however many ask, each checked.

    Raises InputError where the Python there is not one that its files are for, for damaged files, and where it is
    not the environment of `digest`.
    """
    named = load(store, title)
    if digest and named.digest != digest:
        raise InputError.of(
            code="conflict",
            field="spec.environment",
            value=title,
            message=f"has the digest {named.digest[:12]} now, the run was admitted with {digest[:12]}: it was removed,"
            " and another one was added under its name",
            hint="run it again",
        )
    wrong = [
        each
        for each in compare(_bare(named.record), _bare(image.record))
        if each.outcome == "refused" or each.kind == "platform"
    ]
    if wrong:
        raise InputError(
            problems=[
                Problem(
                    code="environment_difference",
                    field=each.name,
                    message=f"{title} is for {each.local}, {image.python} is {each.target}",
                    hint="name another interpreter: --python PATH",
                )
                for each in wrong
            ]
        )
    match = Match(
        image=image, kind="own", requirements=sorted(file.requirement for file in named.files)
    )
    with tempfile.TemporaryDirectory() as links:
        packages = partial(_downloaded, store, named, cache_dir / "files", Path(links))
        found = prepare(match, cache_dir, name=title, fetch_packages=packages)
    remember(cache_dir, named.digest, image.python, found.digest)
    return found


def remove_named(store: PackageStore, title: str) -> None:
    """Remove a version; its files stay until `delete_unused_files`."""
    store.delete(load(store, title).key)


def delete_unused_files(store: PackageStore) -> Mapping[str, int]:
    """Delete files that no named environment has; returns their sizes. Nothing may be added meanwhile."""
    used = {file.key for named in list_all(store) for file in named.files}
    there = ((key, size) for key, size in store.list("files") if is_package_key(key))
    unused = {key: size for key, size in there if key not in used}
    for key in unused:
        store.delete(key)
    return unused


def _is_our_tool(each: InstalledDistribution) -> bool:
    """Whether it is this package, with the trainer that jobs use, and an index has it."""
    return each.name == "airflow-training" and each.origin == "index"


def _titles(store: PackageStore) -> list[str]:
    keys = [key for key, _ in store.list("") if key.endswith(".json") and key.count("/") == 1]
    return sorted(key.removesuffix(".json").replace("/", "@") for key in keys)


def _create(store: PackageStore, key: str, data: bytes) -> None:
    try:
        store.create(key, data)
    except TrainingError:  # it is there: files of equal bytes are equal, documents are compared
        if key not in {found for found, _ in store.list(key.rpartition("/")[0])}:
            raise


def _wheels(rows: Sequence[InstalledDistribution], python: str, folder: Path) -> list[Path]:
    if not rows:
        return []
    pins = folder / "requirements.txt"
    pins.write_text("".join(f"{_requirement(each)}\n" for each in rows), "utf-8")
    command = [sys.executable, "-m", "pip", "--python", python, "wheel", "--quiet", "--no-deps"]
    done = subprocess.run(
        [*command, "--wheel-dir", str(folder), "--requirement", str(pins)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        words = public_url("\n".join(done.stderr.strip().splitlines()[-8:]))
        raise InputError.of(
            code="not_installed",
            field="environment",
            message=f"pip finds no files: {words}",
            hint=pip_hint(sys.executable, words)
            or "run pip wheel with the same package: where pip looks is what `pip config list` prints",
        )
    return sorted(folder.glob("*.whl"))


def _requirement(each: InstalledDistribution) -> str:
    if each.origin == "git":
        address, mark, folder = each.url.partition("#")
        return f"{each.name} @ git+{address}@{each.commit}{mark}{folder}"
    return (
        f"{each.name} @ {each.url}" if each.origin == "archive" else f"{each.name}=={each.version}"
    )


def _downloaded(store: PackageStore, named: NamedEnvironment, files: Path, links: Path) -> Path:
    """Return a folder with all files; what a killed download has finished is not read again."""
    for file in named.files:
        path = files / file.sha256 / file.name
        if path.is_file() and sha256_of(path).hex() == file.sha256:
            path.touch()  # `collect` leaves it there meanwhile
        else:
            _download(store, file, path)
        (links / file.name).symlink_to(path)
    return links


def _download(store: PackageStore, file: PackageFile, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".part-", delete=False) as part:
        try:
            for start in range(0, file.size, _PIECE_BYTES):
                part.write(store.read(file.key, start, min(_PIECE_BYTES, file.size - start)))
            part.flush()
        except BaseException:
            Path(part.name).unlink()  # on a full disk others need the room
            raise
    if sha256_of(Path(part.name)).hex() != file.sha256:
        Path(part.name).unlink()
        raise InputError.of(
            code="bad_value",
            field=file.name,
            message="is damaged in the storage: its bytes are not those that were added",
            hint="remove the version, and add it under another one",
        )
    Path(part.name).replace(path)


def _bare(record: PythonEnvironment) -> PythonEnvironment:
    return PythonEnvironment.from_json({**record.to_json(), "distributions": []})
