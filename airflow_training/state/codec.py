"""Dataclasses to JSON text and back, by their annotations. Knows no table and no database.

A class that has `to_document` and `from_document` is stored as these say, any other by its fields. Ledger entries leave out fields that have their default (a thousand pending instances are small),
so those defaults are part of the stored format. Keys that this version does not know are ignored
when reading: a newer version may have written them.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from datetime import date
from typing import (
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

__all__ = ["canonical", "compact_json", "from_json", "many_from_json", "to_json", "to_plain"]

T = TypeVar("T")
Convert = Callable[[Any], Any]

_SCALARS = (str, int, float, bool, type(None), object)


def to_json(value: Any) -> str:
    """Return a dataclass with all its fields as JSON text."""
    return json.dumps(_encoder(_cls(value), omit_defaults=False)(value), default=to_plain)


def compact_json(value: Any) -> str:
    """Return a dataclass as JSON text without the fields that have their default."""
    encoded = _encoder(_cls(value), omit_defaults=True)(value)
    return json.dumps(encoded, default=to_plain, separators=(",", ":"))


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
    return json.dumps(json.loads(json.dumps(value, default=to_plain)), sort_keys=True)


def to_plain(value: Any) -> Any:
    """Convert the read-only containers and dates of documents to values that JSON can hold."""
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


class _StoredField(NamedTuple):
    """One field of a class, and how it is stored."""

    name: str
    stored: str
    default: Any
    inline: bool
    """Whether what it holds is stored among the fields of the class itself."""
    hint: Any


def _fields(cls: Any) -> Iterator[_StoredField]:
    hints = _hints(cls)
    for each in dataclasses.fields(cls):
        stored = each.metadata.get("stored", each.name)
        if stored is None:
            continue
        default = each.default
        if each.default_factory is not dataclasses.MISSING:
            default = each.default_factory()
        yield _StoredField(
            each.name,
            stored,
            default,
            each.metadata.get("inline", False),
            hints[each.name],
        )


@functools.cache
def _encoder(cls: type, *, omit_defaults: bool) -> Convert:
    def nested(kind: type) -> Convert:
        return _encoder(kind, omit_defaults=omit_defaults)

    fields = [
        (
            each.name,
            each.stored,
            each.default if omit_defaults else dataclasses.MISSING,
            each.inline,
            _inline_encoder(each.hint, nested) if each.inline else _convert(each.hint, nested),
        )
        for each in _fields(cls)
    ]

    def encode(value: Any) -> dict[str, Any]:
        encoded = {}
        for name, stored, default, inline, convert in fields:
            item = getattr(value, name)
            # equal is not the same for an AttemptId, which compares without its generation
            if item is default or (not inline and item == default):
                continue
            if convert is not None:
                item = convert(item)
            if inline:
                encoded.update(item)
            else:
                encoded[stored] = item
        return encoded

    return encode


@functools.cache
def _decoder(cls: type) -> Convert:
    fields = list(_fields(cls))
    names = {each.stored: each.name for each in fields if not each.inline}
    inline = {
        each.name: (_inline_decoder(each.hint), _names_of(each.hint))
        for each in fields
        if each.inline
    }
    converts = {
        each.name: convert
        for each in fields
        if not each.inline and (convert := _convert(each.hint, _decoder, decoding=True)) is not None
    }

    def decode(data: Mapping[str, Any]) -> Any:
        known = {names[name]: item for name, item in data.items() if name in names}
        for name, convert in converts.items():
            if name in known:
                known[name] = convert(known[name])
        for name, (convert, parts) in inline.items():
            if not parts or parts[0] in data:  # else it is the default, which was left out
                known[name] = convert(data)
        return cls(**known)

    return decode


def _inline_encoder(hint: Any, nested: Callable[[Any], Convert]) -> Convert:
    """Return how a named tuple or a dataclass is stored, or one of several: of these, a field that is true says which."""
    if names := _names_of(hint):
        return lambda value: zip(names, value, strict=True)
    members = {each: (nested(each), _tag(each)) for each in get_args(hint) or (hint,)}

    def encode(value: Any) -> dict[str, Any]:
        convert, tag = members[type(value)]
        return {**tag, **convert(value)}

    return encode


def _inline_decoder(hint: Any) -> Convert:
    if names := _names_of(hint):
        return lambda data: hint._make([data[name] for name in names])
    members = get_args(hint) or (hint,)
    tagged = [(name, _decoder(each)) for each in members for name in _tag(each)]
    other = next(_decoder(each) for each in members if not _tag(each))

    def decode(data: Mapping[str, Any]) -> Any:
        return next((convert for name, convert in tagged if data.get(name)), other)(data)

    return decode


def _tag(cls: Any) -> dict[str, bool]:
    name = getattr(cls, "stored_as", "")
    return {name: True} if name else {}


def _names_of(hint: Any) -> tuple[str, ...]:
    """Return the names in a named tuple; of other classes none."""
    names: tuple[str, ...] = getattr(hint, "_fields", ())
    return names


@functools.cache
def _hints(cls: Any) -> Mapping[str, Any]:
    return get_type_hints(cls)


def _convert(
    hint: Any, nested: Callable[[Any], Convert], *, decoding: bool = False
) -> Convert | None:
    """Return how values annotated `hint` are converted, None where JSON keeps them as they are."""
    if hasattr(hint, "from_document"):
        return cast("Convert", hint.from_document if decoding else hint.to_document)
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
