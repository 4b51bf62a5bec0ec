"""`cloud run`: what was typed, as data, and what is done about it.

Most command lines are read here: Typer takes a third of a second to import and to build its parser. What is not plain
(help, `-o`, a slip of the fingers) is left to it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_training.cli.output import OutputFormat, fail, note, print_json
from airflow_training.cloud.options import RunOptions, told

if TYPE_CHECKING:
    from airflow_training.cloud.local_service import LocalService

__all__ = [
    "OPTIONS",
    "CloudRunWords",
    "default_of",
    "module_place",
    "plain_words",
    "run_there",
    "start_service",
    "words_of",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudRunWords(RunOptions):
    """What stands behind `cloud run`: options, and the words of the program."""

    words: Sequence[str] = ()
    module: str = ""
    all_ranks: bool = field(default=False, metadata=told("Show all ranks, not only 0.", name="all"))
    dry_run: bool = field(default=False, metadata=told("Say what would travel, and send nothing."))
    output: OutputFormat = OutputFormat.table


OPTIONS: Mapping[str, Field[Any]] = {
    "--" + (each.metadata["name"] or each.name.replace("_", "-")): each
    for each in fields(CloudRunWords)
    if each.metadata
}
"""All that are read without Typer, too."""


def default_of(option: Field[Any]) -> Any:
    """The default of an option: its kind is that of the option."""
    return {} if option.default is MISSING else option.default


_FLAGS = {name for name, each in OPTIONS.items() if each.default is False}


def words_of(found: Mapping[str, Any]) -> CloudRunWords:
    """What was typed, by field; raises InputError for a pair that is none."""
    return CloudRunWords(**{**found, "resources": _pairs(found.get("resources") or ())})


def plain_words(words: Sequence[str]) -> CloudRunWords | None:
    """Read what stands behind `cloud run`; None for what Typer has to read, or to refuse. Pure."""
    found: dict[str, Any] = {}
    place = 0
    while place < len(words):
        word = words[place]
        name, equals, value = word.partition("=")
        if word in _FLAGS:
            found[OPTIONS[word].name] = True
            place += 1
            continue
        if not word.startswith("-"):
            return words_of({**found, "words": [*words[place:]]})
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
            return words_of({**found, "module": value, "words": [*words[place:]]})
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


def _take(name: str, text: str, found: dict[str, Any]) -> bool:
    """Keep the value of an option; False where it is none of ours, or no value of it."""
    option = OPTIONS.get(name)
    if option is None:
        return False
    default = default_of(option)
    if isinstance(default, (tuple, dict)):
        found[option.name] = [*found.get(option.name, ()), text]
        return True
    if isinstance(default, str):
        found[option.name] = text
        return True
    with contextlib.suppress(ValueError):
        # digits alone: Typer reads more, as `+2`
        number = (
            float(text) if isinstance(default, float) else int(text if text.isdecimal() else "")
        )
        found[option.name] = number
        return bool(option.metadata["min"] <= number < float("inf"))
    return False


def start_service(typed: CloudRunWords) -> LocalService | None:
    """Start the service of this machine where the program goes to it: it imports while this process does."""
    from airflow_training.cloud.local_service import start_local
    from airflow_training.cloud.targets import find_target

    return None if typed.dry_run else start_local(find_target(typed.target))


def run_there(typed: CloudRunWords, *, local: LocalService | None = None) -> int:
    """Send the program and follow it, or show what would travel; returns the exit code. `local`: of `start_service`."""
    from airflow_training.cloud.program import send_program

    argv = [*(["-m", typed.module] if typed.module else []), *typed.words]
    if typed.dry_run:
        return _show(argv, typed)
    ranks = range(typed.replicas) if typed.all_ranks else [0]
    return send_program(argv, typed, ranks=ranks, local=local)


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


def _show(argv: list[str], options: CloudRunWords) -> int:
    """Tell what would travel, and what the run could read; returns 2 where it would be refused."""
    from airflow_training.capture.report import describe, describe_json
    from airflow_training.cloud.shared_data import describe_shared, shared_json
    from airflow_training.cloud.submit import capture_program, share_data
    from airflow_training.cloud.targets import HERE_NAME, find_target

    captured = capture_program(argv, options, cwd=Path.cwd())
    chosen = find_target(options.target).name
    shared = None
    if chosen != HERE_NAME:
        shared = share_data(captured, options, cwd=Path.cwd())
    if options.output is OutputFormat.json:
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
