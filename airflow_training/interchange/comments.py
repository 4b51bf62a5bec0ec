"""Comments that stand above a field of the source, put above the field of ours that it became."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from airflow_training.documents.loading import FieldLines, load_documents
from airflow_training.documents.paths import Loc

__all__ = ["comments_above", "with_comments"]


def comments_above(text: str, data: Any, lines: FieldLines) -> dict[Loc, list[str]]:
    """Return the comment lines above each field of one document of a text, without indentation."""
    place_at: dict[int, Loc] = {}
    for loc in _places(data, ()):
        begins = lines.of(loc)
        if begins is not None:
            place_at.setdefault(begins, loc)  # the outermost thing that begins there
    found: dict[Loc, list[str]] = {}
    pending: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        bare = line.strip()
        if bare.startswith("#"):
            pending.append(line)
        elif bare and pending:
            if number in place_at:
                # text inside a block scalar is always indented more than the key behind it
                depth = _depth(line)
                kept = [each.strip() for each in pending if _depth(each) <= depth]
                if kept:
                    found[place_at[number]] = kept
            pending = []
    return found


def with_comments(
    text: str, comments: dict[Loc, list[str]], target_of: Callable[[Loc], Loc | None]
) -> str:
    """Return our document with the comments of fields that are still there."""
    (document,) = load_documents(text)
    known = set(_places(document.data, ()))
    above: dict[int, list[str]] = {}
    for loc, words in comments.items():
        target = target_of(loc)
        while target and target not in known:
            target = target[:-1]
        line = document.lines.of(target) if target else None
        if line is not None:
            above.setdefault(line, []).extend(words)
    return "".join(_commented(text.splitlines(keepends=True), above))


def _commented(lines: Sequence[str], above: dict[int, list[str]]) -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
        for words in above.get(number, ()):
            yield f"{' ' * _depth(line)}{words}\n"
        yield line


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _places(value: Any, loc: Loc) -> Iterator[Loc]:
    """Yield every place of the data, outer ones first."""
    if loc:
        yield loc
    if isinstance(value, dict):
        for key, inside in value.items():
            yield from _places(inside, (*loc, key))
    elif isinstance(value, list):
        for i, inside in enumerate(value):
            yield from _places(inside, (*loc, i))
