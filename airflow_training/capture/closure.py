"""All that a script imports, followed through local modules by their source; nothing is run."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from airflow_training.capture.code_places import CodePlaces, OutsideImport
from airflow_training.capture.import_lines import plain_imports
from airflow_training.capture.import_problems import (
    above_its_package,
    module_not_found,
    relative_in_script,
    syntax_problem,
)
from airflow_training.capture.imports import Certainty, Import, ModuleFacts, module_facts
from airflow_training.capture.installed import Installed
from airflow_training.capture.module_search import LocalPlace, ModuleSearch, Portion
from airflow_training.capture.search_places import Archive, Folder, find_module, place_at
from airflow_training.errors import Problem

__all__ = ["Closure", "DynamicImport", "import_closure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicImport:
    """An import whose name is known only when it runs, so that what it needs cannot be looked for."""

    path: str
    line: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Closure:
    needed: frozenset[str]
    """Files and folders of the project that must be there, from its root."""
    outside: Sequence[OutsideImport]
    import_paths: Sequence[str]
    """Folders of the tree for PYTHONPATH, in order."""
    dynamic: Sequence[DynamicImport]
    missing: Sequence[str]
    """Imports that find nothing, but are caught, late or conditional: `path:line: name`."""
    problems: Sequence[Problem]
    loaded: frozenset[str]
    """Dotted names of local packages and modules that were reached."""
    modules: int
    """Local modules that were read."""


def import_closure(
    *,
    root: Path,
    kind: str,
    entry: str,
    working_dir: Path,
    python_path: Sequence[Path] = (),
    installed: Installed | None = None,
    entry_source: bytes | None = None,
    also: Sequence[Path] = (),
    also_modules: Collection[str] = (),
    allow_missing: Collection[str] = (),
) -> Closure:
    """Follow the imports of a script (its path from `root`) or module (dotted) as Python would find them.

    `entry_source` stands for the script's content, of a notebook for example. `also` are scripts that it
    starts, `also_modules` what a text names. `allow_missing` are modules whose absence is no problem.
    """
    script = root / entry
    # Python itself searches where the script really lies, not where a link to it does
    first = script.resolve().parent if kind == "script" else working_dir
    local = []
    for path in (first, *python_path):
        place = place_at(path)
        if place is not None:
            local.append(LocalPlace(place=place, name=path.name))
    fallbacks = [
        LocalPlace(place=Folder(path), name=path.name)
        for path in (root, root / "src")
        if path.is_dir()
    ]
    search = ModuleSearch(local=local, installed=installed or Installed(), fallbacks=fallbacks)
    walk = _Walk(
        places=CodePlaces(root=root),
        working_dir=working_dir,
        search=search,
        allow_missing=allow_missing,
    )
    if kind == "script":
        walk.script(script, certain=True, source=entry_source)
    else:
        walk.entry_module(entry)
    for path in also:
        walk.script(path, certain=False)
    walk.modules(also_modules)
    walk.run()
    return walk.result(implicit=first, python_path=python_path)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Module:
    path: Path
    """Where its source lies; the archive for a module in one."""
    source: bytes
    package: str | None
    """What relative imports start from; None for a script."""
    folder: Path | None
    """Where its package's files lie."""
    certain: bool
    is_entry: bool = False


