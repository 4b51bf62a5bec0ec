"""`cloud run`: what was typed, as data, and what is done about it.

Most command lines are read here: Typer takes a third of a second to import and to build its parser. What is not plain
(help, `-o`, a slip of the fingers) is left to it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_training.cli.output import OutputFormat, fail, note, print_json

if TYPE_CHECKING:
    from airflow_training.cloud.submit import RunOptions

__all__ = ["CloudRunWords", "module_place", "plain_words", "run_there"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudRunWords:
    """The options of `cloud run`, and the words of the program."""

    words: Sequence[str] = ()
    module: str = ""
    target: str = ""
    replicas: int = 1
    framework: str = ""
    resources: Sequence[str] = ()
    returns: str = "model"
    until: str = ""
    hours: float = 0.0
    team: str = ""
    data: Sequence[str] = ()
    data_wait: float = 1.0
    root: str = ""
    env: Sequence[str] = ()
    allow_secret: Sequence[str] = ()
    allow_missing: Sequence[str] = ()
    detach: bool = False
    all_ranks: bool = False
    dry_run: bool = False
    output: OutputFormat = OutputFormat.table


_TEXTS = ("--target", "--framework", "--returns", "--until", "--team", "--root")
_LISTS = ("--resources", "--data", "--env", "--allow-secret", "--allow-missing")
_FLAGS = {"--detach": "detach", "--all": "all_ranks", "--dry-run": "dry_run"}


def plain_words(words: Sequence[str]) -> CloudRunWords | None:
    """Read what stands behind `cloud run`; None for what Typer has to read, or to refuse. Pure."""
    found: dict[str, Any] = {}
    place = 0
    while place < len(words):
        word = words[place]
        name, equals, value = word.partition("=")
        if word in _FLAGS:
            found[_FLAGS[word]] = True
            place += 1
            continue
        if not word.startswith("-"):
            return CloudRunWords(words=[*words[place:]], **found)
        if not equals:
            place += 1
            if place == len(words):
                return None
            value = words[place]
            if value.startswith("-"):  # perhaps its value was forgotten
                return None
        place += 1
        if word == "-m":
            place += words[place : place + 1] == ["--"]  # as Typer reads it
            return CloudRunWords(module=value, words=[*words[place:]], **found)
        if not _take(name, value, found):
            return None
    return None


def module_place(words: Sequence[str]) -> int | None:
    """Where `-m` stands before the program's own words; None where it does not. Pure."""
    place = 0
    while place < len(words) and words[place].startswith("-"):
        if words[place] == "-m":
            return place
        has_value = "=" not in words[place] and words[place] not in {*_FLAGS, "-h", "--help"}
        place += 2 if has_value else 1
    return None


def _take(name: str, value: str, found: dict[str, Any]) -> bool:
    """Keep the value of an option; False where it is none of ours, or no value of it."""
    key = name[2:].replace("-", "_")
    if name in _TEXTS:
        found[key] = value
    elif name in _LISTS:
        found[key] = [*found.get(key, ()), value]
    elif name == "--replicas" and value.isdecimal() and value.isascii() and int(value) >= 1:
        found[key] = int(value)
    elif name in ("--hours", "--data-wait"):
        found[key] = -1.0
        with contextlib.suppress(ValueError):
            found[key] = float(value)
        return bool(0 <= found[key] < float("inf"))
    else:
        return False
    return True


def run_there(typed: CloudRunWords) -> int:
    """Send the program and follow it, or show what would travel; returns the exit code."""
    from airflow_training.cloud.program import chosen_variables, send_program
    from airflow_training.cloud.submit import RunOptions

    options = RunOptions(
        framework=typed.framework,
        replicas=typed.replicas,
        resources=_pairs(typed.resources),
        returns=typed.returns,
        until=typed.until,
        hours=typed.hours,
        team=typed.team,
        data=typed.data,
        data_wait=typed.data_wait,
        env=chosen_variables(typed.env, os.environ),
        root=Path(typed.root) if typed.root else None,
        allow_secrets=typed.allow_secret,
        allow_missing=typed.allow_missing,
    )
    argv = [*(["-m", typed.module] if typed.module else []), *typed.words]
    if typed.dry_run:
        return _show(argv, options, target=typed.target, output=typed.output)
    ranks = [*range(typed.replicas)] if typed.all_ranks else [0]
    return send_program(argv, options, target=typed.target, detach=typed.detach, ranks=ranks)


def _pairs(rows: Sequence[str]) -> Mapping[str, str]:
    pairs = {}
    for row in rows:
        name, equals, value = row.partition("=")
        if not equals or not name or not value:
            raise fail(
                "--resources", f"{row!r} is no NAME=VALUE", value=row, hint="--resources cpu=4"
            )
        pairs[name] = value
    return pairs


def _show(argv: list[str], options: RunOptions, *, target: str, output: OutputFormat) -> int:
    """Tell what would travel, and what the run could read; returns 2 where it would be refused."""
    from airflow_training.capture.report import describe, describe_json
    from airflow_training.cloud.shared_data import (
        describe_shared,
        find_shared_data,
        shared_json,
    )
    from airflow_training.cloud.targets import HERE_NAME, find_target

    captured = options.capture(argv, cwd=Path.cwd())
    chosen = find_target(target).name
    shared = None
    if chosen != HERE_NAME:
        shared = find_shared_data(captured, options.data, working_dir=Path.cwd())
    if output is OutputFormat.json:
        more = {} if shared is None else {"data": shared_json(shared.manifest)}
        print_json({**describe_json(captured), **more})
    else:
        print(describe(captured))
        if shared is not None:
            print(f"\nWhat stays here, and {chosen} gets when the run reads it")
            print("\n".join(f"  {row}" for row in describe_shared(shared.manifest)) or "  nothing")
            for each in shared.manifest.omissions:
                note(f"{each.path} is never shared: {each.reason}")
            for text in shared.notes:
                note(text)
        note("nothing was sent")
    for problem in shared.problems if shared is not None else ():
        note(f"error: {problem}")
    return 2 if captured.problems or (shared is not None and shared.problems) else 0
