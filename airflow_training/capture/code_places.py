"""Where the code that a script imports lies, in the project or outside of it, and where it will lie in the tree."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from airflow_training.capture.module_search import LocalPlace, Portion
from airflow_training.capture.search_places import Archive

__all__ = ["CodePlaces", "OutsideImport"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideImport:
    """Code from outside the project's root; it travels as `imports/<name>`."""

    name: str
    root: Path
    items: Mapping[str, Path]
    """Path below `imports/<name>` -> the package's folder or the file; a single empty path is an archive itself."""
    metadata: Path | None = None
    needed: frozenset[Path] = frozenset()
    """Files that code loads by name: they travel even if they look like data."""
    used_by: str = ""


@dataclass(slots=True, kw_only=True)
class CodePlaces:
    """Collects the files of imported modules, by the entry of the search path that found them."""

    root: Path
    tops: Sequence[str] = field(init=False)
    """The root as it was named, and as it really lies."""
    needed: set[str] = field(default_factory=set)
    used: dict[Path, LocalPlace] = field(default_factory=dict)
    outside: dict[str, dict[str, Path]] = field(default_factory=dict)
    origins: dict[str, tuple[LocalPlace, str]] = field(default_factory=dict)
    outside_needed: dict[str, set[Path]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tops = (str(self.root), str(self.root.resolve()))

    def record(self, portion: Portion, path: Path, by: str) -> None:
        """Note that a module's file must travel, in the project or as an import from outside."""
        origin = portion.origin
        inside = self.in_root(path)
        if inside is not None and not (origin.module and not self._fits(origin)):
            self.needed.add(inside)
            self.used.setdefault(self._search_root(origin), origin)
            return
        if isinstance(origin.place, Archive):
            target, source = "", origin.place.root
        elif origin.module:
            suffix = ".py" if origin.place.root.is_file() else ""
            target, source = origin.module.replace(".", "/") + suffix, origin.place.root
        else:
            target = portion.found.file.split("/")[0]
            source = origin.place.root / target
        key = next((k for k, (o, _) in self.origins.items() if _same(o, origin)), None)
        if key is None:
            key = self._free_name(origin.name)
            self.origins[key] = (origin, by)
        self.used.setdefault(origin.place.root, origin)
        self.outside.setdefault(key, {})[target] = source
        self.outside_needed.setdefault(key, set()).add(path)

    def _fits(self, origin: LocalPlace) -> bool:
        """Whether a folder on PYTHONPATH finds what an editable install maps."""
        parts = origin.module.split(".")
        path = origin.place.root
        return list(path.with_suffix("").parts[-len(parts) :]) == parts

    def _search_root(self, origin: LocalPlace) -> Path:
        if not origin.module:
            return origin.place.root
        return origin.place.root.parents[origin.module.count(".")]

    def _free_name(self, name: str) -> str:
        base = "".join(c if c.isalnum() or c in "._-" else "_" for c in name).strip(".") or "path"
        number, key = 1, base
        while key in self.origins:
            number += 1
            key = f"{base}-{number}"
        return key

    def need(self, path: Path) -> None:
        """Note that a file or folder must be there, in the project or in what is imported from outside."""
        inside = self.in_root(path)
        if inside is not None:
            self.needed.add(inside)
            return
        for name, items in self.outside.items():
            if any(source in (path, *path.parents) for source in items.values()):
                self.outside_needed.setdefault(name, set()).add(path)

    def in_root(self, path: Path) -> str | None:
        """A path from the project's root, or None outside of it."""
        text = str(path)
        for root in self.tops:
            if text == root:
                return "."
            if text.startswith(root + os.sep):
                return text[len(root) + 1 :]
        return None

    def import_paths(self, *, implicit: Path, python_path: Sequence[Path]) -> Sequence[str]:
        """Folders of the tree for PYTHONPATH, in order, but for the one that Python searches by itself."""
        paths: list[str] = []
        roots = [path for path in python_path if self.in_root(path) is not None]
        for root in (*roots, *self.used):
            inside = self.in_root(root)
            if inside is not None and root != implicit:
                paths.append(f"project/{inside}".removesuffix("/."))
        paths += [f"imports/{name}" for name in self.outside]
        return list(dict.fromkeys(paths))

    def outside_imports(self) -> Sequence[OutsideImport]:
        """What travels below `imports/`."""
        return [
            OutsideImport(
                name=name,
                root=self.origins[name][0].place.root,
                items=items,
                metadata=self.origins[name][0].metadata,
                needed=frozenset(self.outside_needed.get(name, ())),
                used_by=self.origins[name][1],
            )
            for name, items in self.outside.items()
        ]


def _same(one: LocalPlace, other: LocalPlace) -> bool:
    """Whether two places go to one folder below `imports/`: parts of one distribution do."""
    if one.metadata is not None and one.metadata == other.metadata:
        return True
    return one.place.root == other.place.root and one.module == other.module
