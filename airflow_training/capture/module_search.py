"""Finds a module by its dotted name as Python would, in the order of its search path, without importing anything."""

from __future__ import annotations

import os.path
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from airflow_training.capture.installed import Editable, Installed
from airflow_training.capture.search_places import (
    Folder,
    ModuleLocation,
    SearchPlace,
    find_module,
    place_at,
)

__all__ = ["LocalPlace", "ModuleSearch", "Portion", "TopLevel"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPlace:
    """One entry of the search path that is not the environment's own."""

    place: SearchPlace
    name: str
    """How it is called below `imports/`, should it lie outside of the project."""
    module: str = ""
    """Dotted name of the one package that `place` is, of an editable install that maps names to folders."""
    metadata: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """A found module with the entry of the search path it was found by."""

    found: ModuleLocation
    origin: LocalPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class TopLevel:
    """What a first name means: local portions (several of a namespace), and whether the environment has it (too)."""

    portions: Sequence[Portion] = ()
    installed: bool = False

    def __bool__(self) -> bool:
        return bool(self.portions) or self.installed


@dataclass(slots=True, kw_only=True)
class ModuleSearch:
    """The search path of a script: local places first, Python's own, the environment's, then the project itself."""

    local: list[LocalPlace]
    installed: Installed
    fallbacks: Sequence[LocalPlace] = ()
    """Where an editor or a runner would have looked too: the project's root and its `src`."""
    _editable: list[LocalPlace] = field(init=False, default_factory=list)
    _known: dict[str, TopLevel] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        for each in self.installed.editables:
            self._editable += _places_of(each)

    def add(self, folder: str) -> None:
        """Search a folder (or archive) that a script puts on `sys.path`."""
        path = Path(os.path.normpath(folder))
        if all(each.place.root != path for each in self.local) and (place := place_at(path)):
            self.local.append(LocalPlace(place=place, name=path.name))
            self._known.clear()

    def top(self, name: str) -> TopLevel:
        """What a first name means; false where there is nothing of that name."""
        if name not in self._known:
            self._known[name] = self._look(name)
        return self._known[name]

    def _look(self, name: str) -> TopLevel:
        namespace: list[Portion] = []
        for places in (self.local, None, self._editable, self.fallbacks):
            if places is None:
                if name in sys.stdlib_module_names or name in sys.builtin_module_names:
                    return TopLevel(installed=True)
                if self._is_regular(name):
                    return TopLevel(installed=True)
                continue
            for origin in places:
                found = _find_top(origin, name)
                if found is None:
                    continue
                portion = Portion(found=found, origin=origin)
                if found.file:
                    return TopLevel(portions=(portion,))
                namespace.append(portion)
        return TopLevel(portions=namespace, installed=name in self.installed.names)

    def _is_regular(self, name: str) -> bool:
        """Whether the environment has it as more than a part of a namespace."""
        if name not in self.installed.names:
            return False
        for site in self.installed.site_dirs:
            found = find_module(Folder(site), "", name)
            if found is not None and found.file:
                return True
        return False

    def top_names(self) -> Mapping[str, Path]:
        """All first names that local code could be found by, for suggestions."""
        names: dict[str, Path] = {}
        for origin in (*self.local, *self._editable, *self.fallbacks):
            for each in () if origin.module else origin.place.names(""):
                names.setdefault(each.partition(".")[0], origin.place.root)
        return names


def _find_top(origin: LocalPlace, name: str) -> ModuleLocation | None:
    if not origin.module:
        return find_module(origin.place, "", name)
    first, _, rest = origin.module.partition(".")
    if first != name:
        return None
    if rest:  # a part of a namespace: the names above are folders that only exist in the mapping
        return ModuleLocation(place=_Nested(origin.place, rest), file="", folder="")
    return _as_package(origin.place)


def _as_package(place: SearchPlace) -> ModuleLocation:
    if isinstance(place, Folder) and place.root.is_file():
        return ModuleLocation(place=Folder(place.root.parent), file=place.root.name, folder=None)
    init = "__init__.py" if "__init__.py" in place.names("") else ""
    return ModuleLocation(place=place, file=init, folder="")


class _Nested:
    """A folder under dotted names that lead to it, as an editable install maps them."""

    def __init__(self, place: SearchPlace, dotted: str) -> None:
        self.root = place.root
        self._place = place
        self._path = dotted.replace(".", "/")

    def names(self, folder: str) -> Mapping[str, bool]:
        """What lies there: the mapped names first, then the folder's own."""
        if folder == self._path or folder.startswith(f"{self._path}/"):
            return self._place.names(folder[len(self._path) :].lstrip("/"))
        base = f"{folder}/" if folder else ""
        if not self._path.startswith(base):
            return {}
        return {self._path[len(base) :].split("/")[0]: True}

    def read(self, path: str) -> bytes:
        """A file's bytes."""
        return self.path_of(path).read_bytes()

    def path_of(self, path: str) -> Path:
        """Where it lies on this machine."""
        return self._place.path_of(path[len(self._path) :].lstrip("/"))


def _places_of(editable: Editable) -> list[LocalPlace]:
    folders = [place_at(folder) for folder in editable.folders]
    places = [
        LocalPlace(place=place, name=editable.name, metadata=editable.metadata)
        for place in folders
        if place is not None
    ]
    places += [
        LocalPlace(
            place=Folder(path), name=editable.name, module=module, metadata=editable.metadata
        )
        for module, path in editable.modules.items()
        if path.exists()
    ]
    return places
