"""What a program gets where it runs, of what it was built on. What is decided stands in `environments`."""

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
)
from airflow_training.environments.cache import cached_digests, default_folder
from airflow_training.errors import InputError

__all__ = ["match_environment", "prepare_environment", "read_record"]


def match_environment(document: bytes, folder: Path | None = None) -> Match:
    """What of this machine a program of that record runs in; raises InputError with each difference.

    `folder`: where environments are kept; None: in the cache of this user.
    """
    return match(read_record(document), _catalogue(), cached_digests(folder or default_folder()))


@functools.lru_cache(maxsize=4)  # of a submission it is read twice, and again of the next one
def read_record(document: bytes) -> PythonEnvironment:
    """A record of an environment as a client sends it; raises InputError for anything else."""
    try:
        return PythonEnvironment.from_json(json.loads(document))
    except ValueError:
        raise InputError.of(
            code="wrong_type", field="environment", message="is no record of an environment"
        ) from None


def prepare_environment(found: Match, folder: Path | None = None) -> PreparedEnvironment:
    """Build what the folder lacks; raises InputError where a package cannot be installed."""
    return prepare(found, folder or default_folder())


@functools.cache
def _catalogue() -> EnvironmentCatalogue:
    """The interpreter of this process, read once: what is installed later counts from the next start on."""
    return catalogue_here()
