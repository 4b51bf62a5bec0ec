"""What is installed in an environment, and where its editable installs point, read from its files without importing."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["Editable", "Installed", "installed_in", "own_site_dirs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Editable:
    """A distribution whose code lies elsewhere, or a folder that a `.pth` file adds."""

    name: str
    folders: Sequence[Path] = ()
    """Added to the search path."""
    modules: Mapping[str, Path] = field(default_factory=dict)
    """Dotted name of a package or module -> its folder or file."""
    metadata: Path | None = None
    """Its `.dist-info`, which code reads by `importlib.metadata`."""

    @property
    def places(self) -> Sequence[Path]:
        """All folders and files that it points to."""
        return [*self.folders, *self.modules.values()]

    def names(self) -> Iterator[str]:
        """The first names by which its packages and modules are imported."""
        yield from {each.partition(".")[0] for each in self.modules}
        for folder in self.folders:
            for each in sorted(folder.iterdir()) if folder.is_dir() else ():
                if (each / "__init__.py").is_file() or each.suffix == ".py":
                    yield each.stem


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    site_dirs: Sequence[Path] = ()
    names: frozenset[str] = frozenset()
    """Top-level modules and packages that are really there."""
    editables: Sequence[Editable] = ()


def own_site_dirs() -> Sequence[Path]:
    """Those of the running interpreter."""
    return [Path(p) for p in sys.path if Path(p).name in ("site-packages", "dist-packages")]


def installed_in(site_dirs: Sequence[Path]) -> Installed:
    """Read what stands in the site folders of an environment."""
    names: set[str] = set()
    editables: list[Editable] = []
    for site in site_dirs:
        entries = sorted(site.iterdir()) if site.is_dir() else []
        names.update(each.name.partition(".")[0] for each in entries)
        editables += _editables(site, entries)
    return Installed(site_dirs=site_dirs, names=frozenset(names), editables=editables)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Direct:
    name: str
    folder: Path
    metadata: Path


def _editables(site: Path, entries: Sequence[Path]) -> Iterator[Editable]:
    direct = [each for entry in entries for each in _direct_url(entry)]
    told: set[str] = set()
    for entry in entries:
        if entry.suffix == ".pth":
            for folder in _pth_folders(site, entry):
                owner = _owner(direct, folder)
                told.add(owner.name if owner else "")
                yield Editable(
                    name=owner.name if owner else folder.name,
                    folders=(folder,),
                    metadata=owner.metadata if owner else None,
                )
        elif entry.name.startswith("__editable___") and entry.name.endswith("_finder.py"):
            modules = _mapping(entry)
            places = list(modules.values())
            owner = _owner(direct, places[0]) if places else None
            told.add(owner.name if owner else "")
            yield Editable(
                name=owner.name if owner else entry.name[len("__editable___") :].split("_")[0],
                modules=modules,
                metadata=owner.metadata if owner else None,
            )
    for (
        each
    ) in direct:  # other build backends have loaders of their own; their sources lie as usual
        if each.name not in told:
            folders = [f for f in (each.folder / "src", each.folder) if f.is_dir()]
            yield Editable(name=each.name, folders=folders, metadata=each.metadata)


def _direct_url(entry: Path) -> Iterator[_Direct]:
    if entry.suffix != ".dist-info":
        return
    try:
        document = json.loads((entry / "direct_url.json").read_bytes())
    except (OSError, ValueError):
        return
    url = urlsplit(document.get("url", ""))
    if url.scheme == "file" and document.get("dir_info", {}).get("editable"):
        name = entry.name.removesuffix(".dist-info").rpartition("-")[0]
        yield _Direct(name=name, folder=Path(unquote(url.path)), metadata=entry)


def _owner(direct: Sequence[_Direct], place: Path) -> _Direct | None:
    return next((d for d in direct if d.folder == place or d.folder in place.parents), None)


def _pth_folders(site: Path, path: Path) -> Iterator[Path]:
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        text = line.strip()
        if not text or text.startswith(("#", "import ", "import\t")):
            continue
        folder = site / text
        if folder.exists() and site not in (folder, *folder.parents):
            yield folder


def _mapping(path: Path) -> Mapping[str, Path]:
    """The constant MAPPING of the finder that setuptools writes."""
    try:
        tree = ast.parse(path.read_bytes())
    except SyntaxError:
        return {}
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="MAPPING")], value=value):
                return _paths(value)
            case ast.AnnAssign(target=ast.Name(id="MAPPING"), value=ast.expr() as value):
                return _paths(value)
    return {}


def _paths(value: ast.expr) -> Mapping[str, Path]:
    found: dict[str, Path] = {}
    try:
        mapping = ast.literal_eval(value)
    except ValueError:  # written by another version of setuptools, in a way that is not known
        return {}
    for name, text in mapping.items():
        path = Path(text)
        # a single module is named without its suffix
        found[name] = path if path.exists() else path.with_name(f"{path.name}.py")
    return found
