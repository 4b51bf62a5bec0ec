"""The environment and command of a container: references to fields and keys, $(VAR) expansion."""

from __future__ import annotations

import base64
import math
import os
import re
import sys
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from tests.kubernetes.emulator import kinds
from tests.kubernetes.emulator.kinds import Kind
from tests.kubernetes.emulator.quantities import quantity
from tests.kubernetes.emulator.store import Store

_REFERENCE = re.compile(r"\$\$|\$\(([^()]*)\)")
_PROGRAMS = Path(__file__).with_name("bin")
_FROM_HOST = ("HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "TMPDIR", "TZ")


class ConfigError(Exception):
    """A reference that leads nowhere: CreateContainerConfigError."""


def expand(text: str, env: Mapping[str, str]) -> str:
    """Return `text` with $(VAR) replaced; unknown ones stay, `$$` is one `$`."""

    def value(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        return env.get(found[1], found[0])

    return _REFERENCE.sub(value, text)


def data_of(store: Store, kind: Kind, namespace: str, name: str) -> dict[str, bytes] | None:
    """Return the contents of a ConfigMap or Secret, or None where there is none."""
    entry = store.find(kind, namespace, name)
    if entry is None:
        return None
    data = entry.obj.get("data") or {}
    if kind is kinds.SECRETS:
        return {key: base64.b64decode(value) for key, value in data.items()}
    found = {key: str(value).encode() for key, value in data.items()}
    for key, value in (entry.obj.get("binaryData") or {}).items():
        found[key] = base64.b64decode(value)
    return found


def field_value(pod: Mapping[str, Any], path: str) -> str:
    """Return what a fieldRef points to."""
    meta = pod["metadata"]
    if found := re.fullmatch(r"metadata\.(labels|annotations)\['(.*)'\]", path):
        return str((meta.get(found[1]) or {}).get(found[2], ""))
    if path in ("metadata.labels", "metadata.annotations"):
        values = meta.get(path.partition(".")[2]) or {}
        return "\n".join(f'{key}="{_quoted(value)}"' for key, value in sorted(values.items()))
    if path == "status.podIPs":
        return ",".join(one["ip"] for one in pod["status"].get("podIPs") or ())
    value: Any = pod
    for step in path.split("."):
        value = value.get(step, "") if isinstance(value, Mapping) else ""
    return str(value)


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def resource_value(
    pod: Mapping[str, Any], container: str, ref: Mapping[str, Any], allocatable: Mapping[str, str]
) -> str:
    """Return what a resourceFieldRef points to, rounded up to whole divisors."""
    name = ref.get("containerName") or container
    spec = next(
        one
        for one in (*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"])
        if one["name"] == name
    )
    field, _, resource = ref["resource"].partition(".")
    text = ((spec.get("resources") or {}).get(field) or {}).get(resource)
    if text is None:
        text = allocatable.get(resource, "0") if field == "limits" else "0"
    divisor = quantity(ref.get("divisor") or "0") or Fraction(1)
    return str(math.ceil(quantity(text) / divisor))


def environment(
    store: Store,
    pod: Mapping[str, Any],
    container: Mapping[str, Any],
    allocatable: Mapping[str, str],
    *,
    hostname: str,
) -> dict[str, str]:
    """Return the whole environment of a container; raises ConfigError."""
    namespace = pod["metadata"]["namespace"]
    programs = f"{_PROGRAMS}:{Path(sys.executable).parent}"
    env = {key: os.environ[key] for key in _FROM_HOST if key in os.environ}
    env |= {"PATH": f"{programs}:{os.environ.get('PATH', os.defpath)}", "HOSTNAME": hostname}
    env["OMP_NUM_THREADS"] = (
        "1"  # all nodes are this machine: ranks that each use it all slow each other down
    )
    for source in container.get("envFrom") or ():
        for field, kind in (("configMapRef", kinds.CONFIGMAPS), ("secretRef", kinds.SECRETS)):
            if ref := source.get(field):
                data = data_of(store, kind, namespace, ref["name"])
                if data is None and not ref.get("optional"):
                    raise ConfigError(f'{kind.kind.lower()} "{ref["name"]}" not found')
                prefix = source.get("prefix", "")
                env |= {prefix + key: value.decode() for key, value in (data or {}).items()}
    for one in container.get("env") or ():
        if not one.get("valueFrom"):
            env[one["name"]] = expand(one.get("value") or "", env)
        elif (value := _from(store, pod, container, one["valueFrom"], allocatable)) is not None:
            env[one["name"]] = value
    return env


def _from(
    store: Store,
    pod: Mapping[str, Any],
    container: Mapping[str, Any],
    source: Mapping[str, Any],
    allocatable: Mapping[str, str],
) -> str | None:
    if ref := source.get("fieldRef"):
        return field_value(pod, ref["fieldPath"])
    if ref := source.get("resourceFieldRef"):
        return resource_value(pod, container["name"], ref, allocatable)
    namespace = pod["metadata"]["namespace"]
    for field, kind in (("configMapKeyRef", kinds.CONFIGMAPS), ("secretKeyRef", kinds.SECRETS)):
        if ref := source.get(field):
            data = data_of(store, kind, namespace, ref["name"])
            if data is not None and ref["key"] in data:
                return data[ref["key"]].decode()
            if ref.get("optional"):
                return None
            if data is None:
                raise ConfigError(f'{kind.kind.lower()} "{ref["name"]}" not found')
            raise ConfigError(
                f"couldn't find key {ref['key']} in {kind.kind} {namespace}/{ref['name']}"
            )
    return None
