"""A serial view as JSON, and as text for people."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from airflow_training.errors import InputError, Problem
from airflow_training.planning.view.computation import ComputationView, Operator, Tensor, Unit

VERSION = 1


def to_json(view: ComputationView) -> dict[str, Any]:
    """Return the view as a document of plain JSON types, which `from_json` reads back as it was."""
    return {"version": VERSION, **_view(view)}


def from_json(document: Mapping[str, Any]) -> ComputationView:
    """Return the view that a document describes.

    Raises:
        InputError: The document is of another version, lacks something, or names tensors or operators
            that it does not hold.

    """
    if document.get("version") != VERSION:
        message = "this version of a view cannot be read"
        raise InputError([_problem("version", document.get("version"), message, (VERSION,))])
    try:
        view = _read(document)
    except KeyError as missing:
        raise InputError(
            [_problem("view", document.get("name"), f"{missing} is missing")]
        ) from missing
    except (TypeError, AttributeError) as wrong:
        message = "it is not laid out as a view is"
        raise InputError([_problem("view", document.get("name"), message)]) from wrong
    problems = list(_dangling(view))
    if problems:
        raise InputError(problems)
    return view


def pack_view(view: ComputationView) -> str:
    """Return the view as a short line of ASCII, which `unpack_view` reads back as it was."""
    said = json.dumps(to_json(view), separators=(",", ":"))
    return base64.b64encode(zlib.compress(said.encode(), level=9)).decode()


def unpack_view(packed: str) -> ComputationView:
    """Return the view that was packed; raises InputError where it is of another version."""
    return from_json(json.loads(zlib.decompress(base64.b64decode(packed))))


def text(view: ComputationView) -> str:
    """Return the view a line per operator, under the names of its units."""
    return "\n".join(_lines(view, ""))


def _view(view: ComputationView) -> dict[str, Any]:
    return {
        "name": view.name,
        "batch": view.batch,
        "tensors": [
            {
                "name": tensor.name,
                "shape": list(tensor.shape),
                "axes": list(tensor.axes),
                "dtype": tensor.dtype,
                "kind": tensor.kind,
            }
            for tensor in view.tensors.values()
        ],
        "operators": [_operator(operator) for operator in view.operators],
        "units": [
            {"name": unit.name, "operators": list(unit.operators), "repeat": unit.repeat}
            for unit in view.units
        ],
    }


def _operator(operator: Operator) -> dict[str, Any]:
    document: dict[str, Any] = {
        "name": operator.name,
        "kind": operator.kind,
        "inputs": list(operator.inputs),
        "outputs": list(operator.outputs),
        "phase": operator.phase,
    }
    if operator.attributes:
        document["attributes"] = {key: _plain(v) for key, v in operator.attributes.items()}
    if operator.of:
        document["of"] = operator.of
    if operator.count != 1.0:
        document["count"] = operator.count
    if operator.bodies:
        document["bodies"] = [_view(body) for body in operator.bodies]
    return document


def _read(document: Mapping[str, Any]) -> ComputationView:
    tensors = [
        Tensor(
            name=entry["name"],
            shape=tuple(entry["shape"]),
            axes=tuple(entry["axes"]),
            dtype=entry["dtype"],
            kind=entry["kind"],
        )
        for entry in document["tensors"]
    ]
    operators = tuple(
        Operator(
            name=entry["name"],
            kind=entry["kind"],
            inputs=tuple(entry["inputs"]),
            outputs=tuple(entry["outputs"]),
            attributes={k: _frozen(v) for k, v in entry.get("attributes", {}).items()},
            phase=entry["phase"],
            of=entry.get("of", ""),
            count=entry.get("count", 1.0),
            bodies=tuple(_read(body) for body in entry.get("bodies", ())),
        )
        for entry in document["operators"]
    )
    units = tuple(
        Unit(name=entry["name"], operators=tuple(entry["operators"]), repeat=entry.get("repeat", 1))
        for entry in document["units"]
    )
    return ComputationView(
        name=document["name"],
        tensors={tensor.name: tensor for tensor in tensors},
        operators=operators,
        units=units,
        batch=document["batch"],
    )


def _plain(value: Any) -> Any:
    """Attributes are numbers, texts and tuples of them; JSON has lists."""
    return [_plain(each) for each in value] if isinstance(value, (list, tuple)) else value


def _frozen(value: Any) -> Any:
    return tuple(_frozen(each) for each in value) if isinstance(value, list) else value


def _dangling(view: ComputationView) -> Iterator[Problem]:
    for operator in view.operators:
        for name in (*operator.inputs, *operator.outputs):
            if name not in view.tensors:
                message = f"operator {operator.name!r} uses a tensor that the view does not hold"
                yield _problem("tensors", name, message)
        for body in operator.bodies:
            yield from _dangling(body)
    known = {operator.name for operator in view.operators}
    for unit in view.units:
        for name in unit.operators:
            if name not in known:
                message = f"unit {unit.name!r} names an operator that the view does not hold"
                yield _problem("units", name, message)


def _lines(view: ComputationView, indent: str) -> Iterator[str]:
    known = {operator.name: operator for operator in view.operators}
    yield f"{indent}{view.name}, written for a batch of {view.batch}"
    for unit in view.units:
        times = f" x {unit.repeat}" if unit.repeat > 1 else ""
        yield f"{indent}{unit.name}{times}"
        for name in unit.operators:
            operator = known[name]
            inputs = ", ".join(operator.inputs)
            outputs = ", ".join(_shaped(view.tensors[each]) for each in operator.outputs)
            often = f" [{operator.count:g} times]" if operator.count != 1.0 else ""
            kind = operator.attributes.get("function", operator.kind)
            yield f"{indent}  {outputs} = {kind}({inputs}){often}"
            for body in operator.bodies:
                yield from _lines(body, indent + "    ")


def _shaped(tensor: Tensor) -> str:
    dims = (
        f"{axis}={size}" if axis else str(size)
        for axis, size in zip(tensor.axes, tensor.shape, strict=True)
    )
    return f"{tensor.name}[{', '.join(dims)}]"


def _problem(field: str, value: object, message: str, allowed: tuple[object, ...] = ()) -> Problem:
    return Problem(code="bad_view", field=field, value=value, message=message, allowed=allowed)
