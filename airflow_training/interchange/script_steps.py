"""What the lines of a batch script do: the steps that train, and what is prepared before them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_training.documents.loading import FieldLines
from airflow_training.documents.paths import Loc
from airflow_training.errors import InputError
from airflow_training.interchange.accounts import FieldAccounts, SourceField
from airflow_training.interchange.launch import CLOSE, LACKING, OPEN
from airflow_training.interchange.launchers import launcher_of
from airflow_training.interchange.options import Argument, read_options
from airflow_training.interchange.shell_script import (
    Expansion,
    Statement,
    Word,
    expand,
    split_words,
)
from airflow_training.interchange.srun import SRUN

__all__ = ["ScriptReader", "Step", "host_mark"]

_PREPARES = frozenset(
    [
        "module",
        "ml",
        "source",
        ".",
        "conda",
        "mamba",
        "micromamba",
        "spack",
        "ulimit",
        "umask",
        "shopt",
        "unset",
        "eval",
        "pyenv",
    ]
)
"""What changes the shell for all that follows."""
_PRINTS = frozenset(
    [
        "echo",
        "printf",
        "date",
        "hostname",
        "pwd",
        "nvidia-smi",
        "rocm-smi",
        "env",
        "printenv",
        "which",
        "whoami",
        "id",
        "uname",
        "sleep",
        "squeue",
        "sinfo",
        "scontrol",
        "sacct",
        "ls",
        "cat",
        "free",
        "lscpu",
        "true",
        ":",
        "df",
        "ps",
        "type",
        "dcgmi",
    ]
)
_PROGRAMS = re.compile(
    r"^(?:python[\d.]*|bash|sh|Rscript|julia|java|singularity|apptainer|exec)$|/|\.(?:sh|py)$"
)
_OF_FRAMEWORK = frozenset(
    [
        "MASTER_ADDR",
        "MASTER_PORT",
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "NODE_RANK",
        "GROUP_RANK",
        "LOCAL_WORLD_SIZE",
    ]
)
_ASSIGNS = re.compile(r"^([A-Za-z_]\w*)(\+?)=")
_LOG = re.compile(r"^(?:\d?>{1,2}|&>{1,2}|\d?>&|\|&? *tee\b)")
_STARTS = re.compile(
    r"\|&? .*?\b(?:srun|torchrun|mpirun|mpiexec|accelerate|deepspeed|python[\d.]*|bash|sh)\b"
)
_HOST = re.compile("\x03(.*?)\x04")
"""Around the name of a variable whose value is hosts, or an address."""
_OF_HOSTS = "hosts are the framework's; what names them is accounted for where it is used"
_ONCE = "ran once, on the first node of the allocation, before or after the steps; no instance does that here"
_HERE = "runs in each instance, before its command: there it ran once, and what it had set was inherited"


@dataclass(frozen=True, slots=True)
class _ExpandedWord:
    """What a shell would make of a word."""

    texts: list[str]
    lacking: frozenset[str]
    """What nobody knows the value of."""
    written: str = ""
    """How the script has it, where that is another text."""


@dataclass(slots=True)
class Step:
    """A line that trains."""

    source: SourceField
    words: list[Argument]
    after: frozenset[int]
    """Steps, by their place, that have ended when it begins."""
    last: bool = True
    """Nothing that could hide its exit code comes behind it."""

    @property
    def by_srun(self) -> bool:
        return self.words[0].text == "srun"


@dataclass(slots=True)
class ScriptReader:
    """Walks through the statements, as a shell would, and keeps what it has seen."""

    accounts: FieldAccounts
    lines: dict[Loc, int]
    variables: dict[str, str | None]
    """None: it has a value, and nobody knows it."""
    env: dict[str, str] = field(default_factory=dict)
    prepares: list[str] = field(default_factory=list)
    directory: str = ""
    steps: list[Step] = field(default_factory=list)
    distributed: bool = False
    """It says where rank 0 is: its processes find each other as PyTorch's do."""
    exits_on_error: bool = False
    comments: dict[Loc, list[str]] = field(default_factory=dict)
    _ended: set[int] = field(default_factory=set)
    """Steps that the script has waited for."""

    def read(self, statement: Statement) -> None:
        """Look at one statement and say what becomes of it."""
        before = len(self.steps)
        self._read(statement)
        if before == len(self.steps) and self.steps:
            self.steps[-1].last = False

    def _read(self, statement: Statement) -> None:
        first = statement.words[0] if statement.plain else None
        name = (first.literal or "") if first else ""
        if first is None:
            self._compound(statement)
        elif _ASSIGNS.match(first.source):
            self._assign(statement, statement.words, exported=False)
        elif name in ("export", "declare", "readonly", "typeset", "local"):
            self._assign(statement, statement.words[1:], exported=name == "export")
        elif name == "cd":
            self._enter(statement)
        elif name == "set":
            text = " ".join(word.source for word in statement.words[1:])
            self.exits_on_error = self.exits_on_error or bool(re.search(r"-\w*e|errexit", text))
            self._add(statement).drop("a step that fails fails the job in any case")
        elif name in _PREPARES:
            self._prepare(statement)
        elif name == "wait":
            self._ended |= set(range(len(self.steps)))
            self._add(statement).translate(
                ("spec", "roles"), "one that failed fails the job here; wait would tell nobody"
            )
        elif name == "exit":
            self._add(statement).drop("the job ends as its steps do")
        elif name in _PRINTS and (name != "env" or len(statement.words) == 1):
            self._print(self._add(statement), statement)
        else:
            self._command(statement)

    def _add(self, statement: Statement, item: Any = None) -> SourceField:
        """Return the field that holds a statement."""
        script = self.accounts.data["script"]
        loc: Loc = ("script", len(script))
        script.append(statement.text if item is None else item)
        self.lines[loc] = statement.line
        if statement.comments:
            self.comments[loc] = statement.comments
        return SourceField(self.accounts, loc, script[-1])

    # --- what is prepared ---

    def _compound(self, statement: Statement) -> None:
        self._add(statement).refuse(
            "is decided when the script runs; a job is told before: write the lines that it comes to"
        )
        names = re.findall(r"\b([A-Za-z_]\w*)\+?=", statement.text)
        names += re.findall(r"\bread\b[^\n]*?([A-Za-z_]\w*)\s*<<", statement.text)
        self.variables |= dict.fromkeys(names)

    def _assign(self, statement: Statement, words: Sequence[Word], *, exported: bool) -> None:
        source = self._add(statement)
        source.drop("says nothing")
        for word in words:
            written = _ASSIGNS.match(word.source)
            if written is None:
                if not word.source.startswith("-"):
                    self._export(word.literal or word.source, source)
                continue
            name = written[1]
            first = str(word.parts[0])[len(written[0]) :]
            rest = [
                each if isinstance(each, str) else Expansion(each.text, quoted=True)
                for each in word.parts[1:]
            ]
            texts, unknown = expand(Word([first, *rest], ""), self.variables)
            before = (self.variables.get(name) or "") if written[2] else ""
            value = None if unknown else before + (texts[0] if texts else "")
            self._set(name, value, unknown, statement, source, exported=exported)

    def _set(
        self,
        name: str,
        value: str | None,
        unknown: set[str],
        statement: Statement,
        source: SourceField,
        *,
        exported: bool,
    ) -> None:
        own = {each[1:] for each in unknown}
        if name in _OF_FRAMEWORK:
            self.distributed = self.distributed or name == "MASTER_ADDR"
            self.variables[name] = host_mark(name)
            source.drop(
                "ranks and addresses are the framework's: every instance finds them in its environment"
            )
        elif value is not None:
            self.variables[name] = value
            if _HOST.search(value):
                source.drop(_OF_HOSTS)
            elif exported:
                self._give(name, value, source)
            else:
                source.translate(("spec", "command"), "its value stands where it is used")
        elif exported and all(
            re.match(r"^[A-Za-z_]\w*$", each) and each not in self.variables for each in own
        ):
            # PATH=/opt/bin:$PATH is of the shell of each instance
            self.prepares.append(statement.text)
            source.translate(
                ("spec", "command"), f"{_HERE}; what it adds to is that of the instance"
            )
        elif _asks_for_hosts(unknown):
            self.variables[name] = host_mark(name)
            source.drop(_OF_HOSTS)
        else:
            self.variables[name] = None
            source.refuse(f"{LACKING}: {', '.join(sorted(unknown))}")

    def _give(self, name: str, value: str, source: SourceField) -> None:
        self.env[name] = value
        source.translate(("spec", "env"), "a variable of every instance")

    def _export(self, name: str, source: SourceField) -> None:
        value = self.variables.get(name)
        if name in _OF_FRAMEWORK or (value and _HOST.search(value)):
            self.distributed = self.distributed or name == "MASTER_ADDR"
            source.drop("hosts are the framework's")
        elif value is not None:
            self._give(name, value, source)
        else:
            source.refuse(f"{LACKING}: ${name}")

    def _enter(self, statement: Statement) -> None:
        source = self._add(statement)
        words, unknown = self._expanded(statement.words[1:])
        if unknown or len(words) != 1 or _HOST.search(words[0]) or OPEN in words[0]:
            source.refuse(f"{LACKING}: {', '.join(sorted(unknown)) or 'the folder'}")
            return
        folder = words[0]
        self.directory = (
            folder if folder.startswith("/") or not self.directory else f"{self.directory}/{folder}"
        )
        source.translate(("spec", "workingDir"), "of every instance")

    def _prepare(self, statement: Statement) -> None:
        source = self._add(statement)
        used = {
            re.sub(r"\W.*", "", part.text)
            for word in statement.words
            for part in word.parts
            if isinstance(part, Expansion)
        }
        known = {each: self.variables.get(each, "") for each in used}
        lacking = sorted(
            name for name, value in known.items() if value is None or _HOST.search(value)
        )
        if lacking or statement.redirects:
            source.refuse(f"{LACKING}: ${lacking[0]}" if lacking else _ONCE)
            return
        for each in sorted(used):
            value = self.variables.get(each)
            if value is not None and each not in self.env:
                self.prepares.append(f"{each}={_in_shell(value)}")
        self.prepares.append(statement.text)
        source.translate(("spec", "command"), _HERE)

    def _print(self, source: SourceField, statement: Statement) -> None:
        if any(">" in each or _STARTS.search(each) for each in statement.redirects):
            source.refuse(_ONCE)
        else:
            source.drop("only shows something, or waits")

    # --- what trains ---

    def _expanded(self, words: Sequence[Word]) -> tuple[list[str], set[str]]:
        found: list[str] = []
        unknown: set[str] = set()
        for word in words:
            texts, lacking = expand(word, self.variables)
            found += texts
            unknown |= lacking
        return found, unknown

    def _command(self, statement: Statement) -> None:
        words = self._unwrapped([each for each in map(self._word, statement.words) if each.texts])
        if words[1:] and words[0].texts == ["exec"]:
            words = words[1:]  # nothing comes behind it, and a launcher may
        shown = [
            [each.written] if each.written else [_shown(text) for text in each.texts]
            for each in words
        ]
        items = [texts[0] if len(texts) == 1 else texts for texts in shown]
        source = self._add(statement, items)
        arguments = [
            _argument(
                text,
                self._place(source, i, j if len(each.texts) > 1 else None, shown[i][j]),
                each.lacking,
            )
            for i, each in enumerate(words)
            for j, text in enumerate(each.texts)
        ]
        plain = [each.text for each in arguments]
        first = plain[0].rsplit("/", 1)[-1] if plain else ""
        if statement.after == "||":
            source.refuse(
                "what comes behind || is run where it fails; here its failure fails the job"
            )
        elif first == "srun" and _program(arguments) in _PRINTS - {"env"}:
            source.drop("only shows something")
        elif plain and (first == "srun" or launcher_of(plain) or _PROGRAMS.search(plain[0])):
            if all(_LOG.match(each) for each in statement.redirects):
                self.steps.append(Step(source, arguments, frozenset(self._ended)))
                if statement.after != "&":
                    self._ended.add(len(self.steps) - 1)
            else:
                source.refuse("what it reads, or another program reads of it, is no log")
        else:
            source.refuse(_ONCE)

    def _word(self, word: Word) -> _ExpandedWord:
        texts, lacking = expand(word, self.variables)
        if lacking and len(texts) < 2:
            return _ExpandedWord([word.source.strip('"')], frozenset(lacking))
        written = word.source.replace('"', "") if len(texts) == 1 and not word.literal else ""
        return _ExpandedWord(texts, frozenset(lacking), written)

    @staticmethod
    def _place(source: SourceField, i: int, j: int | None, text: str) -> SourceField:
        return SourceField(
            source.accounts, (*source.loc, i) if j is None else (*source.loc, i, j), text
        )

    def _unwrapped(self, words: list[_ExpandedWord]) -> list[_ExpandedWord]:
        """Split the one command of `bash -c "torchrun ..."`: it is what the step runs."""
        flat = [each.texts[0] if len(each.texts) == 1 else "" for each in words]
        for i in range(len(flat) - 2):
            if flat[i] in ("bash", "sh") and flat[i + 1] == "-c" and i + 3 == len(flat):
                try:
                    inside = [each for each in split_words(flat[i + 2]) if each not in ("\n", ";")]
                except InputError:
                    return words
                if all(isinstance(each, Word) for each in inside):
                    found, unknown = self._expanded(
                        [each for each in inside if isinstance(each, Word)]
                    )
                    if launcher_of(found):
                        return [*words[:i], _ExpandedWord(found, words[i + 2].lacking | unknown)]
        return words


