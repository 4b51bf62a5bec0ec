"""The entry into the room: a file to its networks, with every mistake and its line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from airflow_training.documents.draft import find_further
from airflow_training.documents.loading import (
    FieldLines,
    LoadedDocument,
    load_documents,
    read_file,
)
from airflow_training.documents.paths import split_path
from airflow_training.documents.problems import overflows, problems_of, with_lines
from airflow_training.errors import InputError, Problem
from airflow_training.networks.document import NetworkDocument
from airflow_training.networks.names import MAX_NAME
from airflow_training.networks.resolving import ResolvedNetwork, resolve

__all__ = ["document_of", "parse_network", "parse_network_data", "read_network"]


def read_network(path: str | Path) -> ResolvedNetwork:
    """Return the only network of a file; raises InputError with every mistake of it."""
    network, problems = parse_network(read_file(path), str(path))
    if network is None:
        raise InputError(problems=problems, path=str(path))
    return network


def parse_network(text: str, path: str = "") -> tuple[ResolvedNetwork | None, list[Problem]]:
    """Return the only network of a text, or None and every mistake with its line."""
    documents = load_documents(text, path)
    if len(documents) != 1:
        message = f"holds {len(documents)} documents where one network is wanted"
        return None, [Problem(code="conflict", field="", message=message)]
    (document,) = documents
    network, problems = _network_of(document)
    if problems:
        return None, with_lines(_named(problems, document.data), document.lines)
    return network, []


def parse_network_data(data: Any) -> tuple[ResolvedNetwork | None, list[Problem]]:
    """Return the network of a document that is data already, or None and every mistake; fields are those of the document."""
    network, problems = _network_of(LoadedDocument(data=data, lines=FieldLines("")))
    return (None, _named(problems, data)) if problems else (network, [])


def document_of(text: str) -> dict[str, Any]:
    """Return the data of a text that holds one good network; raises InputError with every mistake."""
    network, problems = parse_network(text)
    if network is None:
        raise InputError(problems=problems)
    (document,) = load_documents(text)
    data: dict[str, Any] = document.data
    return data


def _network_of(document: LoadedDocument) -> tuple[ResolvedNetwork | None, list[Problem]]:
    problems = [*document.problems]
    if document.data is None:
        return None, problems
    problems += _missing_head(document)
    try:
        parsed = NetworkDocument.__pydantic_validator__.validate_python(
            document.data, by_alias=True, by_name=False
        )
    except ValidationError as error:
        problems += problems_of(error, model=NetworkDocument)
        if not overflows(problems):
            problems += find_further(
                NetworkDocument,
                document.data,
                error,
                lambda draft: resolve(draft.metadata, draft.spec)[1],
            )
        return None, problems
    network, found = resolve(parsed.metadata, parsed.spec)
    return network, problems + found


def _missing_head(document: LoadedDocument) -> list[Problem]:
    if not isinstance(document.data, Mapping):
        return []
    return [
        Problem(code="missing", field=key, message="is required", allowed=(only,))
        for key, only in (("apiVersion", "airflow-training/v1"), ("kind", "Network"))
        if key not in document.data
    ]


def _named(problems: Sequence[Problem], data: Any) -> list[Problem]:
    """Return the problems with the name of the layer that each is about."""
    return [
        replace(problem, message=f"layer '{name}': {problem.message}")
        if (name := _layer_at(problem.field, data)) and not problem.message.startswith("layer '")
        else problem
        for problem in problems
    ]


def _layer_at(field: str, data: Any) -> str:
    """Return the name of the innermost layer that a field belongs to."""
    name = ""
    for part in split_path(field) or ():
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            break
        if (
            isinstance(part, int)
            and isinstance(data, Mapping)
            and isinstance(data.get("name"), str)
        ):
            name = data["name"][:MAX_NAME]
    return name
