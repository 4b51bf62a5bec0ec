"""What quotas say of themselves: their limits, and how much of them is used."""

from __future__ import annotations

import asyncio

from tests.kubernetes.emulator import kinds, quota
from tests.kubernetes.emulator.quantities import written
from tests.kubernetes.emulator.registry import Registry
from tests.kubernetes.emulator.store import Change


class QuotaController:
    """Counts a moment after something of a namespace with quotas has changed."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store
        self._due: set[str] = set()
        self._store.listeners.append(self._on_change)

    def _on_change(self, change: Change) -> None:
        namespace = change.entry.namespace
        counted = change.entry.kind in quota.COUNTED
        if not counted or namespace in self._due:
            return
        if not list(self._store.entries(kinds.QUOTAS, namespace)):
            return
        self._due.add(namespace)
        asyncio.get_running_loop().call_soon(self._count, namespace)

    def _count(self, namespace: str) -> None:
        self._due.discard(namespace)
        for entry in list(self._store.entries(kinds.QUOTAS, namespace)):
            hard = (entry.obj.get("spec") or {}).get("hard") or {}
            used = quota.used(self._store, namespace, hard)
            told = {name: written(value, name) for name, value in used.items()}
            status = {"hard": dict(hard), "used": told}
            if entry.obj.get("status") != status:
                self._registry.set_status(entry, status)