def _program(words: Sequence[Argument]) -> str:
    """Return what srun starts, past its options; empty: nothing, or an option is not known."""
    silent = FieldAccounts({}, FieldLines.known({}))
    plain = [Argument(word.text, SourceField(silent, (), word.text)) for word in words[1:]]
    rest = read_options(plain, SRUN).rest
    return rest[0].text if rest else ""


def _asks_for_hosts(unknown: set[str]) -> bool:
    signs = (
        "scontrol",
        "NODELIST",
        "hostname",
        "HOSTNAME",
        "HOSTFILE",
        "MACHINE",
        "(array)",
        "nodes",
    )
    return any(sign in each for each in unknown for sign in signs)


def host_mark(name: str) -> str:
    """Return the value of a variable that names hosts: nobody knows it, and it may stand inside of others."""
    return f"\x03{name}\x04"


def _shown(text: str) -> str:
    return _HOST.sub(r"$\1", text).replace(OPEN, "$").replace(CLOSE, "")


def _in_shell(value: str) -> str:
    """Return a value as a shell reads it, with variables of the instance put in."""
    quoted = re.sub(r'(["\\`$])', r"\\\1", value)
    return '"' + quoted.replace(OPEN, "${").replace(CLOSE, "}") + '"'


def _argument(text: str, source: SourceField, lacking: frozenset[str]) -> Argument:
    hosts = {f"${name}" for name in _HOST.findall(text)}
    return Argument(_HOST.sub(r"$\1", text), source, lacking | hosts)
