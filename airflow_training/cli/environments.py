"""`environments record | check | build | list | show | add | fetch | pin | verify | remove | gc`. Starts no training."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airflow_training.cli.documents import OutputOption
from airflow_training.cli.output import (
    OutputFormat,
    fail,
    next_step,
    note,
    print_json,
    print_table,
    time_text,
)
from airflow_training.cli.program import command_group
from airflow_training.documents.text import counted
from airflow_training.errors import JobFailed

if TYPE_CHECKING:
    from airflow_training.environments.cache import CachedEnvironment
    from airflow_training.environments.preparing import PreparedEnvironment
    from airflow_training.environments.storage import PackageStore

__all__ = ["app"]

app = command_group("environments", "Pythons with what is installed for them.")

PythonOption = Annotated[
    Path | None, typer.Option(metavar="PATH", help="The interpreter; by default this one.")
]
WithoutOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="A distribution that the script does without; repeatable."),
]
RecordArgument = Annotated[
    Path, typer.Argument(metavar="RECORD", help="What `environments record -o json` has printed.")
]
AtOption = Annotated[
    str,
    typer.Option(
        metavar="URI",
        help="Where named environments are kept: s3://bucket/folder, ./folder. Empty: \\[training] environments.",
    ),
]
DeleteAtOption = Annotated[
    str,
    typer.Option(metavar="URI", help="Where named ones are deleted; no variable stands for it."),
]
TitleArgument = Annotated[
    str, typer.Argument(metavar="NAME@VERSION", help="A named environment: torch-cpu@1.")
]
WhichArgument = Annotated[
    str, typer.Argument(metavar="WHICH", help="NAME@VERSION, or how a digest begins (see `list`).")
]


@app.command()
def record(
    python: PythonOption = None,
    root: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="A project whose lock file adds the hashes of the packages."
        ),
    ] = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Tell what a Python is and has installed.

    The JSON of it is what `check` and `build` take, and what a catalogue of images lists.
    """
    from airflow_training.environments.recording import record as record_python

    found = record_python(python, root=root)
    if output is OutputFormat.json:
        print_json(found.to_json())
        return
    print_table(
        ["distribution", "version", "from", "build"],
        [
            [each.name, each.version, each.url or each.origin, each.build]
            for each in found.distributions
            if each.installed
        ],
    )
    note(
        f"Python {found.python} ({found.implementation}) on {found.platform}, {found.libc or 'no libc'};"
        f" digest {found.digest[:12]}"
    )
    for deviation in found.lock_deviations:
        note(f"warning: installed is {deviation}")


@app.command()
def check(
    file: RecordArgument,
    catalogue: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The images of a target; by default this machine."),
    ] = None,
    python: PythonOption = None,
    without: WithoutOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Tell which environment a script of this record would get, and all that is not the same.

    Exit 2 where it is refused, with what mends it.
    """
    from airflow_training.environments.cache import cached_digests, default_folder
    from airflow_training.environments.catalogue import (
        catalogue_here,
        read_catalogue,
        read_record,
    )
    from airflow_training.environments.matching import match

    there = read_catalogue(catalogue) if catalogue else catalogue_here(python)
    found = match(
        read_record(file), there, cached_digests(default_folder()), leave_out=without or ()
    )
    if output is OutputFormat.json:
        print_json(found.to_json())
        return
    if found.differences:
        print_table(
            ["name", "here", "on the target", "what becomes of it"],
            [[each.name, each.local, each.target, each.outcome] for each in found.differences],
        )
    note(found.description)


@app.command()
def build(
    file: RecordArgument,
    python: PythonOption = None,
    without: WithoutOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Make the environment of a record on this machine, once; prints the path of its Python."""
    from airflow_training.environments.building import prepare
    from airflow_training.environments.cache import cached_digests, default_folder
    from airflow_training.environments.catalogue import catalogue_here, read_record
    from airflow_training.environments.matching import match

    folder = default_folder()
    found = match(
        read_record(file), catalogue_here(python), cached_digests(folder), leave_out=without or ()
    )
    for each in found.differences:
        note(str(each))
    _print_prepared(prepare(found, folder), output)


