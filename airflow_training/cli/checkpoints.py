"""`checkpoints list | verify | show | prune | export`: what trainings have saved. Starts no training."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airflow_training.cli.context import open_store
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
from airflow_training.errors import JobFailed

if TYPE_CHECKING:
    from airflow_training.checkpoints.reading import Entry
    from airflow_training.checkpoints.records import Manifest

__all__ = ["app"]

app = command_group("checkpoints", "What trainings have saved.")

WhereArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN|URI", help="A run, or where checkpoints lie: s3://bucket/folder, ./folder."
    ),
]
StepOption = Annotated[
    int | None, typer.Option(min=0, help="The checkpoint of this step; the newest by default.")
]


class ModelFormat(str, Enum):
    """A kind of file that other programs read."""

    safetensors = "safetensors"
    torch = "torch"


@app.command("list")
def list_all(where: WhereArgument, output: OutputOption = OutputFormat.table) -> None:
    """List every save there is, newest first.

    Committed ones can be restored. Stale: written by an attempt that had been replaced. Bad: damaged.
    Incomplete: never finished.
    """
    from airflow_training.checkpoints import reading

    place = _place_of(where)
    _print_entries(
        [(root, each) for root in place.roots for each in reading.history(root)], place, output
    )
    if place.roots:
        next_step("checkpoints", "verify", where)


@app.command()
def verify(
    where: WhereArgument,
    step: Annotated[
        int | None, typer.Option(min=0, help="Only the checkpoint of this step.")
    ] = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Read committed checkpoints and compare every byte with its digest.

    Exit 1 when one is bad, 2 where there are none.
    """
    place = _place_of(where)
    roots = place.roots if step is None else [_root_with(place, step)]
    found = [
        (root, each)
        for root in roots
        for each in (*_verified(root, step), *_damaged(root))
        if step in (None, each.step)
    ]
    if not found:
        message = f"{place.address} holds no checkpoints: nothing was compared"
        raise fail("WHERE", message, code="bad_reference", value=where)
    _print_entries(found, place, output)
    bad = sum(each.state == "bad" for _, each in found)
    if bad:
        raise JobFailed(
            f"{bad} of {len(found)} checkpoints are bad; a restore takes the newest good one"
        )
    next_step("checkpoints", "show", where)


@app.command()
def show(
    where: WhereArgument, step: StepOption = None, output: OutputOption = OutputFormat.table
) -> None:
    """Show what one checkpoint holds: its ranks, their shards, and the checkpoints it follows."""
    from airflow_training.checkpoints import reading

    place = _place_of(where)
    root, manifest = _chosen(place, step)
    before = [
        each
        for each in reading.history(root)
        if each.state == "committed" and each.step < manifest.step
    ]
    if output is OutputFormat.json:
        print_json(_manifest_json(root, manifest, before))
        return
    from airflow_training.planning.answers.text import bytes_text

    print(f"step {manifest.step} in {root}")
    print(f"generation {manifest.generation}, number {manifest.number}, {time_text(manifest.at)}")
    print(f"digest {manifest.digest}\nstate  {manifest.root_digest}")
    if manifest.cursor is not None:
        print(f"cursor {manifest.cursor}")
    print(f"follows steps {', '.join(str(each.step) for each in before) or 'none'}\n")
    print_table(
        ["rank", "size", "shards", "state"],
        [
            [rank, bytes_text(part.size), len(part.shards), part.state]
            for rank, part in enumerate(manifest.ranks)
        ],
    )
    next_step("checkpoints", "export", where, "model.safetensors")


