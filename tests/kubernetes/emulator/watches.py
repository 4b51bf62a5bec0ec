"""Open watches: each gets the changes of its kind that its selectors let through, in order."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

from tests.kubernetes.emulator.faults import Faults
from tests.kubernetes.emulator.kinds import Kind
from tests.kubernetes.emulator.selectors import Predicate
from tests.kubernetes.emulator.store import Change, Entry, Store


def event(kind: str, document: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), document)


class Watch:
    """One open watch. Lines wait here until the connection takes them."""

    def __init__(
        self,
        *,
        kind: Kind,
        api_version: str,
        namespace: str,
        predicate: Predicate | None,
        faults: Faults,
    ) -> None:
        self.kind = kind
        self.namespace = namespace
        self.sent = 0
        """Version of the newest change that was queued."""
        self.cut = False
        self._api_version = api_version
        self._predicate = predicate
        self._faults = faults
        self._lines: list[bytes] = []
        self._held: dict[str, list[bytes]] = {}
        self._news = asyncio.Event()

    def offer(self, change: Change) -> None:
        """Queue what a change means to this watch: objects also enter and leave its selection."""
        entry = change.entry
        if self.namespace and entry.namespace != self.namespace:
            return
        self.sent = change.version
        matches = self._predicate
        if matches is None:
            kind: str = change.type
        else:
            before = change.previous is not None and matches(change.previous.obj)
            after = change.type != "DELETED" and matches(entry.obj)
            if not before and not after:
                return
            kind = "MODIFIED" if before and after else "ADDED" if after else "DELETED"
        self._queue(kind, entry)

    def add(self, entry: Entry) -> None:
        """Queue an object that was there when the watch began."""
        self._queue("ADDED", entry)

    def _queue(self, kind: str, entry: Entry) -> None:
        line = event(kind, entry.document(self._api_version))
        lines = [line, line] if self._faults.duplicated else [line]
        key = f"{entry.namespace}/{entry.name}"
        if key in self._held:
            self._held[key].extend(lines)
        elif delay := self._faults.delay_of(key):
            self._held[key] = lines
            asyncio.get_running_loop().call_later(delay, self._release, key)
        else:
            self._lines.extend(lines)
            self._news.set()

    def _release(self, key: str) -> None:
        self._lines.extend(self._held.pop(key, ()))
        self._news.set()

    def bookmark(self, version: int, *, initial_end: bool = False) -> None:
        if self._held:  # would promise that everything before it was sent
            return
        meta: dict[str, object] = {"resourceVersion": str(version), "creationTimestamp": None}
        if initial_end:
            meta["annotations"] = {"k8s.io/initial-events-end": "true"}
        document = {"kind": self.kind.kind, "apiVersion": self._api_version, "metadata": meta}
        if self.kind.kind == "Pod":
            document |= {"spec": {"containers": None}, "status": {}}
        self._lines.append(event("BOOKMARK", json.dumps(document).encode()))
        self._news.set()

    def fail(self, status: dict[str, object]) -> None:
        self._lines.append(event("ERROR", json.dumps(status).encode()))
        self._news.set()

    def end(self) -> None:
        """Cut the connection."""
        self.cut = True
        self._news.set()

    def flush_held(self) -> None:
        for key in list(self._held):
            self._release(key)

    async def lines(self, timeout: float) -> bytes:
        """Return what waits, or nothing after `timeout` seconds."""
        if not self._lines and not self.cut:
            try:
                await asyncio.wait_for(self._news.wait(), timeout)
            except asyncio.TimeoutError:
                return b""
        self._news.clear()
        data = b"".join(self._lines)
        self._lines.clear()
        return data


class Watches:
    """All open watches of a server."""

    def __init__(self, store: Store) -> None:
        self._open: dict[Kind, list[Watch]] = {}
        store.listeners.append(self._on_change)

    def _on_change(self, change: Change) -> None:
        for watch in self._open.get(change.entry.kind, ()):
            watch.offer(change)

    def opened(self, watch: Watch) -> Callable[[], None]:
        """Start to feed a watch; returns how to stop."""
        self._open.setdefault(watch.kind, []).append(watch)
        return lambda: self._open[watch.kind].remove(watch)

    def cut_all(self) -> int:
        found = [watch for watches in self._open.values() for watch in watches]
        for watch in found:
            watch.end()
        return len(found)

    @property
    def count(self) -> int:
        return sum(map(len, self._open.values()))
