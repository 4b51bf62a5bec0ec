r"""Formats that users add: read from YAML, and refused with the reason where they would be slow or never match.

- name: trainer
  line: 'it {step}/{total_steps} loss={loss} \[{step_time_seconds:ms} ms\]'
  pairs: signed
  example: 'it 5/900 loss=2.31 [33 ms]'
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from airflow_training.documents.spelling import did_you_mean
from airflow_training.errors import InputError, Problem
from airflow_training.logs.engine.formats import LONGEST_METRIC_LINE
from airflow_training.logs.engine.patterns import SHORTEST_LITERAL, required_literals
from airflow_training.logs.engine.syntax import faults, parse
from airflow_training.logs.metrics.formats import Format, make_format, units_of
from airflow_training.logs.metrics.lines import parse_line
from airflow_training.logs.metrics.numbers import UNITS

__all__ = ["make_formats", "read_patterns"]

_KEYS = ("name", "line", "example", "pairs", "around", "names", "units", "anchor", "unless")
_PAIRS = ("signed", "worded", "both", "none")


def read_patterns(path: Path) -> tuple[Format, ...]:
    """Return the formats of a file; raises InputError with every mistake in it."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        text = f"cannot be read: {error.strerror}"
        raise InputError.of(
            code="bad_reference", field="--patterns", message=text, value=str(path)
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        text = f"is no YAML: {' '.join(str(error).split())}"
        raise InputError.of(
            code="syntax", field="--patterns", message=text, value=str(path)
        ) from error
    return make_formats(document)


def make_formats(document: Any, *, field: str = "patterns") -> tuple[Format, ...]:
    """Return the formats of a list of entries; raises InputError with every mistake in them.

    `field`: where the list stands.
    """
    if not isinstance(document, list) or not document:
        message = "must be a list of formats, each with name, line and example"
        raise InputError.of(code="wrong_type", field=field, message=message)
    problems: list[Problem] = []
    formats: list[Format] = []
    for index, entry in enumerate(document):
        here = f"{field}[{index}]"
        mistakes = list(_mistakes(here, entry))
        if not mistakes:
            formats.append(
                make_format("user", {**entry, "anchor": entry.get("anchor") or _anchor(entry)})
            )
            mistakes = list(_example_mistakes(here, formats[-1], own_anchor="anchor" in entry))
        problems += mistakes
    if problems:
        raise InputError(problems=problems)
    return tuple(formats)


def _mistakes(field: str, entry: Any) -> Iterator[Problem]:
    """Yield what is wrong with an entry before it is tried on its example."""
    if not isinstance(entry, Mapping):
        yield Problem(code="wrong_type", field=field, message="must be a mapping", value=entry)
        return
    for key in entry:
        if key not in _KEYS:
            yield Problem(
                code="unknown_key",
                field=f"{field}.{key}",
                message="is no key of a format",
                allowed=_KEYS,
                hint=did_you_mean(str(key), _KEYS),
            )
    for key in ("name", "line", "example"):
        if not isinstance(entry.get(key), str) or not entry[key]:
            yield Problem(code="missing", field=f"{field}.{key}", message="must be a text")
        elif len(entry[key]) > LONGEST_METRIC_LINE:
            message = f"has {len(entry[key])} characters, at most {LONGEST_METRIC_LINE} are read"
            yield Problem(code="out_of_range", field=f"{field}.{key}", message=message)
            return
    for key in ("anchor", "unless"):
        if key in entry and not isinstance(entry[key], str):
            yield Problem(code="wrong_type", field=f"{field}.{key}", message="must be a text")
    for key in ("names", "units"):
        texts = entry.get(key, {})
        if not isinstance(texts, Mapping) or not all(isinstance(x, str) for x in texts.values()):
            yield Problem(
                code="wrong_type", field=f"{field}.{key}", message="must map texts to texts"
            )
            return
    if entry.get("pairs", "none") not in _PAIRS:
        yield Problem(
            code="not_allowed",
            field=f"{field}.pairs",
            message="is no way to read pairs",
            value=entry["pairs"],
            allowed=_PAIRS,
        )
    if not isinstance(entry.get("line"), str):
        return
    yield from _unit_mistakes(f"{field}.line", units_of(entry["line"]))
    yield from _unit_mistakes(f"{field}.units", entry.get("units", {}).values())
    for key in ("line", "anchor", "unless"):
        if isinstance(entry.get(key), str):
            pattern = entry[key] if key != "line" else _without_tokens(entry[key])
            yield from _pattern_mistakes(f"{field}.{key}", pattern, must_be_fast=key == "anchor")
    if "anchor" not in entry:
        yield from _literal_mistakes(f"{field}.line", _without_tokens(entry["line"]))


def _unit_mistakes(field: str, units: Any) -> Iterator[Problem]:
    allowed = (*sorted(unit for unit in UNITS if unit), "clock")
    for unit in units:
        if unit not in allowed:
            yield Problem(
                code="not_allowed",
                field=field,
                message="has a unit that is not known",
                value=unit,
                allowed=allowed,
                hint=did_you_mean(unit, allowed),
            )


def _pattern_mistakes(field: str, pattern: str, *, must_be_fast: bool) -> Iterator[Problem]:
    """Yield why a pattern cannot be searched in any log of any size."""
    try:
        parsed = parse(pattern.encode())
    except re.error as error:
        yield Problem(code="syntax", field=field, message=f"is no pattern: {error}", value=pattern)
        return
    for reason, hint in faults(parsed):
        yield Problem(code="not_allowed", field=field, message=reason, value=pattern, hint=hint)
        return
    if must_be_fast:
        yield from _literal_mistakes(field, pattern)


def _literal_mistakes(field: str, pattern: str) -> Iterator[Problem]:
    """Yield whether a pattern has no text to look for, so that it would be tried on every line."""
    try:
        literals = required_literals(pattern)
    except re.error:
        return
    if not literals or min(map(len, literals)) < SHORTEST_LITERAL:
        yield Problem(
            code="not_allowed",
            field=field,
            message=f"would be slow: it has no fixed text of {SHORTEST_LITERAL} or more characters that every"
            " such line holds",
            value=pattern,
            hint="write such a text into it, or name one as `anchor`",
        )


def _example_mistakes(field: str, format_: Format, *, own_anchor: bool) -> Iterator[Problem]:
    """Yield why a format does not give values for its own example."""
    line = format_.example.encode()
    if own_anchor and not re.search(format_.anchor.encode(), line):
        yield Problem(
            code="not_allowed",
            field=f"{field}.anchor",
            message="never matches: it is not in the example",
            value=format_.anchor,
        )
        return
    found = parse_line(line, (format_,))
    if found is None or found.format != format_.name:
        yield Problem(
            code="not_allowed",
            field=f"{field}.line",
            message="never matches: not even the example, or no number of it is a metric",
            value=format_.example,
            hint="`{name}` stands for a number; write \\[ \\( \\. \\| for the signs themselves",
        )


def _without_tokens(line: str) -> str:
    """Return a line's pattern with a digit for each token that is a number, to look at all else."""
    line = line.replace("{text}", ".*?")
    return re.sub(r"\{[A-Za-z_][\w /-]*(?::[^{}]+)?\}", r"[0-9]", line)


def _anchor(entry: Mapping[str, Any]) -> str:
    """Return a pattern that finds the fixed text of a line."""
    literals = required_literals(_without_tokens(entry["line"]))
    return "|".join(re.escape(text.decode("utf-8", "replace")) for text in literals)
