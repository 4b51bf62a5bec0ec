"""Records for tests: a laptop with a small training environment, and what can be different from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from airflow_training.environments.catalogue import CatalogueImage, EnvironmentCatalogue
from airflow_training.environments.model import InstalledDistribution, PythonEnvironment

__all__ = ["RECORD", "catalogue_of", "dist", "with_dist", "without"]


def dist(name: str, version: str, **more: Any) -> InstalledDistribution:
    return InstalledDistribution(name=name, version=version, **more)


RECORD = PythonEnvironment(
    python="3.11.7",
    platform="linux-x86_64",
    libc="glibc 2.36",
    distributions=[
        dist("click", "8.1.7"),
        dist("numpy", "2.1.0"),
        dist("pillow", "11.0.0"),
        dist("torch", "2.9.1+cpu"),
        dist("torchvision", "0.24.1+cpu"),
        dist("tqdm", "4.67.0"),
    ],
)


def with_dist(record: PythonEnvironment, *changed: InstalledDistribution) -> PythonEnvironment:
    """Return the record with distributions added, or in place of those of the same name."""
    names = {each.name for each in changed}
    kept = [each for each in record.distributions if each.name not in names]
    rows = sorted([*kept, *changed], key=lambda each: each.name)
    return replace(record, distributions=rows)


def without(record: PythonEnvironment, *names: str) -> PythonEnvironment:
    kept = [each for each in record.distributions if each.name not in names]
    return replace(record, distributions=kept)


def catalogue_of(
    *records: PythonEnvironment, names: Sequence[str] = ("image", "other", "third"), **more: Any
) -> EnvironmentCatalogue:
    images = [
        CatalogueImage(name=name, python="/usr/bin/python3", record=record)
        for name, record in zip(names, records, strict=False)
    ]
    return EnvironmentCatalogue(images=images, **more)
