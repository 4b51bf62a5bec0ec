"""What a command line that starts several processes becomes, whichever program it calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_training.documents.paths import Loc
from airflow_training.interchange.options import Argument, CommandLine

__all__ = [
    "CLOSE",
    "LACKING",
    "NPROC",
    "OPEN",
    "RENDEZVOUS",
    "REPLICAS",
    "Launch",
    "LaunchSite",
    "begin_launch",
    "command_word",
    "lacks",
    "need_program",
    "plain_command",
    "refuse_default",
    "translate_options",
    "whole_option",
]

OPEN, CLOSE = "\x01", "\x02"
"""Around the name of a variable that an instance has, in words that are no text of the source."""
LACKING = "is known only where the script runs, write its value"
RENDEZVOUS = "ranks, addresses and rendezvous are the framework's: every instance finds them in its environment"
NPROC = ("spec", "parameters", "nprocPerNode")
REPLICAS = ("spec", "roles", 0, "replicas")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSite:
    """What stands around a command line."""

    nodes: int = 1
    """Machines on which the line is run, or which its hosts are."""
    tasks_per_node: int = 1
    gpus: int | None = None
    """GPUs of each; None: nobody said."""
    before: Sequence[str] = ()
    """Words of our command that stand before the line."""
    to: Loc = ("spec", "command")


@dataclass(slots=True)
class Launch:
    """What a command line becomes."""

    framework: str
    replicas: int = 1
    """Instances that train."""
    least: int | None = None
    """Of an elastic role."""
    command: list[str] = field(default_factory=list)
    parameters: dict[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    """What Slurm would tell each of its tasks."""
    restarts: int = 0
    to: Loc = ("spec", "command")

    def keep(self, words: Sequence[Argument], why: str = "") -> None:
        """Take words over as they are."""
        for word in words:
            place, text = (*self.to, len(self.command)), command_word(word.text)
            if word.lacking:
                word.source.refuse(f"{LACKING}: {', '.join(sorted(word.lacking))}")
            elif text == word.source.value:
                word.source.keep(place, why)
            else:
                word.source.translate(place, why or "the word that the shell would make of it")
            self.command.append(text)


def begin_launch(framework: str, site: LaunchSite) -> Launch:
    """Return a launch of which nothing but its place is known."""
    return Launch(framework, replicas=site.nodes, command=list(site.before), to=site.to)


def command_word(text: str) -> str:
    """Return a word as our documents write it: braces and dollars mean something there."""
    plain = text.replace("$$", "$$$$").replace("$(", "$$(").replace("{{", "{{ '{{' }}")
    return plain.replace(OPEN, "$(").replace(CLOSE, ")")


def whole_option(line: CommandLine, default: int, *names: str, least: int = 1) -> int:
    """Return the number that an option says; another value is a mistake."""
    value = line.last(*names)
    if value is None or lacks(line, *names):
        return default
    if value.isdecimal() and int(value) >= least:
        return int(value)
    source = line.words(*names)[0].source
    message = f"must be a whole number of {least} or more, not {value!r}"
    source.accounts.mistake(source.loc, "wrong_type", message)
    return default


def lacks(line: CommandLine, *names: str) -> bool:
    """Refuse a value that is known only where the script runs."""
    lacking = {each for word in line.words(*names) for each in word.lacking}
    if lacking:
        line.refuse(f"{LACKING}: {', '.join(sorted(lacking))}", *names)
    return bool(lacking)


def translate_options(line: CommandLine, to: tuple[str | int, ...], why: str, *names: str) -> None:
    """Say of options, and of their values, what they become."""
    if not lacks(line, *names):
        for word in line.words(*names):
            word.source.translate(to, why)


def refuse_default(words: Sequence[Argument], name: str, why: str) -> None:
    """Refuse what nobody wrote, and the launcher would look up where it runs."""
    source = words[0].source
    source.accounts.default((*source.loc[:-1], name), "not given", "refused", why=why)


def need_program(line: CommandLine, program: Sequence[Argument]) -> None:
    """Note a mistake where a launcher is given nothing to start."""
    if not line.rest:
        source = program[-1].source
        source.accounts.mistake(source.loc, "missing", f"{program[-1].text} is given no program")


def plain_command(words: Sequence[Argument], framework: str, site: LaunchSite) -> Launch:
    """Return a command that no launcher starts."""
    found = begin_launch(framework, site)
    found.keep(words)
    return found
