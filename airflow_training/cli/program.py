"""The program itself: what stands above its commands."""

from __future__ import annotations

from typing import Annotated

import typer

from airflow_training import __version__

__all__ = ["about", "command_group"]


def command_group(name: str, description: str) -> typer.Typer:
    """Make the group that commands such as `cloud run` and `cloud list` are put into.

    Without words it prints its help, which is plain: that starts faster and reads well in a pipe.
    """
    return typer.Typer(name=name, help=description, no_args_is_help=True, rich_markup_mode=None)


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