@app.command("list")
def list_all(at: AtOption = "", output: OutputOption = OutputFormat.table) -> None:
    """List the environments that jobs may name, and what this machine has made besides."""
    from airflow_training.checkpoints.store import open_store
    from airflow_training.environments.cache import cached_environments, default_folder
    from airflow_training.environments.provided import cached_titles, describe_all

    cached = cached_environments(default_folder())
    named = describe_all(storage=_address(at), open_storage=open_store)
    here = cached_titles(named, default_folder())
    if output is OutputFormat.json:
        rows = [
            {
                "name": each.name,
                "version": each.version,
                "digest": each.digest,
                "python": each.python,
                "packages": [*each.packages],
                "image": each.image or None,
                "bytes": each.bytes,
                "cached": each.title in here,
                "pinned": here.get(each.title, False),
            }
            for each in named
        ]
        print_json({"cached": [_cached_json(each) for each in cached], "named": rows})
        return
    titles = {each.title for each in named}
    print_table(
        ["name", "digest", "python", "packages", "here", "used"],
        [
            [
                each.title,
                each.digest[:12],
                each.python,
                len(each.packages),
                ("pinned" if here[each.title] else "yes") if each.title in here else "no",
                _used(each.title, cached),
            ]
            for each in named
        ]
        + [
            [
                each.name or f"on {each.base}" if each.kind == "on_top" else each.name,
                each.digest[:12],
                _python_version(each),
                len(each.installed),
                "pinned" if each.pinned else "yes",
                time_text(each.used_at),
            ]
            for each in cached
            if each.name not in titles
        ],
    )


@app.command()
def show(
    which: WhichArgument, at: AtOption = "", output: OutputOption = OutputFormat.table
) -> None:
    """Show what an environment has: one of this machine, or with `--at` a named one there."""
    if "@" in which and _address(at) and not _is_builtin(which):
        from airflow_training.environments.storage import load

        named = load(_store(at), which)
        if output is OutputFormat.json:
            print_json(named.to_json())
            return
        print_table(["file", "size"], [[f.name, _size(f.size)] for f in named.files])
        note(f"{which}: Python {named.record.python}, {named.record.platform}; digest {named.digest}")  # fmt: skip
        next_step("environments", "fetch", which, *(("--at", at) if at else ()))
        return
    found = _cached(which)
    if output is OutputFormat.json:
        print_json({**_cached_json(found), "requirements": [*found.requirements]})
        return
    print_table(["distribution"], [[each] for each in found.installed])
    note(f"{found.python}: built in {found.build_seconds:g} s; digest {found.digest}")


@app.command()
def add(
    title: TitleArgument,
    at: AtOption = "",
    python: PythonOption = None,
    image: Annotated[
        str,
        typer.Option(
            metavar="IMAGE",
            help="A container image that has the same: instances in a cluster are started from it.",
        ),
    ] = "",
) -> None:
    """Put all that a Python has installed into a storage, under a name and a version that never changes.

    The packages come from where pip looks on this machine; fetching them needs no index.
    """
    from airflow_training.environments.recording import record as record_python
    from airflow_training.environments.storage import add as add_named

    if _is_builtin(title):
        message = "is the name of the environment that is made of this Python"
        raise fail("NAME@VERSION", message, value=title, hint="take another name")
    record, path = record_python(python), str(python or sys.executable)
    named = add_named(_store(at), title, record, path, image=image)
    if image and "@sha256:" not in image:
        note(f"warning: {image}: a tag may be moved; name the image by its digest: NAME@sha256:...")
    size = _size(sum(file.size for file in named.files))
    note(f"{title}: {counted(len(named.files), 'package')}, {size}; digest {named.digest}")
    next_step("environments", "fetch", title, *(("--at", at) if at else ()))


