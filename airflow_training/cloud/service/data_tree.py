"""The tree of a run whose instances read data on demand: what was sent, the program that fetches, the list of the data."""

from __future__ import annotations

import hashlib
import importlib.resources
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from airflow_training.capture.model import Tree, TreeEntry
from airflow_training.remote_data.beside_command import LIST_FILE, PROGRAM_FOLDER
from airflow_training.remote_data.manifest import DataManifest

if TYPE_CHECKING:  # Python 3.10 has it elsewhere
    from importlib.resources.abc import Traversable

__all__ = ["data_contents", "tree_with_data"]

_PACKAGES = ("interception", "remote_data")
_SINGLE_FILES = (
    "__init__.py",
    "capture/__init__.py",
    "capture/model.py",
    "checkpoints/__init__.py",
    "checkpoints/errors.py",
    "checkpoints/store.py",
    "errors.py",
)
"""What those two import, with the standard library only."""


def tree_with_data(tree: Tree, shared: DataManifest) -> Tree:
    """The tree that instances lay out. Equal submissions give equal trees: nothing in it is of one run."""
    added = [
        TreeEntry(
            path=f"{PROGRAM_FOLDER}/{name}",
            size=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
        )
        for name, content in _files(shared).items()
    ]
    return Tree(entries=sorted([*tree.entries, *added]))


def data_contents(shared: DataManifest) -> Mapping[str, bytes]:
    """What `tree_with_data` adds, by SHA-256."""
    return {hashlib.sha256(each).hexdigest(): each for each in _files(shared).values()}


def _files(shared: DataManifest) -> Mapping[str, bytes]:
    return {**_program(), LIST_FILE: shared.to_bytes()}


@lru_cache(maxsize=1)
def _program() -> Mapping[str, bytes]:
    root = importlib.resources.files("airflow_training")
    found = {name: root.joinpath(name).read_bytes() for name in _SINGLE_FILES}
    for package in _PACKAGES:
        found |= dict(_sources(root.joinpath(package), package))
    return {f"airflow_training/{name}": content for name, content in found.items()}


def _sources(folder: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    for each in folder.iterdir():
        if each.is_dir() and each.name != "__pycache__":
            yield from _sources(each, f"{name}/{each.name}")
        elif each.name.endswith(".py"):
            yield f"{name}/{each.name}", each.read_bytes()
