"""The objects, one rising resource version, and the history that watches replay. Not thread-safe."""

from __future__ import annotations

import bisect
import json
from collections.abc import Callable, Iterator
from typing import Any, Literal

from tests.kubernetes.emulator.kinds import Kind

Object = dict[str, Any]
ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]


class Entry:
    """One version of one object. Never changed after it was stored: a change is a new entry."""

    __slots__ = ("_inner", "kind", "obj", "version")

    def __init__(self, kind: Kind, obj: Object, version: int) -> None:
        self.kind = kind
        self.obj = obj
        self.version = version
        self._inner: bytes | None = None

    @property
    def name(self) -> str:
        return str(self.obj["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.obj["metadata"].get("namespace", ""))

    @property
    def uid(self) -> str:
        return str(self.obj["metadata"]["uid"])

    def item(self, api_version: str) -> bytes:
        """Return the JSON inside a list: built-in kinds carry no kind and version there."""
        if self._inner is None:
            self._inner = json.dumps(self.obj, separators=(",", ":")).encode()
        return self.document(api_version) if self.kind.custom else self._inner

    def document(self, api_version: str) -> bytes:
        if self._inner is None:
            self._inner = json.dumps(self.obj, separators=(",", ":")).encode()
        return b'{"kind":"%b","apiVersion":"%b",%b' % (
            self.kind.kind.encode(),
            api_version.encode(),
            self._inner[1:],
        )


class Change:
    """One step of history."""

    __slots__ = ("entry", "previous", "type", "version")

    def __init__(self, kind: ChangeType, entry: Entry, previous: Entry | None) -> None:
        self.type = kind
        self.entry = entry
        self.previous = previous
        self.version = entry.version


Table = dict[str, dict[str, Entry]]
"""Namespace (empty for cluster-scoped kinds) -> name -> entry."""

KEPT_CHANGES = 20_000


class Store:
    def __init__(self) -> None:
        self.version = 1
        self.compacted = 0
        """Watches from before this version get 410."""
        self._tables: dict[Kind, Table] = {}
        self._history: dict[Kind, list[Change]] = {}
        self.listeners: list[Callable[[Change], None]] = []

    def find(self, kind: Kind, namespace: str, name: str) -> Entry | None:
        return self._tables.get(kind, {}).get(namespace, {}).get(name)

    def entries(self, kind: Kind, namespace: str = "") -> Iterator[Entry]:
        """Yield entries in the order of their keys; no namespace: of all of them."""
        table = self._tables.get(kind, {})
        for space in [namespace] if namespace else sorted(table):
            found = table.get(space, {})
            for name in sorted(found):
                yield found[name]

    def count(self, kind: Kind, namespace: str) -> int:
        return len(self._tables.get(kind, {}).get(namespace, {}))

    def put(self, kind: Kind, obj: Object) -> Entry:
        """Store a new version; the object belongs to the store from now on."""
        meta = obj["metadata"]
        space = self._tables.setdefault(kind, {}).setdefault(meta.get("namespace", ""), {})
        previous = space.get(meta["name"])
        self.version += 1
        meta["resourceVersion"] = str(self.version)
        entry = Entry(kind, obj, self.version)
        space[meta["name"]] = entry
        self._record(Change("MODIFIED" if previous else "ADDED", entry, previous))
        return entry

    def remove(self, entry: Entry) -> Entry:
        """Remove an object; its last state gets the version of the removal."""
        self.version += 1
        obj = {
            **entry.obj,
            "metadata": {**entry.obj["metadata"], "resourceVersion": str(self.version)},
        }
        last = Entry(entry.kind, obj, self.version)
        del self._tables[entry.kind][entry.namespace][entry.name]
        self._record(Change("DELETED", last, entry))
        return last

    def _record(self, change: Change) -> None:
        history = self._history.setdefault(change.entry.kind, [])
        history.append(change)
        if len(history) > KEPT_CHANGES:
            half = KEPT_CHANGES // 2
            self.compacted = max(self.compacted, history[half - 1].version)
            del history[:half]
        for listener in self.listeners:
            listener(change)

    def since(self, kind: Kind, version: int) -> list[Change]:
        """Return what happened to a kind after `version`, oldest first."""
        history = self._history.get(kind, [])
        start = bisect.bisect_right(history, version, key=lambda change: change.version)
        return history[start:]

    def compact(self) -> int:
        """Forget the history, as etcd does every few minutes; return the version reached."""
        self.compacted = self.version
        self._history.clear()
        return self.compacted