@app.command()
def prune(
    where: WhereArgument,
    keep: Annotated[
        int | None,
        typer.Option(min=1, help="How many of the newest stay; the job's number, else 3."),
    ] = None,
    keep_every: Annotated[
        int | None, typer.Option(min=1, help="Of the older ones every Nth stays too.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell.")] = False,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Delete old checkpoints, and what belongs to none. Safe while a training saves.

    At least two that verify always stay.
    """
    from airflow_training.checkpoints import reading
    from airflow_training.planning.answers.text import bytes_text

    place = _place_of(where)
    how = reading.prunable if dry_run else reading.prune
    pruned = [
        (root, how(root, keep or place.keep, keep_every or place.keep_every))
        for root in place.roots
    ]
    if output is OutputFormat.json:
        rows = [
            {"root": root, "steps": list(each.steps), "objects": each.objects, "bytes": each.bytes}
            for root, each in pruned
        ]
        print_json({"pruned": rows, "dry_run": dry_run})
        return
    print_table(
        ["where", "steps", "objects", "freed"],
        [
            [
                place.short(root),
                ", ".join(map(str, each.steps)),
                each.objects,
                bytes_text(each.bytes),
            ]
            for root, each in pruned
        ],
    )
    if dry_run:
        note("nothing was deleted")
    next_step("checkpoints", "list", where)


@app.command()
def export(
    where: WhereArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write: a new file.")],
    step: StepOption = None,
    file_format: Annotated[
        ModelFormat | None,
        typer.Option(
            "--format", help="By default as the file's name ends: .safetensors, else torch."
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also the optimizer and all else, not only the model.")
    ] = False,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Write the model of a checkpoint as one plain file, whole again from the parts of all ranks.

    Needs torch where the state is of torch; no pickled object is loaded.
    """
    from airflow_training.checkpoints import exporting, reading
    from airflow_training.planning.answers.text import bytes_text

    if file.exists():
        raise fail("FILE", "is there already", value=str(file), hint="name a new file")
    chosen = file_format or (
        ModelFormat.safetensors if file.suffix == ".safetensors" else ModelFormat.torch
    )
    place = _place_of(where)
    root, manifest = _chosen(place, step)
    state = (exporting.full_state if everything else exporting.full_model)(root, manifest)
    if chosen is ModelFormat.torch:
        exporting.write_torch(state, file)
    else:
        exporting.write_safetensors(state, file, about=reading.reference(root, manifest))
    size = file.stat().st_size
    if output is OutputFormat.json:
        print_json(
            {
                "file": str(file),
                "format": chosen.value,
                "root": root,
                "step": manifest.step,
                "bytes": size,
            }
        )
    else:
        print(f"{file}: {chosen.value}, {bytes_text(size)}, step {manifest.step} of {root}")


# what was named ------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where checkpoints lie."""

    said: str
    """As the user named it."""
    address: str
    roots: Sequence[str]
    """The newest lineage of a run first."""
    keep: int = 3
    keep_every: int | None = None

    def short(self, root: str) -> str:
        """Return what tells a root from the others below the address."""
        return root.removeprefix(self.address.rstrip("/")).strip("/") or "."


def _place_of(said: str) -> _Place:
    """Return where a run, or an address, keeps its checkpoints; raises InputError."""
    from airflow_training.checkpoints import reading

    if "://" in said or said.startswith(("/", ".", "~")):
        address = str(Path(said).expanduser()) if said.startswith("~") else said
        return _Place(said=said, address=address, roots=reading.lineages(address))
    from airflow_training.runtimes.rendering import checkpoint_address
    from airflow_training.supervise.checkpoint_places import roots_below

    store = open_store()
    record = store.find_run(said)
    job = store.job(record.uid)
    if job.checkpoint is None:
        raise fail(
            "RUN",
            "keeps no checkpoints: its job has no spec.checkpoint",
            code="bad_reference",
            value=said,
            hint="a folder is given as ./folder",
        )
    address = checkpoint_address(job, record.ref())
    return _Place(
        said=said,
        address=address,
        roots=[root.uri for root in roots_below(address)],
        keep=job.checkpoint.keep,
        keep_every=job.checkpoint.keep_every,
    )


def _chosen(place: _Place, step: int | None) -> tuple[str, Manifest]:
    """Return root and manifest of the newest checkpoint, or of that of a step; raises InputError."""
    from airflow_training.checkpoints import reading

    if step is not None:
        root = _root_with(place, step)
        return root, reading.find(root, step=step)
    for root in place.roots:
        manifest = reading.newest(root)
        if manifest is not None:
            return root, manifest
    raise fail("RUN|URI", "holds no checkpoint", code="bad_reference", value=place.said)


def _root_with(place: _Place, step: int) -> str:
    """Return the first root that has a committed checkpoint of this step; raises InputError."""
    from airflow_training.checkpoints import reading

    steps: set[int] = set()
    for root in place.roots:
        mine = {each.step for each in reading.history(root) if each.state in ("committed", "bad")}
        if step in mine:
            return root
        steps |= mine
    raise fail(
        "--step",
        f"there is no checkpoint of step {step}",
        code="bad_reference",
        value=step,
        allowed=sorted(steps),
    )


def _verified(root: str, step: int | None) -> Sequence[Entry]:
    """Return the committed checkpoints of a root, or that of a step, after reading all of them."""
    from airflow_training.checkpoints import reading

    there = {each.step for each in reading.history(root) if each.state == "committed"}
    return reading.verify(root, step) if step is None or step in there else []


def _damaged(root: str) -> Sequence[Entry]:
    """Return the checkpoints of a root whose documents are damaged already."""
    from airflow_training.checkpoints import reading

    return [each for each in reading.history(root) if each.state == "bad"]


# what is printed -----------------------------------------------------------------------------------
def _print_entries(found: Sequence[tuple[str, Entry]], place: _Place, output: OutputFormat) -> None:
    if output is OutputFormat.json:
        rows = [
            {
                "root": root,
                "step": each.step,
                "generation": each.generation,
                "state": each.state,
                "bytes": each.bytes,
                "at": time_text(each.at) or None,
                "digest": each.digest or None,
                "reason": each.reason,
            }
            for root, each in found
        ]
        print_json({"checkpoints": rows})
        return
    if not found:
        note(f"{place.address}: no checkpoints")
        return
    from airflow_training.planning.answers.text import bytes_text

    now = time.time()
    print_table(
        ["where", "step", "generation", "state", "size", "age", "why"],
        [
            [
                place.short(root),
                each.step,
                each.generation,
                each.state,
                "" if each.bytes is None else bytes_text(each.bytes),
                "" if each.at is None else _age(now - each.at),
                each.reason,
            ]
            for root, each in found
        ],
    )


def _age(seconds: float) -> str:
    """Return `12 m`: whole units, the largest that fits."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def _manifest_json(root: str, manifest: Manifest, before: Sequence[Entry]) -> Mapping[str, Any]:
    return {
        "root": root,
        "step": manifest.step,
        "generation": manifest.generation,
        "number": manifest.number,
        "world": manifest.world,
        "digest": manifest.digest,
        "root_digest": manifest.root_digest,
        "parent": manifest.parent,
        "at": time_text(manifest.at),
        "bytes": manifest.size,
        "cursor": manifest.cursor,
        "code": manifest.code or None,
        "environment": manifest.environment or None,
        "ranks": [
            {
                "rank": rank,
                "bytes": part.size,
                "state": part.state,
                "shards": [
                    {"key": shard.key, "digest": shard.digest, "bytes": shard.size}
                    for shard in part.shards
                ],
            }
            for rank, part in enumerate(manifest.ranks)
        ],
        "chain": [
            {"step": each.step, "generation": each.generation, "digest": each.digest}
            for each in before
        ],
    }
