"""Dataclasses to JSON text and back, by their annotations. Knows no table and no database.

Ledger entries leave out fields that have their default (a thousand pending instances are small),
so those defaults are part of the stored format. Keys that this version does not know are ignored
when reading: a newer version may have written them.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import types
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from datetime import date
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

__all__ = ["canonical", "compact_json", "from_json", "many_from_json", "plain", "to_json"]

T = TypeVar("T")
Convert = Callable[[Any], Any]

_SCALARS = (str, int, float, bool, type(None), object)


def to_json(value: Any) -> str:
    """Return a dataclass with all its fields as JSON text."""
    return json.dumps(_encoder(_cls(value), omit_defaults=False)(value), default=plain)


def compact_json(value: Any) -> str:
    """Return a dataclass as JSON text without the fields that have their default."""
    encoded = _encoder(_cls(value), omit_defaults=True)(value)
    return json.dumps(encoded, default=plain, separators=(",", ":"))


def from_json(cls: type[T], text: str) -> T:
    """Return the dataclass that `to_json` or `compact_json` wrote."""
    kind: Any = cls
    return cast("T", _decoder(kind)(json.loads(text)))


def many_from_json(cls: type[T], texts: Iterable[str]) -> list[T]:
    """Return one dataclass per text; one pass over the joined text is twice as fast as many."""
    kind: Any = cls
    return [*map(_decoder(kind), json.loads("[" + ",".join(texts) + "]"))]


def canonical(value: Any) -> str:
    """Return JSON text that is equal for equal plain values, whatever the order of their keys."""
    # Through JSON first: keys that are no strings (YAML allows them) cannot be sorted otherwise.
    return json.dumps(json.loads(json.dumps(value, default=plain)), sort_keys=True)


def plain(value: Any) -> Any:
    """Return what JSON can hold for the read-only containers and dates that documents contain."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Set):
        return sorted(value)
    if isinstance(value, Sequence):
        return list(value)
    raise TypeError(f"{type(value).__name__} cannot be stored as JSON")


def _cls(value: Any) -> Any:
    return type(value)


@functools.cache
def _encoder(cls: type, *, omit_defaults: bool) -> Convert:
    fields = []
    for each in dataclasses.fields(cls):
        default = dataclasses.MISSING
        if omit_defaults:
            default = each.default
            if each.default_factory is not dataclasses.MISSING:
                default = each.default_factory()
        convert = _convert(
            _hints(cls)[each.name], lambda kind: _encoder(kind, omit_defaults=omit_defaults)
        )
        fields.append((each.name, default, convert))

    def encode(value: Any) -> dict[str, Any]:
        encoded = {}
        for name, default, convert in fields:
            item = getattr(value, name)
            if item != default:
                encoded[name] = item if convert is None else convert(item)
        return encoded

    return encode


@functools.cache
def _decoder(cls: type) -> Convert:
    hints = _hints(cls)
    names = {each.name for each in dataclasses.fields(cls)}
    converts = {
        name: convert
        for name in names
        if (convert := _convert(hints[name], _decoder, decoding=True)) is not None
    }

    def decode(data: Mapping[str, Any]) -> Any:
        known = {name: item for name, item in data.items() if name in names}
        for name, convert in converts.items():
            if name in known:
                known[name] = convert(known[name])
        return cls(**known)

    return decode


@functools.cache
def _hints(cls: Any) -> Mapping[str, Any]:
    return get_type_hints(cls)


def _convert(
    hint: Any, nested: Callable[[Any], Convert], *, decoding: bool = False
) -> Convert | None:
    """Return how values annotated `hint` are converted, None where JSON keeps them as they are."""
    if dataclasses.is_dataclass(hint):
        return nested(hint)
    if hint is Any or hint in _SCALARS:
        return None
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return None
    if origin in (Union, types.UnionType):
        return _optional(hint, [_convert(arg, nested, decoding=decoding) for arg in args])
    if origin is tuple and args[1:] == (...,):
        return _items(
            _convert(args[0], nested, decoding=decoding), into=tuple if decoding else list
        )
    if origin in (dict, Mapping) and args[0] is str:
        return _values(_convert(args[1], nested, decoding=decoding))
    raise TypeError(f"the store has no JSON form for {hint}")


def _optional(hint: Any, converts: list[Convert | None]) -> Convert | None:
    wanted = [convert for convert in converts if convert is not None]
    if not wanted:
        return None
    if len(converts) > 2 or len(wanted) > 1:  # nothing in JSON would tell the members apart
        raise TypeError(f"the store has no JSON form for {hint}")
    convert = wanted[0]
    return lambda value: None if value is None else convert(value)


def _items(convert: Convert | None, *, into: Callable[[Iterable[Any]], Any]) -> Convert:
    if convert is None:
        return into
    return lambda values: into(map(convert, values))


def _values(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    return lambda values: {key: convert(value) for key, value in values.items()}
