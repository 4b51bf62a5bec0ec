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
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go.")] = False,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Remove what services of this machine keep and no run needs: folders of runs that are over, contents, chunks."""
    import time

    from airflow_training.cloud.service.unneeded import collect_garbage
    from airflow_training.cloud.targets import service_folders
    from airflow_training.planning.answers.text import bytes_text
    from airflow_training.state.store import open_store

    if folder is not None and not (folder / "submissions").is_dir():
        raise fail("--folder", "is no folder of a service", value=str(folder))
    before, store = time.time() - unused_days * 86400, open_store()
    found = [
        (each, item)
        for each in ([folder] if folder else service_folders())
        for item in collect_garbage(
            each, store, before=before, most_bytes=int(most_gb * 10**9), is_dry=dry_run
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
