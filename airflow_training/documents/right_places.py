"""Where a key belongs that stands in a wrong place, and how many seconds a duration in words is. Decides nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, get_args, get_origin

from pydantic import BaseModel

__all__ = ["right_place", "seconds_meant"]

_DEEPEST = 4
_MOST_PLACES = 2
_UNIT_SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_DURATION = re.compile(
    r"p?t?(?:(?P<d>\d+)\s*d(?:ays?)?)?\s*t?(?:(?P<h>\d+)\s*h(?:ours?)?)?\s*"
    r"(?:(?P<m>\d+)\s*m(?:in(?:ute)?s?)?)?\s*(?:(?P<s>\d+)\s*s(?:ec(?:ond)?s?)?)?",
    re.IGNORECASE,
)


def right_place(key: Any, model: type[BaseModel], branches: Callable[[Any], list[Any]]) -> str:
    """Return `'spec.restart'` of a key that models further in, or further out, know.

    Nothing where there are many such places. `branches`: the types that an annotation allows.
    """
    level: list[tuple[str, type[BaseModel]]] = [("", model)]
    seen = {model}
    for _ in range(_DEEPEST):
        found = [path or "(the top of the document)" for path, each in level if key in _names(each)]
        if found:
            places = " or ".join(f"'{path}'" for path in found)
            return places if len(found) <= _MOST_PLACES else ""
        inner = [more for path, each in level for more in _below(path, each, branches)]
        level = [(path, each) for path, each in inner if each not in seen]
        seen |= {each for _, each in level}
    return ""


def _names(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _below(
    path: str, model: type[BaseModel], branches: Callable[[Any], list[Any]]
) -> Iterator[tuple[str, type[BaseModel]]]:
    for name, field in model.model_fields.items():
        here = ".".join(filter(None, (path, field.alias or name)))
        for leaf in branches(field.annotation):
            if isinstance(leaf, type) and issubclass(leaf, BaseModel):
                yield here, leaf
            elif get_origin(leaf) is list:
                for item in (each for arg in get_args(leaf) for each in branches(arg)):
                    if isinstance(item, type) and issubclass(item, BaseModel):
                        yield f"{here}[0]", item


def seconds_meant(value: str) -> str:
    """Return `1800` of `30m`, `1h30m`, `PT30M`, `2 hours`; nothing of what is no duration."""
    found = _DURATION.fullmatch(value.strip())
    if found is None or not any(found.groupdict().values()):
        return ""
    return str(sum(int(found[unit] or 0) * seconds for unit, seconds in _UNIT_SECONDS.items()))
