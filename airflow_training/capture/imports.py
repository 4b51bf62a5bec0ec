"""What one module imports and which files of its packages it names, read from its syntax tree. Pure."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from airflow_training.capture.path_expressions import PathExpressions

__all__ = [
    "WORDS",
    "Certainty",
    "DynamicCall",
    "Import",
    "ModuleFacts",
    "ResourceName",
    "module_facts",
]

WORDS = (
    b"import_module",
    b"__import__",
    b"importlib.resources",
    b"importlib_resources",
    b"import resources",
    b"pkgutil",
    b"pkg_resources",
    b"sys.path",
    b"from_file_location",
    b"run_path",
    b"run_module",
    b"site.addsitedir",
)
"""Without one of them no call needs to be looked at."""


class Certainty(IntEnum):
    """How sure it is that an import is run."""

    GUARDED = 0
    """Its failure is caught."""
    LATE = 1
    """Inside a function."""
    CONDITIONAL = 2
    """Below an `if`, or where another import failed."""
    MAIN = 3
    """Below `if __name__ == "__main__"`: only of the script itself."""
    CERTAIN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """`from MODULE import NAMES`, or `import MODULE` where there are no names."""

    module: str
    level: int = 0
    """Dots before the module: 1 is the module's own package."""
    names: Sequence[str] = ()
    line: int = 0
    certainty: Certainty = Certainty.CERTAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicCall:
    """An import of which the module's name is known only when it runs."""

    line: int
    text: str
    prefix: str = ""
    """The constant beginning of the name, as of f"models.{name}"; of f"{__name__}.{name}" the dot alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceName:
    """A file or folder of a package that is named by a constant."""

    package: str
    """Dotted; empty for the module's own."""
    path: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleFacts:
    imports: Sequence[Import] = ()
    dynamic: Sequence[DynamicCall] = ()
    resources: Sequence[ResourceName] = ()
    search_paths: Sequence[str] = ()
    """Folders that the module adds to `sys.path`."""
    files: Sequence[str] = ()
    """Python files that it loads by path."""
    exported: Sequence[str] | None = None
    """`__all__`, where it is a constant."""
    changes_path: bool = False
    """It sets `__path__` or makes attributes on demand: its submodules cannot be known."""


def module_facts(source: bytes, *, file: str, working_dir: str = "") -> ModuleFacts:
    """Read a module's source.

    Raises:
        SyntaxError: it cannot be parsed by this version of Python.
        ValueError: it holds null bytes, or expressions that are too deep.
    """
    try:
        return _read(source, file=file, working_dir=working_dir)
    except (RecursionError, MemoryError):
        raise ValueError("an expression is too deep") from None


def _read(source: bytes, *, file: str, working_dir: str) -> ModuleFacts:
    tree = ast.parse(source, filename=file)
    assigned = dict(_assignments(tree.body))
    reader = _Reader(
        paths=PathExpressions(file=file, working_dir=working_dir, assigned=assigned),
        calls=any(word in source for word in WORDS),
    )
    reader.block(tree.body, Certainty.CERTAIN)
    return ModuleFacts(
        imports=reader.imports,
        dynamic=reader.dynamic,
        resources=reader.resources,
        search_paths=reader.search_paths,
        files=reader.files,
        exported=_exported(assigned.get("__all__")),
        changes_path=b"__path__" in source
        or b"def __getattr__" in source
        or b"sys.modules" in source,
    )


