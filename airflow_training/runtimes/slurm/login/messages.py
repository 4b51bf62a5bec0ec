"""What the two ends of a connection say: one JSON object a line. Pure, and standard library only.

Of objects, only those that the port knows are made from what the other end says.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import ModuleType
from typing import Any

from airflow_training import errors
from airflow_training.control import attempts, hardware, observations, reports, run_output
from airflow_training.documents import instances, resolved, resolved_blocks
from airflow_training.runtimes import port

__all__ = ["WATCH", "decode", "decode_error", "encode", "encode_error", "line_of"]

WATCH = "watch"
"""The call that is answered again and again."""
_KIND = "~"
"""The key of an object that is more than JSON has."""
_ERRORS: tuple[type[Exception], ...] = (
    errors.LeaseLost,
    errors.StillAlive,
    errors.RuntimeUnavailable,
)


def _classes(modules: Collection[ModuleType]) -> Mapping[str, type]:
    return {
        name: each
        for module in modules
        for name, each in vars(module).items()
        if isinstance(each, type) and (is_dataclass(each) or hasattr(each, "_fields"))
    }


_CLASSES = _classes(
    (attempts, hardware, instances, observations, port, reports, resolved, resolved_blocks, run_output)
)  # fmt: skip


def line_of(message: Mapping[str, Any]) -> bytes:
    """Return a message as it is sent."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def _names(kind: Any) -> Sequence[str]:
    """Return the fields of a data class or named tuple."""
    found: Sequence[str] | None = getattr(kind, "_fields", None)
    return found or [each.name for each in fields(kind)]


def encode(value: Any) -> Any:
    """Return a value of the port as JSON has it; raises TypeError for any other."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return {_KIND: "bytes", "is": base64.b64encode(value).decode()}
    if isinstance(value, list):
        return [encode(each) for each in value]
    name = type(value).__name__
    if _CLASSES.get(name) is type(value):
        names = _names(type(value))
        return {_KIND: name, "is": {each: encode(getattr(value, each)) for each in names}}
    if isinstance(value, tuple):
        return {_KIND: "tuple", "is": [encode(each) for each in value]}
    if isinstance(value, frozenset | set):
        return {_KIND: "set", "is": [encode(each) for each in value]}
    if isinstance(value, Mapping):
        if all(isinstance(key, str) and key != _KIND for key in value):
            return {key: encode(each) for key, each in value.items()}
        return {_KIND: "map", "is": [[encode(key), encode(each)] for key, each in value.items()]}
    raise TypeError(f"{name} is nothing that the port knows")


def decode(value: Any) -> Any:
    """Undo `encode`; raises TypeError, KeyError or ValueError for what it never makes."""
    if isinstance(value, list):
        return [decode(each) for each in value]
    if not isinstance(value, dict):
        return value
    kind = value.get(_KIND)
    if kind is None:
        return {key: decode(each) for key, each in value.items()}
    content = value["is"]
    match kind:
        case "bytes":
            return base64.b64decode(content)
        case "tuple":
            return tuple(decode(each) for each in content)
        case "set":
            return frozenset(decode(each) for each in content)
        case "map":
            return {decode(key): decode(each) for key, each in content}
    return _CLASSES[kind](**{key: decode(each) for key, each in content.items()})


def encode_error(error: BaseException) -> dict[str, Any]:
    """Describe what was raised at one end, so that the other raises it again."""
    match error:
        case errors.InputError():
            problems = [
                {
                    **{each.name: getattr(problem, each.name) for each in fields(problem)},
                    "value": _shown(problem.value),
                    "allowed": list(map(str, problem.allowed)),
                }
                for problem in error.problems
            ]
            return {"kind": "InputError", "problems": problems, "path": error.path}
        case errors.RefusedForNow():
            names = ("reason", "patience_seconds", "grace_seconds")
            more = {name: getattr(error, name) for name in names}
            return {"kind": "RefusedForNow", "message": str(error), **more}
        case OSError():  # of the shared folder: a disk that is full or away
            return {"kind": "OSError", "message": str(error)}
    kind = next((each.__name__ for each in _ERRORS if isinstance(error, each)), "")
    return {"kind": kind, "message": str(error) if kind else f"{type(error).__name__}: {error}"}


def _shown(value: Any) -> Any:
    try:
        return encode(value)
    except TypeError:  # a problem may name anything, and has to be told
        return str(value)


def decode_error(said: Mapping[str, Any]) -> Exception:
    """Undo `encode_error`; what nobody expected is a RuntimeError."""
    message = str(said.get("message", ""))
    match said.get("kind"):
        case "InputError":
            problems = [
                errors.Problem(**{**each, "value": decode(each["value"])})
                for each in said["problems"]
            ]
            return errors.InputError(problems=problems, path=said["path"])
        case "RefusedForNow":
            return errors.RefusedForNow(
                message,
                reason=said["reason"],
                patience_seconds=said["patience_seconds"],
                grace_seconds=said["grace_seconds"],
            )
        case "OSError":
            return OSError(message)
    for each in _ERRORS:
        if each.__name__ == said.get("kind"):
            return each(message)
    return RuntimeError(f"the program on the login node has failed: {message}")
