"""/version, /api, /apis: which groups, versions and resources there are."""

from __future__ import annotations

from typing import Any

from tests.kubernetes.emulator.kinds import Kind

VERSION = {
    "major": "1", "minor": "36", "gitVersion": "v1.36.0", "gitCommit": "emulator",
    "gitTreeState": "clean", "buildDate": "2026-04-22T00:00:00Z", "goVersion": "go1.26.0",
    "compiler": "gc", "platform": "linux/amd64",
}  # fmt: skip


class Discovery:
    def __init__(self, kinds: list[Kind]) -> None:
        self.kinds = kinds

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        for kind in self.kinds:
            if kind.group == group and version in kind.versions and kind.plural == plural:
                return kind
        return None

    def answer(self, path: str) -> dict[str, Any] | None:
        """Return the document of a discovery path, or None."""
        parts = [part for part in path.split("/") if part]
        if parts in (["healthz"], ["livez"], ["readyz"]):
            return {}
        if parts == ["version"]:
            return VERSION
        if parts == ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"]}
        if parts == ["apis"]:
            groups = [self._group(name) for name in self._groups()]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        if len(parts) == 2 and parts[0] == "apis" and parts[1] in self._groups():
            return {"kind": "APIGroup", "apiVersion": "v1", **self._group(parts[1])}
        if parts == ["api", "v1"]:
            return self._resources("", "v1")
        if len(parts) == 3 and parts[0] == "apis" and parts[2] in self._versions(parts[1]):
            return self._resources(parts[1], parts[2])
        return None

    def _groups(self) -> list[str]:
        return list(dict.fromkeys(kind.group for kind in self.kinds if kind.group))

    def _versions(self, group: str) -> list[str]:
        found = [v for kind in self.kinds if kind.group == group for v in kind.versions]
        return list(dict.fromkeys(found))

    def _group(self, name: str) -> dict[str, Any]:
        versions = [
            {"groupVersion": f"{name}/{version}", "version": version}
            for version in self._versions(name)
        ]
        return {"name": name, "versions": versions, "preferredVersion": versions[0]}

    def _resources(self, group: str, version: str) -> dict[str, Any]:
        resources = []
        for kind in self.kinds:
            if kind.group != group or version not in kind.versions:
                continue
            one: dict[str, Any] = {
                "name": kind.plural, "singularName": kind.kind.lower(),
                "namespaced": kind.namespaced, "kind": kind.kind, "verbs": list(kind.verbs),
            }  # fmt: skip
            if kind.short_names:
                one["shortNames"] = list(kind.short_names)
            resources.append(one)
            for subresource in kind.subresources:
                verbs = {
                    "log": ["get"],
                    "eviction": ["create"],
                    "exec": ["create", "get"],
                    "finalize": ["update"],
                }
                entry: dict[str, Any] = {
                    "name": f"{kind.plural}/{subresource}", "singularName": "",
                    "namespaced": kind.namespaced, "kind": kind.kind,
                    "verbs": verbs.get(subresource, ["get", "patch", "update"]),
                }  # fmt: skip
                if subresource == "eviction":
                    entry |= {"group": "policy", "version": "v1", "kind": "Eviction"}
                resources.append(entry)
        return {
            "kind": "APIResourceList", "apiVersion": "v1",
            "groupVersion": f"{group}/{version}" if group else version, "resources": resources,
        }  # fmt: skip