@dataclass(slots=True, kw_only=True)
class _Walk:
    working_dir: Path
    search: ModuleSearch
    allow_missing: Collection[str]
    places: CodePlaces
    dynamic: list[DynamicImport] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    absent: dict[str, list[str]] = field(default_factory=dict)
    loaded: dict[str, Sequence[Portion]] = field(default_factory=dict)
    surely_loaded: set[str] = field(default_factory=set)
    certain: deque[_Module] = field(default_factory=deque)
    uncertain: deque[_Module] = field(default_factory=deque)
    visited: set[tuple[Path, str | None, int]] = field(default_factory=set)

    def script(self, path: Path, *, certain: bool, source: bytes | None = None) -> None:
        """Begin with a script."""
        self.places.need(path)
        if not certain:
            self.search.add(str(path.resolve().parent))
        module = _Module(
            path=path,
            source=path.read_bytes() if source is None else source,
            package=None,
            folder=path.parent,
            certain=certain,
            is_entry=certain,
        )
        (self.certain if certain else self.uncertain).append(module)

    def entry_module(self, name: str) -> None:
        """Begin with `python -m name`."""
        if self._load(name, certain=True, by="-m", is_entry=True) is None:
            self._not_found(name, "-m", certain=True)
        elif any(each.found.folder is not None for each in self.loaded.get(name, ())):
            self._load(f"{name}.__main__", certain=True, by="-m", is_entry=True)

    def modules(self, names: Collection[str]) -> None:
        """Add modules that may be imported."""
        for name in sorted(names):
            self._load(name, certain=False, by="a text that names it")

    def run(self) -> None:
        """Visit all modules; those that are surely imported first, so that each is visited once."""
        while self.certain or self.uncertain:
            self._visit(self.certain.popleft() if self.certain else self.uncertain.popleft())

    def _visit(self, module: _Module) -> None:
        key = (module.path, module.package, len(module.source))
        if key in self.visited:
            return
        self.visited.add(key)
        try:
            facts = self._plain(module) or module_facts(
                module.source, file=str(module.path), working_dir=str(self.working_dir)
            )
        except (SyntaxError, ValueError, RecursionError) as error:
            if module.certain:
                self._refuse(syntax_problem(error, path=self._told(module.path)))
            else:
                self.missing.append(f"{self._told(module.path)}: cannot be read: {error}")
            return
        for folder in facts.search_paths:
            self.search.add(str(self.working_dir / folder))
        for each in facts.imports:
            self._import(each, module)
        told = set()
        for call in facts.dynamic:
            if call.line in told:  # calls within calls
                continue
            told.add(call.line)
            text = call.text if len(call.text) <= 100 else f"{call.text[:97]}..."
            self.dynamic.append(
                DynamicImport(path=self._told(module.path), line=call.line, text=text)
            )
            below = call.prefix.startswith(".")
            prefix = f"{module.package or ''}{call.prefix}" if below else call.prefix
            self._candidates(prefix, f"{self._told(module.path)}:{call.line}")
        for resource in facts.resources:
            self._resource(resource.package, resource.path, module)
        for file in facts.files:
            self._by_path(self.working_dir / file, module)

    def _plain(self, module: _Module) -> ModuleFacts | None:
        """The module's imports by its lines, if all are found and each local one surely runs."""
        found = None if module.is_entry else plain_imports(module.source)
        if found is None:
            return None
        imports = []
        for each, sure in found:
            top = self.search.top(each.module.partition(".")[0]) if not each.level else None
            if top is not None and not top:
                return None
            if top is None or top.portions:
                if not sure:
                    return None
                imports.append(each)
        return ModuleFacts(imports=imports)

    def _import(self, each: Import, module: _Module) -> None:
        by = f"{self._told(module.path)}:{each.line}"
        least = Certainty.MAIN if module.is_entry else Certainty.CERTAIN
        certain = each.certainty >= least and module.certain
        fatal = certain or (each.certainty is Certainty.LATE and module.is_entry)
        name = each.module
        if each.level:
            if module.package is None:
                if fatal:
                    dotted = self._told(module.path).removesuffix(".py").replace("/", ".")
                    shown = "." * each.level + each.module
                    self._refuse(relative_in_script(shown, where=by, dotted=dotted))
                return
            base = module.package.split(".")
            if each.level > len(base):
                if fatal:
                    self._refuse(above_its_package(where=by))
                return
            name = ".".join((*base[: len(base) - each.level + 1], *filter(None, [name])))
        portions = self._load(name, certain=certain, by=by)
        if portions is None:
            if each.certainty is not Certainty.GUARDED:
                self._not_found(name, by, certain=fatal)
            else:
                self.missing.append(f"{by}: {name}")
            return
        names = list(each.names)
        if "*" in names:
            names = list(self._exported(portions))
        for inner in names:
            if self._child(portions, inner) is not None:
                self._load(f"{name}.{inner}", certain=certain, by=by)

    def _load(
        self, name: str, *, certain: bool, by: str, is_entry: bool = False
    ) -> Sequence[Portion] | None:
        """Find a module and the packages above it; nothing for what the environment has, None where there is none."""
        first, *rest = name.split(".")
        top = self.search.top(first)
        if not top:
            return None
        portions = top.portions
        dotted = first
        self._reach(dotted, portions, certain=certain, by=by, is_entry=is_entry and not rest)
        for part in rest:
            if not portions:
                return ()
            child = self._child(portions, part)
            dotted = f"{dotted}.{part}"
            if child is None:
                return () if top.installed or self._makes_own(portions) else None
            portions = child
            is_last = dotted == name
            self._reach(dotted, portions, certain=certain, by=by, is_entry=is_entry and is_last)
        return portions

    def _child(self, portions: Sequence[Portion], name: str) -> Sequence[Portion] | None:
        children: list[Portion] = []
        for each in portions:
            if each.found.folder is None:
                continue
            found = find_module(each.found.place, each.found.folder, name)
            if found is not None and found.file:
                return [Portion(found=found, origin=each.origin)]
            if found is not None:
                children.append(Portion(found=found, origin=each.origin))
        return children or None

    def _makes_own(self, portions: Sequence[Portion]) -> bool:
        """Whether what is missing below may be made by the module itself when it runs."""
        for each in portions:
            found = each.found
            if not found.file:
                continue
            if not found.is_source:
                return True
            source = found.place.read(found.file)
            if any(word in source for word in (b"__path__", b"sys.modules", b"__getattr__")):
                return True
        return False

    def _reach(
        self, dotted: str, portions: Sequence[Portion], *, certain: bool, by: str, is_entry: bool
    ) -> None:
        known = self.loaded.get(dotted)
        if (known is portions or known == portions) and (
            not certain or dotted in self.surely_loaded
        ):
            return
        self.loaded[dotted] = portions
        if certain:
            self.surely_loaded.add(dotted)
        for each in portions:
            found = each.found
            if not found.file:
                continue
            path = found.place.path_of(found.file)
            self.places.record(each, path, by)
            if found.is_source:
                module = _Module(
                    path=path if not isinstance(found.place, Archive) else path / found.file,
                    source=found.place.read(found.file),
                    package=dotted if found.folder is not None else dotted.rpartition(".")[0],
                    folder=path.parent,
                    certain=certain,
                    is_entry=is_entry,
                )
                (self.certain if certain else self.uncertain).append(module)

    def _exported(self, portions: Sequence[Portion]) -> Sequence[str]:
        for each in portions:
            if each.found.is_source and each.found.folder is not None:
                try:
                    facts = module_facts(each.found.place.read(each.found.file), file="")
                except (SyntaxError, ValueError):
                    continue
                return facts.exported or ()
        return ()

    def _candidates(self, prefix: str, by: str) -> None:
        """Follow every submodule that a name which begins so could mean."""
        package = prefix.rpartition(".")[0]
        portions = self._load(package, certain=False, by=by) if package else None
        for each in portions or ():
            for name in each.found.place.names(each.found.folder or ""):
                module = name.partition(".")[0]
                if f"{package}.{module}".startswith(prefix) and module.isidentifier():
                    self._load(f"{package}.{module}", certain=False, by=by)

    def _resource(self, package: str, path: str, module: _Module) -> None:
        folders = [module.folder] if module.folder else []
        if package and package != module.package:
            portions = self._load(package, certain=False, by=self._told(module.path)) or ()
            folders = [
                each.found.place.path_of(each.found.folder)
                for each in portions
                if each.found.folder is not None
            ]
        for folder in folders:
            target = Path(os.path.normpath(folder / path))
            if target.exists() and folder in target.parents:
                self.places.need(target)

    def _by_path(self, path: Path, module: _Module) -> None:
        path = Path(os.path.normpath(path))
        if path.suffix == ".py" and path.is_file() and self.places.in_root(path) is not None:
            self.script(path, certain=False)
        elif path.exists():
            self.missing.append(f"{self._told(module.path)}: loads {path}, which is not carried")

    def _told(self, path: Path) -> str:
        return self.places.in_root(path) or str(path)

    def _not_found(self, name: str, by: str, *, certain: bool) -> None:
        first = name.split(".")[0]
        if not certain or first in self.allow_missing or name in self.allow_missing:
            self.missing.append(f"{by}: {name}")
            return
        self.absent.setdefault(name if self.search.top(first) else first, []).append(by)

    def _refuse(self, problem: Problem) -> None:
        if problem not in self.problems:
            self.problems.append(problem)

    def _absences(self) -> Iterator[Problem]:
        for name, places in self.absent.items():
            top = self.search.top(name.split(".")[0])
            folders = [(each.found.place, each.found.folder or "") for each in top.portions]
            empty = [place.path_of(at) for place, at in folders if not place.names(at)]
            yield module_not_found(
                name,
                places=list(dict.fromkeys(places)),
                is_partly_there=bool(top),
                known=self.search.top_names(),
                empty_folder=self._told(empty[0]) if empty else "",
            )

    def result(self, *, implicit: Path, python_path: Sequence[Path]) -> Closure:
        """What was found; `implicit` is the folder that Python searches by itself."""
        return Closure(
            needed=frozenset(self.places.needed - {"."}),
            outside=self.places.outside_imports(),
            import_paths=self.places.import_paths(implicit=implicit, python_path=python_path),
            dynamic=self.dynamic,
            missing=list(dict.fromkeys(self.missing)),
            problems=[*self.problems, *self._absences()],
            loaded=frozenset(self.loaded),
            modules=len(self.visited),
        )
