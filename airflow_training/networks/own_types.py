"""Types of layers that a user adds: YAML files of a folder, or of an installed package. Each is checked before it counts."""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from airflow_training.documents.loading import load_documents, read_file
from airflow_training.documents.problems import problems_of, with_lines
from airflow_training.errors import InputError, Problem
from airflow_training.networks.formulas import FUNCTIONS, INSERTED, forbidden_in
from airflow_training.networks.layer_type import LayerType
from airflow_training.settings import layer_types_folder

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["ENTRY_POINT_GROUP", "OwnTypes", "folder_stamp", "own_types", "read_types"]

ENTRY_POINT_GROUP = "airflow_training.layer_types"
"""An entry point leads to the path of a YAML file (text or Path), or to a function that returns one."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTypes:
    """The types that users add, and what of them is no good: a broken one stops no other."""

    types: Mapping[str, LayerType]
    broken: Mapping[str, str]
    """Name of a type -> where it is from, and what is wrong with it."""
    unread: Sequence[str]
    """Files, entry points, and types of a name that another has, which say nothing; each with its reason."""


def own_types(shipped: Mapping[str, LayerType]) -> OwnTypes:
    """Read the types of packages and of the user's folder; one of a name that is taken is broken. Raises nothing for what others wrote."""
    types = dict(shipped)
    broken: dict[str, str] = {}
    sources, unread = _files()
    for path in sources:
        try:
            found, problems = _read_file(path, taken=types)
        except (InputError, OSError) as error:
            unread.append(f"{path}: {error}")
            continue
        types |= found
        for name, wrong in problems.items():
            broken[name] = f"{path}: {'; '.join(str(each) for each in wrong)}"
    unread += [f"{name}: {why}" for name, why in broken.items() if name in types]
    return OwnTypes(
        types={name: kind for name, kind in types.items() if name not in shipped},
        broken={name: why for name, why in broken.items() if name not in types},
        unread=unread,
    )


def folder_stamp() -> Sequence[tuple[str, int]]:
    """List the files of the user's folder with their times of change, in ns: another list means other types."""
    return [(str(path), _changed_at(path)) for path in _of_folder()]


def _changed_at(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:  # a link to nothing, as editors make, or it went meanwhile
        return 0


def read_types(path: Path, *, taken: Mapping[str, LayerType]) -> dict[str, LayerType]:
    """Return the types of a file, in the form of `catalogue.yaml`; raises InputError with every mistake."""
    types, problems = _read_file(path, taken=taken)
    if problems:
        found = [problem for wrong in problems.values() for problem in wrong]
        raise InputError(problems=found, path=str(path))
    return types


def _read_file(
    path: Path, *, taken: Mapping[str, LayerType]
) -> tuple[dict[str, LayerType], dict[str, Sequence[Problem]]]:
    """Return the good types of a file, and the mistakes of the others by their names; raises InputError for what is no file of types."""
    documents = load_documents(read_file(path), str(path))
    if len(documents) != 1 or (
        documents[0].data is not None and not isinstance(documents[0].data, dict)
    ):
        message = "must be one mapping: name of a type to what it is"
        raise InputError.of(code="wrong_type", field="", message=message, path=str(path))
    (document,) = documents
    if document.problems:
        raise InputError(problems=with_lines(document.problems, document.lines), path=str(path))
    types: dict[str, LayerType] = {}
    broken: dict[str, Sequence[Problem]] = {}
    for name, entry in (document.data or {}).items():
        kind, problems = _read_type(name, entry, taken={**taken, **types})
        if kind is not None and not problems:
            types[name] = kind
        else:
            broken[str(name)] = with_lines(problems, document.lines)
    return types, broken


def _read_type(
    name: Any, entry: Any, *, taken: Mapping[str, LayerType]
) -> tuple[LayerType | None, Sequence[Problem]]:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        message = "is no name of a class"
        return None, [Problem(code="bad_name", field=str(name), value=name, message=message)]
    if name in taken:
        message = "there is such a type already"
        return None, [Problem(code="duplicate", field=name, value=name, message=message)]
    try:
        kind = LayerType.__pydantic_validator__.validate_python(entry)
    except ValidationError as error:
        return None, problems_of(error, model=LayerType, prefix=(name,))
    return kind, [*_mistakes(name, kind, taken)]


def _files() -> tuple[Sequence[Path], list[str]]:
    """Return the files of packages and of the folder, and why some packages name none."""
    from importlib.metadata import entry_points

    points = sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda each: each.name)
    found = [_path_of(point) for point in points]
    paths = [each for each in found if isinstance(each, Path)]
    return [*paths, *_of_folder()], [each for each in found if isinstance(each, str)]


