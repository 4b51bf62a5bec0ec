"""Where modules are looked for: folders and zip archives, by the rules of Python's own finders, without importing."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

__all__ = ["Archive", "Folder", "ModuleLocation", "SearchPlace", "find_module", "place_at"]

_COMPILED = re.compile(r"(?:\.[\w-]+)*\.(?:so|pyd|pyc)")


class SearchPlace(Protocol):
    """A folder or an archive of modules."""

    root: Path

    def names(self, folder: str) -> Mapping[str, bool]:
        """What lies in a folder of it, by name, and whether that is a folder."""
        ...

    def read(self, path: str) -> bytes: ...

    def path_of(self, path: str) -> Path: ...


class Folder:
    """A folder of the file system."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._names: dict[str, Mapping[str, bool]] = {}

    def names(self, folder: str) -> Mapping[str, bool]:
        """What lies in a folder of it; nothing where that cannot be read."""
        if folder not in self._names:
            try:
                with os.scandir(self.root / folder) as entries:  # a folder may hold a data set
                    self._names[folder] = {each.name: each.is_dir() for each in entries}
            except OSError:
                self._names[folder] = {}
        return self._names[folder]

    def read(self, path: str) -> bytes:
        """A file's bytes."""
        return (self.root / path).read_bytes()

    def path_of(self, path: str) -> Path:
        """Where it lies on this machine."""
        return self.root / path


class Archive:
    """A zip archive on the search path."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @cached_property
    def _tree(self) -> Mapping[str, Mapping[str, bool]]:
        tree: dict[str, dict[str, bool]] = {}
        with zipfile.ZipFile(self.root) as archive:
            for name in archive.namelist():
                folder = ""
                for part in name.rstrip("/").split("/"):
                    path = f"{folder}/{part}" if folder else part
                    is_folder = path != name
                    tree.setdefault(folder, {})[part] = is_folder
                    folder = path
        return tree

    def names(self, folder: str) -> Mapping[str, bool]:
        """What lies in a folder of it."""
        return self._tree.get(folder, {})

    def read(self, path: str) -> bytes:
        """A file's bytes."""
        with zipfile.ZipFile(self.root) as archive:
            return archive.read(path)

    def path_of(self, path: str) -> Path:  # noqa: ARG002 - the signature of the other places
        """The archive itself, which is the only file that there is."""
        return self.root


def place_at(path: Path) -> SearchPlace | None:
    """The place that an entry of the search path names, or None where there is nothing to search."""
    if path.is_dir():
        return Folder(path)
    if path.is_file() and zipfile.is_zipfile(path):
        return Archive(path)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleLocation:
    """A module in a place."""

    place: SearchPlace
    file: str
    """Its source (or compiled) file from the place's root; empty for a namespace package."""
    folder: str | None
    """Where its submodules lie, or None for a plain module."""

    @property
    def is_source(self) -> bool:
        return self.file.endswith(".py")


def find_module(place: SearchPlace, folder: str, name: str) -> ModuleLocation | None:
    """Look for one name in one folder of a place: package, compiled module, source, else a namespace."""
    names = place.names(folder)
    base = f"{folder}/" if folder else ""
    is_folder = names.get(name, False)
    if is_folder:
        for init in ("__init__.py", "__init__.pyc"):
            if init in place.names(base + name):
                return ModuleLocation(place=place, file=f"{base}{name}/{init}", folder=base + name)
    if f"{name}.py" in names:
        return ModuleLocation(place=place, file=f"{base}{name}.py", folder=None)
    for each in names:
        if each.startswith(f"{name}.") and _COMPILED.fullmatch(each[len(name) :]):
            return ModuleLocation(place=place, file=base + each, folder=None)
    return ModuleLocation(place=place, file="", folder=base + name) if is_folder else None
