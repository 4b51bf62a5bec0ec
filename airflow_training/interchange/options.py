"""Options of a command line: which there are, how many words each takes, and where its first argument stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from airflow_training.interchange.accounts import SourceField

__all__ = ["Argument", "CommandLine", "OptionSet", "read_options"]


@dataclass(frozen=True, slots=True)
class Argument:
    """A word of a command line, and the field of the source that holds it."""

    text: str
    source: SourceField
    lacking: frozenset[str] = frozenset()
    """What a shell would have put in, and nobody knows; it is left in `text` as it is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionSet:
    """The options of one program. Names without dashes in front, with `-` for `_`."""

    program: str
    values: frozenset[str]
    """Options that take one word."""
    flags: frozenset[str] = frozenset()
    pairs: frozenset[str] = frozenset()
    """Options that take two words."""
    short: Mapping[str, str] = field(default_factory=dict)
    """`n` -> the option that `-n` means."""
    prefixes: tuple[str, ...] = ()
    """Beginnings of further options that take a word."""
    single_dash: bool = False
    """`-npernode` is an option, not letters."""


@dataclass(slots=True)
class CommandLine:
    """What a command line says: options by name, in order, and everything behind them."""

    options: list[tuple[str, str, Sequence[Argument]]] = field(default_factory=list)
    rest: Sequence[Argument] = ()

    def last(self, *names: str) -> str | None:
        """Return the value of the last of these options that is given."""
        return next((value for name, value, _ in reversed(self.options) if name in names), None)

    def words(self, *names: str) -> list[Argument]:
        """Return all words of these options."""
        return [word for name, _, words in self.options if name in names for word in words]

    def drop(self, why: str, *names: str) -> None:
        for word in self.words(*names):
            word.source.drop(why)

    def refuse(self, why: str, *names: str) -> None:
        for word in self.words(*names):
            word.source.refuse(why)


def read_options(words: Sequence[Argument], known: OptionSet) -> CommandLine:
    """Split options from what they are for; an unknown option is a mistake, as nobody can say where it ends."""
    line = CommandLine()
    i = 0
    while i < len(words):
        word = words[i]
        text = word.text
        if text == "--":
            word.source.drop("only ends the options")
            i += 1
            break
        if not text.startswith("-") or text == "-":
            break
        written, equals, value = text.lstrip("-").partition("=")
        name = written.replace("_", "-")
        if text[1] != "-" and not (known.single_dash and _is_known(name, known)):
            letter = known.short.get(written[:1])
            if written in known.short:
                name = known.short[written]
            elif letter and letter in known.values:  # -n4
                line.options.append((letter, text[2:].removeprefix("="), [word]))
                i += 1
                continue
            elif letter and all(known.short.get(each) in known.flags for each in written):
                line.options += [(known.short[each], "", [word]) for each in written]
                i += 1
                continue
            else:
                name = f"-{written}"
        takes = _takes(name, known)
        if takes is None:
            message = f"{known.program} has no option {text.partition('=')[0]} that is known here"
            word.source.accounts.mistake(word.source.loc, "not_allowed", message)
            takes = 0
        following = [] if equals else list(words[i + 1 : i + 1 + takes])
        if takes and not equals and len(following) < takes:
            message = f"{text} needs a value"
            word.source.accounts.mistake(word.source.loc, "missing", message)
        shown = value if equals else " ".join(each.text for each in following)
        line.options.append((name, shown, [word, *following]))
        i += 1 + len(following)
    line.rest = words[i:]
    return line


def _is_known(name: str, known: OptionSet) -> bool:
    return _takes(name, known) is not None


def _takes(name: str, known: OptionSet) -> int | None:
    if name in known.flags:
        return 0
    if name in known.pairs:
        return 2
    return 1 if name in known.values or name.startswith(known.prefixes or ("\0",)) else None