def _path_of(point: EntryPoint) -> Path | str:
    """Return the file that an entry point leads to, or why it leads to none."""
    try:
        loaded: Any = point.load()
        return Path(loaded() if callable(loaded) else loaded)
    except Exception as error:  # noqa: BLE001 - code of another package may raise anything
        reason = f"{type(error).__name__}: {error}"
        return f"the entry point {point.name} = {point.value} cannot be loaded: {reason}"


def _of_folder() -> Sequence[Path]:
    folder = layer_types_folder()
    try:
        found = [path for path in folder.iterdir() if path.suffix in (".yaml", ".yml")]
    except OSError:  # mostly there is none
        return ()
    return sorted(found)


def _mistakes(name: str, kind: LayerType, taken: Mapping[str, LayerType]) -> Iterator[Problem]:
    """Yield what is wrong with a well-formed entry."""
    formulas = {"output": kind.output, "flops": kind.flops}
    formulas |= {f"weights.{key}": formula for key, formula in kind.weights.items()}
    formulas |= {f"needs[{place}].that": need.that for place, need in enumerate(kind.needs)}
    for key, param in kind.params.items():
        given = {"infer": param.infer, "fill": param.fill, "omit": param.omit}
        formulas |= {f"params.{key}.{part}": text for part, text in given.items() if text}
    for place, need in enumerate(kind.needs):
        for part, text in (("message", need.message), ("hint", need.hint)):
            for number, formula in enumerate(INSERTED.findall(text)):
                formulas[f"needs[{place}].{part}" + (f"[{number}]" if number else "")] = formula
    names = {"x", "y", "inputs", "shapes", *kind.params}
    for field, formula in formulas.items():
        if reason := forbidden_in(formula) or _unknown_in(formula, names):
            yield Problem(
                code="not_allowed", field=f"{name}.{field}", value=formula, message=reason
            )
    known = [*kind.params]
    for place, need in enumerate(kind.needs):
        if need.param not in (*known, "inputs"):
            yield Problem(
                code="bad_reference", field=f"{name}.needs[{place}].param", value=need.param,
                message="is no parameter of it", allowed=[*known, "inputs"],
            )  # fmt: skip
    for flag in kind.call_if:
        if flag not in known:
            yield Problem(
                code="bad_reference", field=f"{name}.call_if", value=flag,
                message="is no parameter of it", allowed=known,
            )  # fmt: skip
    for field, keys in (("params", kind.params), ("weights", kind.weights)):
        for key in keys:
            if not _NAME.fullmatch(key) or keyword.iskeyword(key):
                message = "is no name of an argument"
                yield Problem(code="bad_name", field=f"{name}.{field}", value=key, message=message)
    calls = {"call": kind.call} | {f"call_if.{key}": text for key, text in kind.call_if.items()}
    for field, text in calls.items():
        if reason := _wrong_call(text, known):
            yield Problem(code="not_allowed", field=f"{name}.{field}", value=text, message=reason)
    yield from _mistakes_of_code(name, kind, taken)


def _unknown_in(formula: str, names: Set[str]) -> str:
    for node in ast.walk(ast.parse(formula, mode="eval")):
        if isinstance(node, ast.Name) and node.id not in names and node.id not in FUNCTIONS:
            return f"uses {node.id}, which is none of {', '.join(sorted(names))}"
    return ""


def _wrong_call(text: str, params: Sequence[str]) -> str:
    """Return why values cannot be put into an expression of a call."""
    known = {"self", "inputs", "sum", "product", "x", "y", "z", *params}
    try:
        used = [part for _, part, _, _ in Formatter().parse(text) if part is not None]
    except ValueError as error:
        return str(error)
    wrong = [part for part in used if part not in known]
    return f"{{{wrong[0]}}} is none of {', '.join(sorted(known))}" if wrong else ""


def _mistakes_of_code(
    name: str, kind: LayerType, taken: Mapping[str, LayerType]
) -> Iterator[Problem]:
    where = f"{name}.code"
    try:
        body = ast.parse(kind.code).body
    except (SyntaxError, ValueError) as error:  # ValueError: a null character, before Python 3.12
        yield Problem(code="syntax", field=where, message=f"is no Python: {error}")
        return
    others = "\n".join(each.code for each in taken.values())
    for node in body:
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef)) or not node.name.startswith("_"):
            message = "holds functions and classes whose names begin with _, and nothing else"
            yield Problem(code="not_allowed", field=where, message=message)
        elif re.search(rf"^(def|class) {node.name}\b", others, re.MULTILINE):
            message = "another type has a function of this name"
            yield Problem(code="duplicate", field=where, value=node.name, message=message)
