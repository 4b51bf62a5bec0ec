"""PodSecurity admission: the level `restricted`, where a namespace enforces it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

ENFORCE = "pod-security.kubernetes.io/enforce"
_PLAIN_VOLUMES = frozenset(
    {
        "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image",
        "persistentVolumeClaim", "projected", "secret",
    }
)  # fmt: skip
_HOST_KEYS = ("hostNetwork", "hostPID", "hostIPC")


def violations(namespace: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    """Return why the namespace does not take a pod, in the words of the real one; empty: it does."""
    labels = namespace["metadata"].get("labels") or {}
    found = list(_violations(spec)) if labels.get(ENFORCE) == "restricted" else []
    return f'violates PodSecurity "restricted:latest": {", ".join(found)}' if found else ""


def _violations(spec: Mapping[str, Any]) -> Iterator[str]:
    host = [f"{key}=true" for key in _HOST_KEYS if spec.get(key)]
    if host:
        yield f"host namespaces ({', '.join(host)})"
    kinds = {key for volume in spec.get("volumes") or () for key in volume if key != "name"}
    if kinds - _PLAIN_VOLUMES:
        yield f"restricted volume types ({', '.join(sorted(kinds - _PLAIN_VOLUMES))})"
    whole = spec.get("securityContext") or {}
    containers = [*(spec.get("initContainers") or ()), *spec["containers"]]
    own = {one["name"]: one.get("securityContext") or {} for one in containers}
    for title, bad, advice in (
        (
            "allowPrivilegeEscalation != false",
            [name for name, it in own.items() if it.get("allowPrivilegeEscalation") is not False],
            "must set securityContext.allowPrivilegeEscalation=false",
        ),
        (
            "unrestricted capabilities",
            [
                n
                for n, it in own.items()
                if "ALL" not in (it.get("capabilities") or {}).get("drop", ())
            ],
            'must set securityContext.capabilities.drop=["ALL"]',
        ),
        (
            "runAsNonRoot != true",
            [
                n
                for n, it in own.items()
                if it.get("runAsNonRoot", whole.get("runAsNonRoot")) is not True
            ],
            "must set securityContext.runAsNonRoot=true",
        ),
        (
            "runAsUser=0",
            [n for n, it in own.items() if it.get("runAsUser", whole.get("runAsUser")) == 0],
            "must not set runAsUser=0",
        ),
        (
            "seccompProfile",
            [
                name
                for name, it in own.items()
                if (it.get("seccompProfile") or whole.get("seccompProfile") or {}).get("type")
                not in ("RuntimeDefault", "Localhost")
            ],
            'must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"',
        ),
    ):
        if bad:
            yield f"{title} ({_named(bad)} {advice})"


def _named(containers: Sequence[str]) -> str:
    quoted = ", ".join(f'"{name}"' for name in containers)
    return f"container{'s' if len(containers) > 1 else ''} {quoted}"