@app.command()
def fetch(
    title: TitleArgument,
    at: AtOption = "",
    python: PythonOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Have a named environment on this machine, or the built-in one; prints the path of its Python."""
    from airflow_training.environments.cache import default_folder
    from airflow_training.environments.catalogue import catalogue_here
    from airflow_training.environments.storage import fetch as fetch_named

    if _is_builtin(title):
        _print_prepared(_have_builtin(title), output)
        return
    (image,) = catalogue_here(python).images
    _print_prepared(fetch_named(_store(at), title, image, default_folder()), output)


@app.command()
def pin(
    which: WhichArgument,
    *,
    undo: Annotated[bool, typer.Option("--undo", help="Let `gc` remove it again.")] = False,
) -> None:
    """Keep an environment of this machine, however long nobody uses it."""
    from airflow_training.environments import cache

    found = _cached(which)
    (cache.unpin if undo else cache.pin)(found)
    note(f"{found.digest[:12]} {'is removed by gc when unused' if undo else 'stays'}")


@app.command()
def verify(which: WhichArgument, output: OutputOption = OutputFormat.table) -> None:
    """Compare each byte of an environment with what was installed; exit 1 where one differs."""
    from airflow_training.environments import cache

    found = _cached(which)
    damaged = cache.verify(found)
    if output is OutputFormat.json:
        print_json({"digest": found.digest, "damaged": damaged})
    elif damaged:
        print_table(["damaged"], [[name] for name in damaged])
    if damaged:
        files = counted(len(damaged), "file")
        raise JobFailed(f"{found.digest[:12]}: {files} changed; remove it, it is built again")
    note(f"{found.digest[:12]} is as it was installed")


@app.command()
def remove(which: WhichArgument, at: DeleteAtOption = "") -> None:
    """Remove an environment of this machine, or with `--at` a version of a named one there."""
    from airflow_training.environments import cache

    if at and "@" in which:
        from airflow_training.environments.storage import remove_named

        remove_named(_store(at), which)
        note(f"removed {which}; `environments gc --at` removes files that no other version has")
        return
    found = _cached(which)
    size = cache.remove(cache.default_folder(), found.digest)
    note(f"removed {found.digest[:12]}: {_size(size)}")


@app.command()
def gc(
    at: DeleteAtOption = "",
    unused_days: Annotated[
        float, typer.Option(min=0, help="Remove what nobody has used for so many days.")
    ] = 30,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Remove environments of this machine that nobody uses any more, and what killed builds left.

    With `--at` also packages there that no version has; let nobody add one meanwhile.
    """
    from airflow_training.environments import cache

    removed = cache.collect(cache.default_folder(), before=time.time() - unused_days * 86400)
    files: Mapping[str, int] = {}
    if at:
        from airflow_training.environments.storage import delete_unused_files

        files = delete_unused_files(_store(at))
    if output is OutputFormat.json:
        print_json({"removed": removed, "files": files})
        return
    gone = counted(len(removed), "environment")
    note(f"removed {gone}, {_size(sum(removed.values()))}")
    if at:
        note(f"removed {counted(len(files), 'file')} of {at}, {_size(sum(files.values()))}")


def _size(count: float) -> str:
    from airflow_training.planning.answers.text import bytes_text

    return bytes_text(count)


def _is_builtin(title: str) -> bool:
    return title.partition("@")[0] == "builtin"


def _have_builtin(title: str) -> PreparedEnvironment:
    from airflow_training.checkpoints.store import open_store
    from airflow_training.environments.builtin import have_builtin
    from airflow_training.environments.cache import default_folder
    from airflow_training.environments.orders import builtin_source
    from airflow_training.environments.provided import find_environment

    name, _, version = title.partition("@")
    found = find_environment(name, version, storage="", open_storage=open_store)
    return have_builtin(builtin_source(), found.digest, default_folder())


def _used(title: str, cached: Sequence[CachedEnvironment]) -> str:
    """When an environment of this name was used last; of one that was made several times, the newest."""
    return max((time_text(each.used_at) for each in cached if each.name == title), default="")


def _address(at: str) -> str:
    from airflow_training.environments.addresses import storage_address
    from airflow_training.settings import load_settings

    return storage_address(at or load_settings().environments)


def _store(at: str) -> PackageStore:
    from airflow_training.checkpoints.store import open_store

    at = _address(at)
    if not at:
        hint = "--at s3://bucket/environments, or [training] environments"
        raise fail("--at", "says where named environments are kept", code="missing", hint=hint)
    return open_store(at)


def _cached(which: str) -> CachedEnvironment:
    from airflow_training.environments import cache

    folder = cache.default_folder()
    all_here = cache.cached_environments(folder)
    found = [each for each in all_here if each.name == which or each.digest.startswith(which)]
    if not which or len({each.digest for each in found}) != 1:
        message = "fits several environments" if found and which else "is not on this machine"
        names = [each.name or each.digest[:12] for each in all_here]
        hint, damaged = "", cache.cached_digests(folder) - {each.digest for each in all_here}
        if which and any(each.startswith(which) for each in damaged):
            message = "is damaged: the lists of its files are not those of the installation"
            hint = "`environments gc` removes it, and whoever needs it builds it again"
        raise fail("WHICH", message, code="bad_reference", value=which, allowed=names, hint=hint)
    return found[0]


def _cached_json(found: CachedEnvironment) -> dict[str, Any]:
    return {
        "name": found.name or None,
        "digest": found.digest,
        "python": str(found.python),
        "base": found.base,
        "kind": found.kind,
        "installed": [*found.installed],
        "pinned": found.pinned,
        "built_at": time_text(found.built_at),
        "used_at": time_text(found.used_at),
        "build_seconds": found.build_seconds,
    }


def _python_version(found: CachedEnvironment) -> str:
    (packages,) = found.folder.glob("lib/python*")
    return packages.name.removeprefix("python")


def _print_prepared(found: PreparedEnvironment, output: OutputFormat) -> None:
    if output is OutputFormat.json:
        print_json(found.to_json())
        return
    how = "was there" if found.cached else f"made in {found.seconds:.1f} s"
    note(f"environment ready, {how}: {counted(len(found.installed), 'distribution')} installed")
    print(found.python)
