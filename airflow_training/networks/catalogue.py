"""The types of layers: those of `catalogue.yaml`, then those of installed packages and of the user's folder."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from airflow_training.documents.loading import load_documents, read_file
from airflow_training.networks.layer_type import LayerType, ParamType
from airflow_training.networks.own_types import OwnTypes, folder_stamp, own_types

__all__ = [
    "LayerType",
    "ParamType",
    "broken_types",
    "functions_of",
    "layer_types",
    "look_again",
    "shipped_types",
    "unread_types",
]

_FUNCTION = re.compile(r"^(?:def|class) (\w+)", re.MULTILINE)


@cache
def shipped_types() -> Mapping[str, LayerType]:
    """Return the types that come with the package, by name, in the order of the file."""
    (document,) = load_documents(read_file(Path(__file__).with_name("catalogue.yaml")))
    return {name: LayerType(**entry) for name, entry in document.data.items()}


@cache
def layer_types() -> Mapping[str, LayerType]:
    """Return all types by name that are good; other people's are read once in a process."""
    return {**shipped_types(), **_own().types}


def broken_types() -> Mapping[str, str]:
    """Return the types of users that are no good, by name: where each is from, and what is wrong with it."""
    return _own().broken


def unread_types() -> Sequence[str]:
    """Return the files and entry points of users that could not be read, each with its reason."""
    return _own().unread


def look_again() -> None:
    """Read the types anew where some were no good, and files of the user's folder have changed since."""
    own = _own()
    if (own.broken or own.unread) and _stamp() != folder_stamp():
        for known in (_own, _stamp, layer_types, functions_of):
            known.cache_clear()


@cache
def _own() -> OwnTypes:
    _stamp()  # before they are read: what changes then is read anew
    return own_types(shipped_types())


@cache
def _stamp() -> Sequence[tuple[str, int]]:
    return folder_stamp()


@cache
def functions_of() -> Mapping[str, str]:
    """Return the functions that calls of the types use, by name."""
    return {
        name: entry.code.strip()
        for entry in layer_types().values()
        for name in _FUNCTION.findall(entry.code)
    }
