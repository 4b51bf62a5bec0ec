"""A model however it was named (a description, a file, Python to trace) to its computation view."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from airflow_training.documents.paths import Loc, format_path
from airflow_training.errors import InputError
from airflow_training.planning.sources.documents import parse_model
from airflow_training.planning.sources.files import read_file
from airflow_training.planning.sources.networks import is_network, parse_network_view
from airflow_training.planning.view.computation import ComputationView
from airflow_training.planning.view.serial import from_json
from airflow_training.planning.view.transformer import computation

__all__ = ["is_reference", "read_model"]

_SUFFIXES = (".yaml", ".yml", ".json")


def read_model(
    model: str | Mapping[str, Any], *, base_dir: str = "", at: Loc = ("model",)
) -> ComputationView:
    """Return the view of a model's forward pass.

    Args:
        model: the description of a transformer, a network (`kind: Network`), the name of a YAML or JSON
            file that holds one or a saved view, or `module:function`. The function returns a `torch.nn.Module` and a tuple
            of example inputs.
        base_dir: where relative files and modules are looked for; the current folder by default.
        at: where the model was named, for errors.

    Raises:
        InputError: the model cannot be found, read or traced.
    """
    if not isinstance(model, str):
        return _described(model, at=at)
    if is_reference(model):
        return _traced(model, base_dir=base_dir, at=at)
    if Path(model).suffix not in _SUFFIXES:
        allowed = ["a .yaml or .json file", "module:function"]
        raise _bad(at, model, "is neither a file nor Python", allowed=allowed)
    return read_file(Path(base_dir) / Path(model).expanduser(), _described)


def _described(document: Any, *, at: Loc) -> ComputationView:
    if isinstance(document, Mapping) and is_network(document):
        return parse_network_view(document, at=at)
    if isinstance(document, Mapping) and "operators" in document:
        return from_json(document)
    return computation(parse_model(document, at=at))


def is_reference(text: str) -> bool:
    """Return whether a model is named as `module:function`."""
    module, _, name = text.partition(":")
    return bool(name) and all(part.isidentifier() for part in (*module.split("."), name))


def _traced(reference: str, *, base_dir: str, at: Loc) -> ComputationView:
    """Import and call the user's function, and trace what it returns."""
    module, _, name = reference.partition(":")
    try:
        with _importable(base_dir):
            made = getattr(import_module(module), name)()
    except Exception as error:  # somebody else's code may raise anything
        said = f"{type(error).__name__}: {error}"
        raise _bad(at, reference, f"cannot be called: {said}") from error
    if not isinstance(made, tuple) or len(made) != 2 or not isinstance(made[1], tuple):
        raise _bad(
            at,
            reference,
            "must return a module and a tuple of example inputs",
            hint="return model, (torch.zeros(8, 64),)",
        )
    from airflow_training.planning.sources.torch import trace  # torch: only where it is needed

    try:
        return trace(*made)
    except InputError as error:
        here = format_path(at)
        problems = [replace(problem, field=here, value=reference) for problem in error.problems]
        raise InputError(problems=problems) from error


@contextmanager
def _importable(folder: str) -> Iterator[None]:
    """Let modules of a folder be imported, as they are for a script that lies there."""
    place = str(Path(folder or ".").resolve())
    sys.path.insert(0, place)
    try:
        yield
    finally:
        sys.path.remove(place)


def _bad(
    at: Loc, value: str, message: str, *, allowed: Sequence[str] = (), hint: str = ""
) -> InputError:
    return InputError.of(
        code="bad_reference",
        field=format_path(at),
        value=value,
        message=message,
        allowed=allowed,
        hint=hint,
    )
