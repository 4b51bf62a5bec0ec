"""What a program was built on, as it is sent, and what it gets where it runs. What is decided stands in `environments`."""

from __future__ import annotations

import functools
import json
from pathlib import Path

from airflow_training.environments import (
    EnvironmentCatalogue,
    Match,
    PreparedEnvironment,
    PythonEnvironment,
    catalogue_here,
    match,
    prepare,
    record,
)
from airflow_training.environments.cache import cached_digests, default_folder
from airflow_training.errors import InputError

__all__ = ["match_environment", "prepare_environment", "read_record", "record_environment"]


def record_environment(root: Path) -> bytes:
    """The Python of this process with the project's lock, as it is sent: equal environments give equal bytes."""
    return json.dumps(record(root=root).to_json(), sort_keys=True).encode()


def read_record(document: bytes) -> PythonEnvironment:
    """The record that `record_environment` made; raises InputError for anything else."""
    try:
        return PythonEnvironment.from_json(json.loads(document))
    except ValueError:
        raise InputError.of(
            code="wrong_type", field="environment", message="is no record of an environment"
        ) from None


def match_environment(document: bytes) -> Match:
    """What of this machine a program of that record runs in; raises InputError with each difference."""
    return match(read_record(document), _catalogue(), cached_digests(default_folder()))


def prepare_environment(found: Match) -> PreparedEnvironment:
    """Build what the cache of this machine lacks; raises InputError where a package cannot be installed."""
    return prepare(found, default_folder())


@functools.cache
def _catalogue() -> EnvironmentCatalogue:
    """The interpreter of this process, read once: what is installed later counts from the next start on."""
    return catalogue_here()
