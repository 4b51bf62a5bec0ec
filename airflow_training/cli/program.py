"""The program itself: what stands above its commands."""

from __future__ import annotations

from typing import Annotated

import typer

from airflow_training import __version__

__all__ = ["about"]


def _print_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


def about(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", is_eager=True, callback=_print_version
        ),
    ] = False,
) -> None:
    """Run distributed training jobs, here or through Apache Airflow."""
    del version  # its callback has ended the program
