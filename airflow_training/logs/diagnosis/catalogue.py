"""The causes of failure and their signatures, read from YAML: one file per cause.

Reading is strict and quick. What only an author can get wrong (slow patterns, an example that does
not match) is looked for by `faults_of`: tests run it on our files, `load` on those of users.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from airflow_training.documents.base import DnsLabel, Model
from airflow_training.documents.loading import load_documents, read_file
from airflow_training.documents.problems import problems_of
from airflow_training.errors import InputError, Problem
from airflow_training.logs.diagnosis.patterns import fault_of
from airflow_training.logs.engine.cache import cached, keep

__all__ = [
    "Catalogue",
    "Category",
    "Cause",
    "Context",
    "FactRule",
    "Retry",
    "Signature",
    "builtin_causes",
    "faults_of",
    "load",
    "read_cause",
]

Category = Literal[
    "user-error", "configuration", "data", "infrastructure", "preemption", "resource"
]
Retry = Literal["yes", "once", "no", "unknown"]
"""Whether another try can help; `unknown`: nothing says so."""
Kind = Literal["cause", "consequence", "hint"]

CAUSES_FOLDER = Path(__file__).parent.parent / "causes"
MOST_CONTEXT_LINES = 40
"""As many as a hit carries."""
_SAYS_LITTLE = 2
"""From here on a cause is what remains, and needs no signature."""


class CausePart(Model):
    """A part of a cause file."""

    model_config = ConfigDict(frozen=True, validate_assignment=False)


class Context(CausePart):
    """Something that must, or must not, stand near a hit; on the hit's own line too."""

    pattern: str
    lines: int = Field(default=0, ge=0, le=MOST_CONTEXT_LINES)

    @cached_property
    def expression(self) -> re.Pattern[str]:
        """Return the compiled pattern."""
        return re.compile(self.pattern)


class Signature(CausePart):
    """A text that a program prints, and what it means."""

    name: DnsLabel
    pattern: str
    ignore_case: bool = False
    kind: Kind = "cause"
    confidence: float = Field(gt=0, lt=1)
    survivable: bool = False
    raised: bool = False
    """Holds only in the line of an exception that nobody caught: words that say little elsewhere."""
    retry: Retry | None = None
    """Where another try does something else than the cause says: a limit of the host, in a cause that is else of the network."""
    guess: bool = False
    """Tells how a process ended (a signal), of which the cause is the most frequent reason: no evidence of it."""
    raised_in: str | None = None
    """Pattern of the frames right above the exception: of one text the place where it was raised tells more."""
    raised_by: str | None = None
    """Pattern of the frame that raised an exception, and of its source below: asked where no other signature knows it."""
    at_end: bool = False
    """Programs print it as they end too: no failure after a log says that its training is complete."""
    near: Context | None = None
    unless: Context | None = None
    example: str

    @cached_property
    def expression(self) -> re.Pattern[str]:
        """Return the compiled pattern; `$` is the end of the line."""
        return re.compile(self.pattern, re.IGNORECASE if self.ignore_case else 0)

    @cached_property
    def place(self) -> re.Pattern[str]:
        """Return the compiled pattern of the frame or frames; it matches any where none is asked for."""
        return re.compile(self.raised_by or self.raised_in or "", re.MULTILINE)


class FactRule(CausePart):
    """What the runtime saw; all that is given must hold."""

    reason: str | None = None
    signal: str | None = None
    exit_code: int | None = None
    message: str | None = None
    confidence: float = Field(gt=0, lt=1)


class Cause(CausePart):
    """One way to fail."""

    id: DnsLabel
    meaning: str
    category: Category
    retry: Retry
    advice: str
    generic: int = Field(default=0, ge=0, le=3)
    yields_to: tuple[DnsLabel, ...] = Field(default=(), strict=False)
    """Causes of any rank that its consequences follow from: a watchdog that dumps its state, from a timeout."""
    signatures: tuple[Signature, ...] = Field(default=(), strict=False)
    facts: tuple[FactRule, ...] = Field(default=(), strict=False)


_CAUSES = TypeAdapter(tuple[Cause, ...])


class Catalogue:
    """All causes by id, and their signatures by full name (`cause/name`)."""

    def __init__(self, causes: Iterable[Cause], *, own: Collection[str] = ()) -> None:
        self.own = frozenset(own)
        """Ids of the user's: who wrote them knows the program better than we do."""
        self.causes: Mapping[str, Cause] = {each.id: each for each in causes}
        self.signatures: Mapping[str, Signature] = {
            f"{cause.id}/{signature.name}": signature
            for cause in self.causes.values()
            for signature in cause.signatures
        }


