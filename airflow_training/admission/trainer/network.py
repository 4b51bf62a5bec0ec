"""The network of a job with `spec.trainer`: found where the job says, and checked at the job's lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from airflow_training.documents.loading import load_documents, read_file
from airflow_training.documents.resolved_blocks import ResolvedNetworkSource
from airflow_training.documents.trainer import NetworkSource
from airflow_training.errors import InputError, Problem
from airflow_training.networks.digest import network_digest
from airflow_training.networks.reading import parse_network, parse_network_data
from airflow_training.networks.resolving import ResolvedNetwork

__all__ = ["FoundNetwork", "find_network"]

_FIELD = "spec.trainer.network"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundNetwork:
    """A network without mistakes."""

    network: ResolvedNetwork
    source: ResolvedNetworkSource


def find_network(
    source: NetworkSource, *, base_dir: str
) -> tuple[FoundNetwork | None, list[Problem]]:
    """Return the network that a job names, or None and every mistake of it, in fields of the job.

    Args:
        source: as the job says it.
        base_dir: folder of the job's file; empty where it has none, as in a form: then no file is read.
    """
    if source.document is not None:
        network, problems = parse_network_data(source.document)
        if network is None:
            return None, [_moved(problem, "document") for problem in problems]
        return _found(network, source.document), []
    if source.file is not None:
        return _of_file(source.file, base_dir)
    if source.name is not None:
        return _saved(source.name, source.version)
    return None, []  # its absence is told


def _found(
    network: ResolvedNetwork,
    document: Mapping[str, Any],
    *,
    name: str = "",
    version: int | None = None,
) -> FoundNetwork:
    source = ResolvedNetworkSource(
        digest=network_digest(document), document=document, name=name, version=version
    )
    return FoundNetwork(network=network, source=source)


def _moved(problem: Problem, key: str) -> Problem:
    return replace(problem, field=".".join(filter(None, [_FIELD, key, problem.field])))


def _of_file(file: str, base_dir: str) -> tuple[FoundNetwork | None, list[Problem]]:
    def refused(code: str, message: str, hint: str = "") -> tuple[None, list[Problem]]:
        problem = Problem(code=code, field=f"{_FIELD}.file", value=file, message=message, hint=hint)
        return None, [problem]

    if not base_dir:
        hint = "put the network itself into document, or save it and give its name"
        return refused("bad_reference", "names a file, and this job comes from none", hint)
    top = Path(base_dir).resolve()
    path = (top / file).resolve()
    if not path.is_relative_to(top):
        return refused("not_allowed", "leads out of the folder of the job's file")
    try:
        text = read_file(path)
    except InputError as error:
        return refused("bad_reference", error.problems[0].message)
    network, problems = parse_network(text, file)
    if network is None:
        # they have lines of another file than the job's
        told = [
            f"{each.field}{f' (line {each.line})' if each.line else ''}: {each.message}"
            for each in problems
        ]
        hint = f"airflow-training networks check {file}"
        return refused("bad_reference", f"is no good network: {'; '.join(told)}", hint)
    (loaded,) = load_documents(text)
    return _found(network, loaded.data), []


def _saved(name: str, version: int | None) -> tuple[FoundNetwork | None, list[Problem]]:
    from airflow_training.state.store import (
        open_store,
    )  # a database: only where a name is looked up

    try:
        saved = open_store().networks.find(name, version)
    except InputError as error:
        return None, [_moved(problem, "") for problem in error.problems]
    network, problems = parse_network(saved.document)
    if network is None:
        message = f"version {saved.version} was saved by another version of this package, and is no good network now: {problems[0].message}"
        return None, [
            Problem(code="bad_reference", field=f"{_FIELD}.name", value=name, message=message)
        ]
    (loaded,) = load_documents(saved.document)
    return _found(network, loaded.data, name=saved.name, version=saved.version), []