def _assignments(body: Sequence[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield name, value


def _exported(node: ast.expr | None) -> Sequence[str] | None:
    match node:
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            names = [each.value for each in elements if isinstance(each, ast.Constant)]
            return [name for name in names if isinstance(name, str)]
    return None


_CAUGHT = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}


def _catches(node: ast.expr | None) -> bool:
    match node:
        case None:
            return True
        case ast.Tuple(elts=elements):
            return any(_catches(each) for each in elements)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in _CAUGHT
    return False


_TRY = (ast.Try, ast.TryStar) if sys.version_info >= (3, 11) else (ast.Try,)


class _Reader:
    """Goes through statements with how sure it is that they run."""

    def __init__(self, *, paths: PathExpressions, calls: bool) -> None:
        self.paths = paths
        self.calls = calls
        self.imports: list[Import] = []
        self.dynamic: list[DynamicCall] = []
        self.resources: list[ResourceName] = []
        self.search_paths: list[str] = []
        self.files: list[str] = []
        self.importers = {"import_module", "__import__"}

    def block(self, statements: Sequence[ast.stmt], certainty: Certainty) -> None:
        for statement in statements:
            self._statement(statement, certainty)

    def _statement(self, node: ast.stmt, certainty: Certainty) -> None:
        maybe = min(certainty, Certainty.CONDITIONAL)
        match node:
            case ast.Import(names=names):
                # PEP 810: `lazy import` is run when the name is used
                sure = min(certainty, Certainty.LATE) if getattr(node, "is_lazy", 0) else certainty
                self.imports += [
                    Import(module=each.name, line=node.lineno, certainty=sure) for each in names
                ]
            case ast.ImportFrom(module=module, names=names, level=level):
                if module == "importlib":
                    self.importers |= {
                        each.asname or "" for each in names if each.name == "import_module"
                    }
                sure = min(certainty, Certainty.LATE) if getattr(node, "is_lazy", 0) else certainty
                self.imports.append(
                    Import(
                        module=module or "",
                        level=level,
                        names=[each.name for each in names],
                        line=node.lineno,
                        certainty=sure,
                    )
                )
            case ast.FunctionDef(body=body) | ast.AsyncFunctionDef(body=body):
                self._expressions(node, certainty)
                self.block(body, min(certainty, Certainty.LATE))
            case ast.ClassDef(body=body):
                self._expressions(node, certainty)
                self.block(body, certainty)
            case ast.If(test=test, body=body, orelse=orelse):
                self._expressions(node, certainty)
                if not _is_typing(test):  # what only type checkers read is not run
                    self.block(body, min(certainty, Certainty.MAIN) if _is_main(test) else maybe)
                self.block(orelse, maybe)
            case _ if isinstance(node, _TRY):
                caught = any(_catches(each.type) for each in node.handlers)
                self.block(node.body, Certainty.GUARDED if caught else certainty)
                for handler in node.handlers:
                    self.block(handler.body, maybe)
                self.block(node.orelse, certainty)
                self.block(node.finalbody, certainty)
            case ast.With(items=items, body=body) | ast.AsyncWith(items=items, body=body):
                self._expressions(node, certainty)
                suppressed = any(_suppresses(each.context_expr) for each in items)
                self.block(body, Certainty.GUARDED if suppressed else certainty)
            case ast.For() | ast.AsyncFor() | ast.While():
                self._expressions(node, certainty)
                self.block(node.body, certainty)
                self.block(node.orelse, maybe)
            case ast.Match(cases=cases):
                self._expressions(node, certainty)
                for case in cases:
                    self.block(case.body, maybe)
            case _:
                self._expressions(node, certainty)

    def _expressions(self, node: ast.stmt, certainty: Certainty) -> None:
        if not self.calls:
            return
        for _, value in ast.iter_fields(node):
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, (ast.expr, ast.withitem, ast.keyword)):
                    lefts: set[ast.expr] = set()  # of `a / b / c` only the whole counts
                    for inner in ast.walk(part):
                        if isinstance(inner, ast.Call):
                            self._call(inner, certainty)
                        elif isinstance(inner, ast.BinOp):
                            lefts.add(inner.left)
                            if inner not in lefts:
                                self._divided(inner)

    def _call(self, node: ast.Call, certainty: Certainty) -> None:
        name = _last_name(node.func)
        arguments = node.args
        if name in self.importers or name == "run_module":
            self._imported(node, certainty)
        elif name in ("spec_from_file_location", "run_path", "SourceFileLoader"):
            place = arguments[-1] if name != "run_path" and arguments else None
            place = arguments[0] if name == "run_path" and arguments else place
            path = None if place is None else self.paths.value(place)
            if path is None:
                self.dynamic.append(DynamicCall(line=node.lineno, text=ast.unparse(node)))
            else:
                self.files.append(path)
        elif name in ("insert", "append", "extend", "addsitedir") and _on_sys_path(node.func):
            self._added(node)
        elif name in _RESOURCE_FUNCTIONS and len(arguments) >= 2:
            package, *rest = (self._text(each) for each in arguments)
            known = [each for each in rest if each is not None]
            if package is not None and known and len(known) == len(rest):
                self._resource(package, "/".join(known), node.lineno)
        elif name == "joinpath" and isinstance(node.func, ast.Attribute):
            self._below_files(node.func.value, arguments, node.lineno)

    def _imported(self, node: ast.Call, certainty: Certainty) -> None:
        keywords = {each.arg: each.value for each in node.keywords}
        place = node.args[0] if node.args else keywords.get("name")
        module = None if place is None else self._text(place)
        if module is None:
            prefix = ""
            match place:
                case ast.JoinedStr(values=values):
                    prefix = self._beginning(values)
                case ast.BinOp(left=left, op=ast.Add()):
                    prefix = self._beginning([left])
            package = node.args[1] if len(node.args) > 1 else keywords.get("package")
            if prefix.startswith(".") and package is not None:
                prefix = f"{self._text(package) or ''}{prefix}"
            self.dynamic.append(
                DynamicCall(line=node.lineno, text=ast.unparse(node), prefix=prefix)
            )
            return
        level = len(module) - len(module.lstrip("."))
        package = node.args[1] if len(node.args) > 1 else keywords.get("package")
        base = self._text(package) if level and package is not None else ""
        if base:  # relative to a package that is named
            module, level = ".".join((*base.split(".")[: 1 - level or None], module.lstrip("."))), 0
        self.imports.append(
            Import(module=module.lstrip("."), level=level, line=node.lineno, certainty=certainty)
        )

    def _beginning(self, parts: Sequence[ast.expr]) -> str:
        """The constant beginning of a name; with a dot first for what is below the module's own package."""
        match parts:
            case [ast.FormattedValue(value=ast.Name(id="__name__" | "__package__")), *rest]:
                below = self._beginning(rest)
                return below if below.startswith(".") else ""
            case [ast.Constant(value=str() as begin), *_]:
                return begin
            case [
                ast.BinOp(left=ast.Name(id="__name__" | "__package__"), op=ast.Add(), right=right)
            ]:
                below = self._beginning([right])
                return below if below.startswith(".") else ""
            case [ast.BinOp(left=left, op=ast.Add())]:
                return self._beginning([left])
        return ""

    def _added(self, node: ast.Call) -> None:
        places = [node.args[-1]] if node.args else []
        if places and isinstance(places[0], (ast.List, ast.Tuple)):
            places = list(places[0].elts)
        for place in places:
            path = self.paths.value(place)
            if path is None:
                self.dynamic.append(DynamicCall(line=node.lineno, text=ast.unparse(node)))
            else:
                self.search_paths.append(path)

    def _divided(self, node: ast.BinOp) -> None:
        parts: list[ast.expr] = []
        inner: ast.expr = node
        while isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Div):
            parts.append(inner.right)
            inner = inner.left
        self._below_files(inner, parts[::-1], node.lineno)

    def _below_files(self, inner: ast.expr, parts: Sequence[ast.expr], line: int) -> None:
        """Note `files("package") / "a" / "b"`, up to the first part that is not constant."""
        if not (isinstance(inner, ast.Call) and _last_name(inner.func) == "files"):
            return
        package = self._text(inner.args[0]) if inner.args else ""
        known: list[str] = []
        for part in parts:
            text = self._text(part)
            if text is None:
                break
            known.append(text)
        if package is not None and known:
            self._resource(package, "/".join(known), line)

    def _resource(self, package: str, path: str, line: int) -> None:
        self.resources.append(ResourceName(package=package, path=path, line=line))

    def _text(self, node: ast.expr) -> str | None:
        """A constant text; empty for the module's own package."""
        match node:
            case ast.Name(id="__package__" | "__name__" | "__spec__"):
                return ""
            case ast.Attribute(value=ast.Name(id="__spec__")):
                return ""
            case ast.Name() | ast.Constant() | ast.JoinedStr():
                return self.paths.value(node)
        return None


_RESOURCE_FUNCTIONS = frozenset(
    (
        "get_data",
        "open_text",
        "open_binary",
        "read_text",
        "read_binary",
        "path",
        "is_resource",
        "resource_filename",
        "resource_string",
        "resource_stream",
    )
)


def _last_name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _on_sys_path(function: ast.expr) -> bool:
    match function:
        case ast.Attribute(value=ast.Attribute(value=ast.Name(id="sys"), attr="path")):
            return True
        case ast.Attribute(value=ast.Name(id="site"), attr="addsitedir"):
            return True
    return False


def _suppresses(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and _last_name(node.func) == "suppress"
        and any(_catches(each) for each in node.args)
    )


def _is_typing(test: ast.expr) -> bool:
    return _last_name(test) == "TYPE_CHECKING"


def _is_main(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and any(
        isinstance(each, ast.Name) and each.id == "__name__" for each in ast.walk(test)
    )
