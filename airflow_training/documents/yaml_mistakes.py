"""What a person did who wrote YAML that cannot be read: in plain words, with what to write instead. Pure."""

from __future__ import annotations

import re

import yaml

from airflow_training.errors import Problem

__all__ = ["QUOTE_TEMPLATE", "explain"]

QUOTE_TEMPLATE = "a value that begins with {{ is written in quotes: '{{ ... }}'"
_NO_BLANK = re.compile(r"(?:- +)*(?P<key>[\w.-]+):[^\s:/].*")
"""`key:value`, which YAML takes for one text."""
_LINE_END = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
_VALUE = re.compile(r"(?:- +)*(?:[^\s'\"#][^:]*:\s+)?(?P<value>\S.*)")
_ONE_COLUMN = "the keys of one mapping begin in one column, as do the dashes of one list"
_CLOSING = {"[": "]", "{": "}"}


def explain(error: yaml.YAMLError, text: str) -> Problem:
    """Return the mistake that a YAML reader has met, with its line."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return _syntax(str(getattr(error, "reason", "") or error), None)
    mark = error.problem_mark or error.context_mark
    said = ", ".join(part for part in (error.context, error.problem) if part)
    if mark is None:
        return _syntax(said, None)
    lines = _Lines(_LINE_END.split(text))
    # the end of a text counts as a line of its own, which nobody sees
    at = min(mark.line, max(len(lines) - 1 - (not lines[-1]), 0))
    found = _met(error, lines, at, mark.column if at == mark.line else len(lines.at(at)))
    return found or _syntax(said, at)


class _Lines(list[str]):
    """Empty beyond the end, where marks of a text that ends too early stand."""

    def at(self, line: int) -> str:
        return self[line] if line < len(self) else ""


def _syntax(message: str, at: int | None, hint: str = "") -> Problem:
    line = None if at is None else at + 1
    return Problem(code="syntax", field="", message=message, hint=hint, line=line)


def _met(error: yaml.MarkedYAMLError, lines: _Lines, at: int, column: int) -> Problem | None:
    said, line, rest = error.problem or "", lines.at(at), lines.at(at)[column:]
    if rest.startswith("\t") or "tab" in said.split():
        return _syntax(
            "a tab indents this line", at, "YAML indents with blanks, two for each level"
        )
    start = error.context_mark
    opened = lines.at(start.line)[start.column : start.column + 1] if start is not None else ""
    if start is not None and opened in ("'", '"') and said.endswith("end of stream"):
        return _syntax(f"the text that {opened} begins has no {opened} at its end", start.line)
    if start is not None and "flow" in (error.context or "") and opened in _CLOSING:
        return _syntax(
            f"a comma is missing, or the {_CLOSING[opened]} to the {opened} of line {start.line + 1}",
            at,
        )
    if start is not None and "flow" in (error.context or "") and start.line >= at and not rest:
        return _syntax("a [ or { is not closed", at)
    if said.startswith("found unknown escape"):
        hint = r"in double quotes a backslash begins an escape such as \n: use single quotes"
        return _syntax("YAML knows no such escape", at, hint)
    if start is not None and said.startswith("could not find expected ':'"):
        missing = _syntax("neither a key with a colon nor a value", start.line)
        return _no_blank(lines, start.line) or missing
    if said.startswith("mapping values"):
        return _second_colon(lines, at, column)
    if said == "found undefined alias":
        hint = "if it is text, and no alias, write it in quotes: '*...'"
        return _syntax("this alias names no anchor above it", at, hint)
    return _bad_value(line, at) or _misplaced(said, rest, at)


def _bad_value(line: str, at: int) -> Problem | None:
    found = _VALUE.fullmatch(line.strip())
    begins = found["value"][:2] if found is not None else ""
    if begins == "{{":
        return _syntax("a value without quotes cannot begin with {{", at, QUOTE_TEMPLATE)
    if begins[:1] in ("'", '"'):
        hint = "quotes go round the whole value, and a ' within '...' is written twice"
        return _syntax("text goes on behind the closing quote", at, hint)
    if begins and begins[0] in "@`%*&],}":
        message = f"a value without quotes cannot begin with {begins[0]}"
        return _syntax(message, at, f"write it in quotes: '{begins[0]}...'")
    return None


def _misplaced(said: str, rest: str, at: int) -> Problem | None:
    if rest[:1] in ("]", "}"):
        return _syntax(f"nothing has opened this {rest[0]}", at)
    if said in ("did not find expected key", "did not find expected '-' indicator"):
        return _syntax("this line does not fit those before it", at, _ONE_COLUMN)
    return None


def _no_blank(lines: _Lines, at: int) -> Problem | None:
    found = _NO_BLANK.fullmatch(lines.at(at).strip())
    if found is None:
        return None
    key = found["key"]
    return _syntax(f"no blank after the colon of {key!r}", at, f"write {key}: ...")


def _second_colon(lines: _Lines, at: int, column: int) -> Problem:
    """Two reasons: a value with a colon in it, or a line that is indented as if it were below a value."""
    key, colon, _ = lines.at(at).partition(": ")
    if colon and len(key) < column:
        hint = f"write it in quotes: {key.strip()}: '...'"
        return _syntax("a value without quotes cannot have a colon and a blank in it", at, hint)
    before = next((each for each in range(at - 1, -1, -1) if lines.at(each).strip()), None)
    if before is not None and (found := _no_blank(lines, before)) is not None:
        return found
    message = "this line is below a value, where no keys can be"
    return _syntax(message, at, _ONE_COLUMN)
