"""`cloud gc`: room on the disk of a machine that serves. What goes is decided in `airflow_training.cloud.service.unneeded`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from airflow_training.cli.documents import OutputOption
from airflow_training.cli.output import OutputFormat, fail, note, print_json, print_table

__all__ = ["gc"]


def gc(
    unused_days: Annotated[
        float, typer.Option(min=0, help="Remove what no run has needed for so many days.")
    ] = 30,
    most_gb: Annotated[
        float,
        typer.Option(
            min=0, help="Remove more, the oldest first, until so much is left; 0: no more."
        ),
    ] = 0,
    folder: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Of one service; by default all of this machine."),
    ] = None,
    target: Annotated[
        str,
        typer.Option(metavar="NAME", help="Of a target without a service, and in its storage."),
    ] = "",
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="As of `cloud serve`: also in that storage."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go.")] = False,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Remove what services of this machine keep and no run needs: folders of runs that are over, contents, chunks."""
    import time

    from airflow_training.cloud.service.stored_outputs import StoredOutputs
    from airflow_training.cloud.service.unneeded import collect_garbage
    from airflow_training.cloud.targets import service_folders
    from airflow_training.planning.answers.text import bytes_text
    from airflow_training.state.store import open_store

    if folder is not None and not (folder / "submissions").is_dir():
        raise fail("--folder", "is no folder of a service", value=str(folder))
    folders = [folder] if folder else service_folders()
    outputs = None
    if target or config:
        place, storage = _storage_of(target, config)
        outputs = StoredOutputs(storage)
        folders = [folder or place]
    before, store = time.time() - unused_days * 86400, open_store()
    found = [
        (each, item)
        for each in folders
        for item in collect_garbage(
            each,
            store,
            before=before,
            most_bytes=int(most_gb * 10**9),
            is_dry=dry_run,
            outputs=outputs,
        )
    ]
    if output is OutputFormat.json:
        rows = [
            {"folder": str(each), "kind": item.kind, "name": item.name, "bytes": item.bytes}
            for each, item in found
        ]
        print_json({"removed": rows})
        return
    runs = [[item.name, bytes_text(item.bytes), each] for each, item in found if item.kind == "run"]
    if runs:
        print_table(["run", "size", "service"], runs)
    for kind in ("content", "chunk"):
        sizes = [item.bytes for _, item in found if item.kind == kind]
        note(f"{len(sizes):,} {kind}s, {bytes_text(sum(sizes))}")
    total = bytes_text(sum(item.bytes for _, item in found))
    note(f"{'would remove' if dry_run else 'removed'} {total}")


def _storage_of(target: str, config: Path | None) -> tuple[Path, str]:
    """Folder of the service that a target or a file of settings means, and the address of its storage."""
    from airflow_training.cloud.target_settings import TargetSettings, read_settings
    from airflow_training.cloud.targets import cloud_folder, find_target

    if target and config:
        raise fail("--config", "is of a service, and --target has none", value=str(config))
    if config:
        return cloud_folder() / "served", read_settings(config).storage
    found = find_target(target)
    if found.settings is None:
        raise fail(
            "--target",
            f"{target} has a service of its own",
            value=target,
            hint="there: airflow-training cloud gc --config FILE",
        )
    return cloud_folder() / "direct" / found.name, TargetSettings.from_json(
        found.settings, field=""
    ).storage