def load(own: Path | None = None) -> Catalogue:
    """Return the built-in causes, and those of a user's folder, which replace ours of the same id.

    Raises InputError for the first file of the user's that has mistakes, with all of them.
    """
    if own is None or not own.is_dir():
        return _builtin()
    causes, ids = dict(builtin_causes()), []
    for path in sorted(own.glob("*.yaml")):
        cause = read_cause(path)
        faults = faults_of(cause)
        if faults:
            raise InputError(problems=faults, path=str(path))
        causes[cause.id] = cause
        ids.append(cause.id)
    return Catalogue(causes.values(), own=ids)


@lru_cache(maxsize=1)
def _builtin() -> Catalogue:
    return Catalogue(builtin_causes().values())


@lru_cache(maxsize=1)
def builtin_causes() -> Mapping[str, Cause]:
    """Return the causes that are part of the package, by id.

    As YAML is read slowly and a decision waits for this, they are kept in the user's cache folder as JSON.
    """
    paths = sorted(CAUSES_FOLDER.glob("*.yaml"))
    name = (
        f"causes-{hashlib.sha256(b''.join(path.read_bytes() for path in paths)).hexdigest()[:32]}"
    )
    known = cached(name)
    if known is not None:
        with contextlib.suppress(InputError, ValidationError):  # of another version, or damaged
            return {cause.id: cause for cause in _CAUSES.validate_json(known)}
    causes = tuple(read_cause(path) for path in paths)
    keep(name, _CAUSES.dump_json(causes, by_alias=True))
    return {cause.id: cause for cause in causes}


def read_cause(path: Path) -> Cause:
    """Return the cause that a file describes; raises InputError with all its mistakes."""
    documents = load_documents(read_file(path), path.name)
    if len(documents) != 1:
        raise InputError.of(
            code="syntax",
            field="",
            message=f"must hold one cause, not {len(documents)}",
            path=str(path),
        )
    (document,) = documents
    problems = list(document.problems)
    if not problems:
        try:
            cause = Cause.model_validate(document.data)
        except InputError as error:  # of our models' own constructor
            problems = list(error.problems)
        except ValidationError as error:
            problems = problems_of(error, model=Cause)
        else:
            if cause.id == path.stem:
                return cause
            message = f"must be called like its file: {path.stem}"
            problems = [Problem(code="not_allowed", field="id", value=cause.id, message=message)]
    raise InputError(problems=problems, path=str(path))


def faults_of(cause: Cause) -> Sequence[Problem]:
    """Return the mistakes of an author that a schema does not see."""
    faults: list[Problem] = []
    if not cause.signatures and not cause.facts and cause.generic < _SAYS_LITTLE:
        faults.append(_fault("signatures", None, "has neither signatures nor facts"))
    seen: set[str] = set()
    for number, signature in enumerate(cause.signatures):
        field = f"signatures[{number}]"
        if signature.name in seen:
            faults.append(_fault(f"{field}.name", signature.name, "is there twice"))
        seen.add(signature.name)
        faults += _signature_faults(field, signature)
    for number, rule in enumerate(cause.facts):
        if (rule.reason, rule.signal, rule.exit_code, rule.message) == (None,) * 4:
            faults.append(_fault(f"facts[{number}]", None, "says nothing but a confidence"))
        elif rule.message is not None:
            faults += _expression_faults(f"facts[{number}].message", rule.message)
    return faults


def _signature_faults(field: str, signature: Signature) -> Sequence[Problem]:
    fault = fault_of(signature.pattern)
    if fault:
        return [_fault(f"{field}.pattern", signature.pattern, fault)]
    faults: list[Problem] = []
    if not signature.expression.search(signature.example):
        message = "does not match its own pattern"
        faults.append(_fault(f"{field}.example", signature.example, message))
    for name, context in (("near", signature.near), ("unless", signature.unless)):
        if context is not None:
            faults += _expression_faults(f"{field}.{name}.pattern", context.pattern)
    if signature.raised_in is not None:
        faults += _expression_faults(f"{field}.raisedIn", signature.raised_in)
    if signature.raised_by is not None:
        faults += _expression_faults(f"{field}.raisedBy", signature.raised_by)
    if signature.raised_by is not None and signature.raised_in is not None:
        message = "cannot stand beside raisedIn: the innermost frame is one of them"
        faults.append(_fault(f"{field}.raisedBy", signature.raised_by, message))
    return faults


def _expression_faults(field: str, pattern: str) -> Sequence[Problem]:
    try:
        re.compile(pattern)
    except re.error as error:
        return [_fault(field, pattern, f"is no regular expression: {error}")]
    return []


def _fault(field: str, value: str | None, message: str) -> Problem:
    return Problem(code="not_allowed", field=field, value=value, message=message)
