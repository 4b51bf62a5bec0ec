"""Write `models.json` from the installed Kubernetes client; the only user of the client here."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

__all__ = ["ROOT", "TABLE", "build", "main"]

ROOT = "V1PodTemplateSpec"
TABLE = Path(__file__).with_name("models.json")

# The client calls these `str` or `object`; the API reference says what they are.
_BETTER_TYPES = {
    ("V1ResourceRequirements", "limits"): "map:quantity",
    ("V1ResourceRequirements", "requests"): "map:quantity",
    ("V1VolumeResourceRequirements", "limits"): "map:quantity",
    ("V1VolumeResourceRequirements", "requests"): "map:quantity",
    ("V1PodSpec", "overhead"): "map:quantity",
    ("V1EmptyDirVolumeSource", "size_limit"): "quantity",
    ("V1ResourceFieldSelector", "divisor"): "quantity",
    ("V1HTTPGetAction", "port"): "int-or-str",
    ("V1TCPSocketAction", "port"): "int-or-str",
}
_SCALARS = {
    "str": "str",
    "int": "int",
    "float": "float",
    "bool": "bool",
    "datetime": "str",
    "object": "any",
}


def build() -> dict[str, Any]:
    """Return `{model: {"fields": {camelCase: type}, "required": [...]}}` for all that is reachable.

    A type is `str`, `int`, `float`, `bool`, `any`, `quantity`, `int-or-str`, a model's name, or
    one of them after `list:` or `map:`.
    """
    client = importlib.import_module("kubernetes.client")
    models: dict[str, Any] = {}
    waiting = [ROOT]
    while waiting:
        name = waiting.pop()
        if name in models:
            continue
        model = getattr(client, name)
        fields: dict[str, str] = {}
        for attribute, declared in model.openapi_types.items():
            kind = _BETTER_TYPES.get((name, attribute)) or _kind(declared)
            fields[model.attribute_map[attribute]] = kind
            inner = kind.rpartition(":")[2]
            if inner[0].isupper():
                waiting.append(inner)
        models[name] = {"fields": dict(sorted(fields.items())), "required": _required(model)}
    return dict(sorted(models.items()))


def _kind(declared: str) -> str:
    # older clients write dict(str, str), newer ones dict[str, str]
    for pattern, prefix in ((r"list\[(.*)\]", "list:"), (r"dict[\[(]str, (.*)[\])]", "map:")):
        found = re.fullmatch(pattern, declared)
        if found:
            return prefix + _kind(found[1])
    return _SCALARS.get(declared, declared)


def _required(model: Any) -> list[str]:
    """Return the fields without which the client refuses to build the model."""
    complete = dict.fromkeys(model.attribute_map, "given")
    missing = []
    for attribute, written in model.attribute_map.items():
        try:
            model(**{**complete, attribute: None})
        except ValueError:  # noqa: PERF203 - asking the client is the point
            missing.append(written)
    return sorted(missing)


def main() -> None:
    """Write the table beside this module."""
    TABLE.write_text(json.dumps(build(), separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
