"""YAML 1.2 and JSON text to plain data, and the line of every field. Knows nothing of jobs.

Scalars follow YAML 1.2's core schema: `on`, `yes`, `no`, `2026-01-01` and `1:30` stay text, `0o17`
is a number. Anchors and `<<` work. A good document costs one pass; lines are found only on demand.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.resolver import BaseResolver

from airflow_training.documents.core_schema import (
    BOOL,
    FLOAT,
    INT,
    MERGE,
    NULL,
    STR,
    CoreSchema,
    NodeReader,
)
from airflow_training.documents.paths import Loc, format_path, split_path
from airflow_training.documents.yaml_mistakes import QUOTE_TEMPLATE, explain
from airflow_training.errors import InputError, Problem

__all__ = ["MAX_NODES", "FieldLines", "LoadedDocument", "dump_yaml", "load_documents", "read_file"]

MAX_BYTES = 10 * 1024 * 1024
"""No job file is larger; whoever writes one shall not fill our memory."""
MAX_NODES = 200_000
"""Values of a text, and of a document after its aliases are expanded (each repeats what it names)."""
_TOO_DEEP = "is nested too deeply"
_TOO_MANY = f"has more than {MAX_NODES} values"
MAX_DEPTH = 100
MAX_DOCUMENTS = 1000
_SUSPICIOUS_NESTING = 2_000
"""With more brackets and dashes than this, depth is measured before libyaml recurses into them."""

_COLLECTIONS = frozenset({BaseResolver.DEFAULT_MAPPING_TAG, BaseResolver.DEFAULT_SEQUENCE_TAG})


@dataclass(slots=True)
class FieldLines:
    """Line numbers of one document's fields, found when first asked for."""

    _text: str
    """Of this document alone."""
    _before: int = 0
    """Lines of the file before it."""
    _known: dict[Loc, int] | None = None

    @classmethod
    def known(cls, lines: dict[Loc, int]) -> FieldLines:
        """Return lines that somebody else has found, who may still add to them."""
        return cls("", 0, lines)

    def of(self, field_path: str | Sequence[str | int]) -> int | None:
        """Return the line (from 1) of a field, or of the nearest thing around it that is written."""
        loc = split_path(field_path) if isinstance(field_path, str) else tuple(field_path)
        if self._known is None:
            self._known = self._find_all()
        loc = loc or ()
        while loc and loc not in self._known:
            loc = loc[:-1]
        return self._known.get(loc)

    def _find_all(self) -> dict[Loc, int]:
        known: dict[Loc, int] = {}
        try:
            node = next(_nodes(self._text), None)
        except (yaml.YAMLError, RecursionError, _OversizedError):
            return known  # JSON that is no YAML, or text that never was either
        if node is not None:
            known[()] = node.start_mark.line + 1
            _mark_lines(node, (), known)
        return {loc: line + self._before for loc, line in known.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedDocument:
    """One document of a text: plain data and the mistakes of its syntax."""

    data: Any
    lines: FieldLines
    problems: Sequence[Problem] = field(default_factory=tuple)


def read_file(path: str | Path) -> str:
    """Return the text of a file; raises `InputError` where that is impossible."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise _unreadable(path, f"is larger than {MAX_BYTES} bytes")
        return content.decode("utf-8-sig")
    except OSError as error:
        raise _unreadable(path, error.strerror or "cannot be read") from error
    except UnicodeDecodeError as error:
        raise _unreadable(path, "is no UTF-8 text") from error


def load_documents(text: str, path: str = "") -> Sequence[LoadedDocument]:
    """Return the documents of a YAML or JSON text; empty ones are left out. Raises nothing."""
    if len(text) > MAX_BYTES:
        return (_too_much(f"is larger than {MAX_BYTES} characters"),)
    if path.endswith(".json") or text.lstrip()[:1] in ("{", "["):
        loaded = _load_json(text)
        if loaded is not None:
            return (loaded,)
        if path.endswith(".json"):
            return (_broken_json(text),)
    return tuple(_load_yaml(text))


def dump_yaml(data: Any) -> str:
    """Return plain data as YAML that means the same in YAML 1.1 and 1.2."""
    return yaml.dump(
        data,
        Dumper=_dumper(),
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=False,
        width=100,
    )


def _unreadable(path: str | Path, message: str) -> InputError:
    return InputError.of(
        code="bad_reference", field="", message=message, value=str(path), path=str(path)
    )


# --- YAML ---------------------------------------------------------------------------------------


def _nodes(text: str) -> Iterator[Node]:
    _refuse_mountains(text)
    reader = NodeReader(text)
    try:
        while reader.check_node():
            node = reader.get_node()
            if node is not None and not _is_empty(node):
                yield node
    finally:
        dispose = getattr(reader, "dispose", None)
        if dispose is not None:
            dispose()


def _refuse_mountains(text: str) -> None:
    """Raise before the composer, which recurses in C, runs out of stack, or anything of time."""
    nesting = sum(text.count(mark) for mark in ("[", "{", "- ", "-\t", "? "))
    if nesting < _SUSPICIOUS_NESTING and len(text) <= MAX_NODES:
        return
    depth = values = 0
    reader: Any = NodeReader(text)
    while reader.check_event():
        event = reader.get_event()
        values += isinstance(event, yaml.NodeEvent)
        if values > MAX_NODES:
            raise _OversizedError(_TOO_MANY)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise RecursionError
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _is_empty(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.tag == NULL


def _load_yaml(text: str) -> Iterator[LoadedDocument]:
    try:
        for index, node in enumerate(_nodes(text)):
            problems: list[Problem] = []
            lines = _lines_of(node, text)
            oversized = _too_large(node) if "*" in text or len(text) > MAX_NODES else ""
            if index == MAX_DOCUMENTS:
                oversized = f"the file holds more than {MAX_DOCUMENTS} documents"
            if oversized:
                problems.append(Problem(code="syntax", field="", message=oversized))
                yield LoadedDocument(data=None, lines=lines, problems=problems)
            else:
                data = _construct(node, (), problems)
                yield LoadedDocument(data=data, lines=lines, problems=problems)
            if index == MAX_DOCUMENTS:
                return
    except RecursionError:
        yield _too_much(_TOO_DEEP)
    except _OversizedError as error:
        yield _too_much(str(error))
    except yaml.YAMLError as error:
        yield LoadedDocument(data=None, lines=FieldLines(""), problems=(explain(error, text),))


def _lines_of(node: Node, text: str) -> FieldLines:
    start, end = node.start_mark, node.end_mark
    return FieldLines(" " * start.column + text[start.index : end.index], start.line)


def _too_much(message: str) -> LoadedDocument:
    problem = Problem(code="syntax", field="", message=message)
    return LoadedDocument(data=None, lines=FieldLines(""), problems=(problem,))


def _too_large(root: Node) -> str:
    """Return why a document must not be expanded, or nothing."""
    sizes: dict[int, int] = {}
    open_nodes: set[int] = set()

    def size(node: Node, depth: int) -> int:
        known = sizes.get(id(node))
        if known is not None:
            return known
        if id(node) in open_nodes:
            raise _OversizedError("an alias names something that contains it")
        if depth > MAX_DEPTH:
            raise _OversizedError(_TOO_DEEP)
        open_nodes.add(id(node))
        total = 1
        if isinstance(node, MappingNode):
            total += sum(size(key, depth + 1) + size(value, depth + 1) for key, value in node.value)
        elif isinstance(node, SequenceNode):
            total += sum(size(item, depth + 1) for item in node.value)
        open_nodes.discard(id(node))
        if total > MAX_NODES:
            raise _OversizedError(f"has more than {MAX_NODES} values once its aliases are expanded")
        sizes[id(node)] = total
        return total

    try:
        size(root, 0)
    except _OversizedError as error:
        return str(error)
    return ""


class _OversizedError(Exception):
    """Raised in this module only: the text is more than anybody should take in."""


def _construct(node: Node, loc: Loc, problems: list[Problem]) -> Any:
    if isinstance(node, ScalarNode):
        return _scalar(node, loc, problems)
    if len(loc) > MAX_DEPTH:
        raise RecursionError
    if node.tag not in _COLLECTIONS:
        problems.append(_unknown_tag(node, loc, None))
    if isinstance(node, SequenceNode):
        return [_construct(item, (*loc, i), problems) for i, item in enumerate(node.value)]
    found: dict[Any, Any] = {}
    inherited: dict[Any, Any] = {}
    for key_node, value_node in node.value:
        if key_node.tag == MERGE:
            for base in value_node.value if isinstance(value_node, SequenceNode) else [value_node]:
                data = _construct(base, loc, problems)
                if isinstance(data, dict):
                    inherited = {**data, **inherited}
                else:
                    problems.append(_bad_key(key_node, loc, "'<<' needs a mapping to take from"))
            continue
        if not isinstance(key_node, ScalarNode):
            hint = QUOTE_TEMPLATE if isinstance(key_node, MappingNode) else ""
            problems.append(_bad_key(key_node, loc, "a key must be text", hint))
            continue
        key = _scalar(key_node, loc, problems)
        if not isinstance(key, str):
            # YAML reads `1:` and `true:` as other types; every key of ours is text
            key = key_node.value
        here = (*loc, key)
        if key in found:
            problems.append(_duplicate(key, here, key_node.start_mark.line + 1))
        found[key] = _construct(value_node, here, problems)
    return {**inherited, **found} if inherited else found


def _scalar(node: ScalarNode, loc: Loc, problems: list[Problem]) -> Any:
    tag, text = node.tag, node.value
    if tag == STR:
        return text
    if tag == NULL:
        return None
    try:
        if tag == BOOL:
            return {"true": True, "false": False}[text.lower()]
        if tag == INT:
            sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
            base = {"0o": 8, "0x": 16}.get(digits[:2], 10)
            return sign * int(digits[2:] if base != 10 else digits, base)
        if tag == FLOAT:
            return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    except (KeyError, ValueError):
        pass
    if tag == MERGE:
        return text
    problems.append(_unknown_tag(node, loc, text))
    return text


def _unknown_tag(node: Node, loc: Loc, value: str | None) -> Problem:
    return Problem(
        code="syntax",
        field=format_path(loc),
        message=f"the tag {node.tag!r} is not known, or not possible here",
        value=value,
        line=node.start_mark.line + 1,
    )


def _bad_key(node: Node, loc: Loc, message: str, hint: str = "") -> Problem:
    line = node.start_mark.line + 1
    return Problem(code="syntax", field=format_path(loc), message=message, hint=hint, line=line)


def _duplicate(key: str, loc: Loc, line: int | None) -> Problem:
    message = f"the key '{key}' is given twice"
    return Problem(code="duplicate", field=format_path(loc), value=key, message=message, line=line)


def _mark_lines(node: Node, loc: Loc, known: dict[Loc, int], depth: int = 0) -> None:
    if depth > MAX_DEPTH or len(known) > MAX_NODES:
        return  # aliases can make a small text endless
    if isinstance(node, MappingNode):
        for key_node, value_node in node.value:
            if isinstance(key_node, ScalarNode):
                here = (*loc, key_node.value)
                known[here] = key_node.start_mark.line + 1
                _mark_lines(value_node, here, known, depth + 1)
    elif isinstance(node, SequenceNode):
        for i, item in enumerate(node.value):
            known[(*loc, i)] = item.start_mark.line + 1
            _mark_lines(item, (*loc, i), known, depth + 1)


# --- JSON ---------------------------------------------------------------------------------------


def _load_json(text: str) -> LoadedDocument | None:
    """Return the document, or None where the text is no JSON."""
    repeated: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in items:
            if key in found:
                repeated.append(key)
            found[key] = value
        return found

    try:
        data = json.loads(text, object_pairs_hook=pairs, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None
    if sum(text.count(mark) for mark in ",[{:") > MAX_DEPTH and (excess := _excess(data)):
        return _too_much(excess)
    # inside JSON strings a tab is always written \t, so every real one is indentation
    spaced = text.replace("\t", " ")
    if repeated:
        found = next(iter(_load_yaml(spaced)))
        if found.problems:
            return LoadedDocument(data=data, lines=found.lines, problems=found.problems)
        problems = [_duplicate(key, (), None) for key in repeated]
        return LoadedDocument(data=data, lines=FieldLines(spaced), problems=problems)
    return LoadedDocument(data=data, lines=FieldLines(spaced))


def _excess(data: Any) -> str:
    """Return why there is more in JSON data than anybody should take in, or nothing."""
    values, depth, level = 1, 1, [data]
    while level:
        if depth > MAX_DEPTH:
            return _TOO_DEEP
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                values += 2 * len(value)
                below += value.values()
            elif isinstance(value, list):
                values += len(value)
                below += value
        if values > MAX_NODES:
            return _TOO_MANY
        depth, level = depth + 1, below
    return ""


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is no JSON")


def _broken_json(text: str) -> LoadedDocument:
    line: int | None = None
    message = "is no JSON"
    try:
        json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        line, message = error.lineno, error.msg
    except (ValueError, RecursionError) as error:
        message = str(error)
    problem = Problem(code="syntax", field="", message=message, line=line)
    return LoadedDocument(data=None, lines=FieldLines(""), problems=(problem,))


# --- writing ------------------------------------------------------------------------------------

_BLOCK = re.compile(r"[^\x00-\x08\x0b-\x1f\x7f\x85\u2028\u2029\ufeff]*")


@lru_cache(maxsize=1)
def _dumper() -> type[yaml.SafeDumper]:
    """Return PyYAML's safe dumper with block style for text of several lines."""
    base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

    class Dumper(base):  # type: ignore[misc] # libyaml's where it is there
        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's signature
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> ScalarNode:
        block = "\n" in value and _BLOCK.fullmatch(value)
        style = "|" if block else None
        if style is None:
            # a line break of its own kind survives only as an escape
            style = '"' if not _BLOCK.fullmatch(value) else "'" if _means_another(value) else None
        return dumper.represent_scalar(STR, value, style=style)

    def number(dumper: yaml.SafeDumper, value: float) -> ScalarNode:
        if math.isfinite(value):
            # repr writes 1e+16, which YAML 1.1 reads as text
            shown = repr(value)
            if "e" in shown and "." not in shown:
                shown = shown.replace("e", ".0e")
            return dumper.represent_scalar(FLOAT, shown)
        return dumper.represent_float(value)

    Dumper.add_representer(str, text)
    Dumper.add_representer(float, number)
    found: type[yaml.SafeDumper] = Dumper
    return found


_RESOLVER: Any = CoreSchema()


def _means_another(value: str) -> bool:
    """Return whether plain text would be read as a number, a bool or nothing by our reader."""
    return bool(_RESOLVER.resolve(ScalarNode, value, (True, False)) != STR)
