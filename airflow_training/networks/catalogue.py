"""The types of layers: those of `catalogue.yaml`, then those of installed packages and of the user's folder."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from airflow_training.documents.loading import load_documents, read_file
from airflow_training.networks.layer_type import LayerType, ParamType
from airflow_training.networks.own_types import own_types

__all__ = ["LayerType", "ParamType", "functions_of", "layer_types", "shipped_types"]

_FUNCTION = re.compile(r"^(?:def|class) (\w+)", re.MULTILINE)


@cache
def shipped_types() -> Mapping[str, LayerType]:
    """Return the types that come with the package, by name, in the order of the file."""
    (document,) = load_documents(read_file(Path(__file__).with_name("catalogue.yaml")))
    return {name: LayerType(**entry) for name, entry in document.data.items()}


@cache
def layer_types() -> Mapping[str, LayerType]:
    """Return all types by name; other people's are read once in a process.

    Raises InputError with the mistakes of a file of theirs.
    """
    shipped = shipped_types()
    return {**shipped, **own_types(shipped)}


@cache
def functions_of() -> Mapping[str, str]:
    """Return the functions that calls of the types use, by name."""
    return {
        name: entry.code.strip()
        for entry in layer_types().values()
        for name in _FUNCTION.findall(entry.code)
    }
