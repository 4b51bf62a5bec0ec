"""Garbage: dependents of deleted owners, foreground and orphan deletion, terminating namespaces."""

from __future__ import annotations

from collections.abc import Callable

from tests.kubernetes.emulator import kinds
from tests.kubernetes.emulator.errors import ApiError
from tests.kubernetes.emulator.kinds import Kind
from tests.kubernetes.emulator.registry import DeleteOptions, Registry
from tests.kubernetes.emulator.store import Change, Entry, Object


class Collector:
    """The controllers that tidy up. Each step follows from a change, never from a timer."""

    def __init__(self, registry: Registry, served: list[Kind], soon: Callable[..., object]) -> None:
        self._registry = registry
        self._store = registry.store
        self._served = [kind for kind in served if "delete" in kind.verbs]
        self._soon = soon
        self._owners: dict[str, tuple[Kind, str, str]] = {}
        """uid of every living object -> where it is."""
        self._dependents: dict[str, dict[str, Entry]] = {}
        """uid of an owner -> uid -> dependent."""
        self._store.listeners.append(self._on_change)

    def _on_change(self, change: Change) -> None:
        entry = change.entry
        meta = entry.obj["metadata"]
        if change.type == "DELETED":
            self._owners.pop(entry.uid, None)
            for owner in meta.get("ownerReferences") or ():
                self._dependents.get(owner["uid"], {}).pop(entry.uid, None)
                self._soon(self._foreground_done, owner["uid"])
            if entry.uid in self._dependents:
                self._soon(self._collect_dependents, entry.uid)
            if entry.kind.namespaced:
                self._soon(self._empty_namespace, entry.namespace)
        else:
            self._owners[entry.uid] = (entry.kind, entry.namespace, entry.name)
            for owner in meta.get("ownerReferences") or ():
                self._dependents.setdefault(owner["uid"], {})[entry.uid] = entry
                if change.type == "ADDED":
                    self._soon(self._collect_if_orphan, entry)
            if meta.get("deletionTimestamp") and meta.get("finalizers"):
                self._soon(self._finalize, entry)
            if entry.kind is kinds.NAMESPACES:
                if change.type == "ADDED":
                    self._soon(self._fill_namespace, entry.name)
                elif meta.get("deletionTimestamp"):
                    self._soon(self._empty_namespace, entry.name)

    # Owners

    def _alive(self, owner: Object, namespace: str) -> bool:
        found = self._owners.get(owner["uid"])
        return found is not None and found[1] in ("", namespace) and found[2] == owner["name"]

    def _collect_if_orphan(self, entry: Entry) -> None:
        current = self._store.find(entry.kind, entry.namespace, entry.name)
        if current is None or current.uid != entry.uid:
            return
        owners = current.obj["metadata"].get("ownerReferences") or ()
        living = [one for one in owners if self._alive(one, entry.namespace)]
        if owners and not living:
            self._delete(current)
        elif len(living) < len(owners):
            self._registry.change(
                current, lambda obj: obj["metadata"].update(ownerReferences=living)
            )

    def _collect_dependents(self, uid: str) -> None:
        for entry in list(self._dependents.pop(uid, {}).values()):
            self._collect_if_orphan(entry)

    def _delete(self, entry: Entry, propagation: str = "Background") -> None:
        try:
            self._registry.delete(
                entry.kind, entry.namespace, entry.name,
                DeleteOptions(uid=entry.uid, propagation=propagation),
            )  # fmt: skip
        except ApiError:
            return

    def _finalize(self, entry: Entry) -> None:
        current = self._store.find(entry.kind, entry.namespace, entry.name)
        if current is None or current.uid != entry.uid:
            return
        finalizers = current.obj["metadata"].get("finalizers") or ()
        dependents = list(self._dependents.get(entry.uid, {}).values())
        if "orphan" in finalizers:
            for one in dependents:
                self._registry.change(one, lambda obj: _without_owner(obj, entry.uid))
            self._dependents.pop(entry.uid, None)
            self._registry.change(current, lambda obj: _without_finalizer(obj, "orphan"))
        elif "foregroundDeletion" in finalizers:
            for one in dependents:
                if not one.obj["metadata"].get("deletionTimestamp"):
                    self._delete(one, "Foreground" if one.kind is kinds.JOBS else "Background")
            self._foreground_done(entry.uid)

    def _foreground_done(self, uid: str) -> None:
        where = self._owners.get(uid)
        if where is None:
            return
        blocking = [
            one
            for one in self._dependents.get(uid, {}).values()
            for owner in one.obj["metadata"].get("ownerReferences") or ()
            if owner["uid"] == uid and owner.get("blockOwnerDeletion")
        ]
        current = self._store.find(*where)
        if (
            not blocking
            and current is not None
            and current.obj["metadata"].get("deletionTimestamp")
            and "foregroundDeletion" in (current.obj["metadata"].get("finalizers") or ())
        ):
            self._registry.change(
                current, lambda obj: _without_finalizer(obj, "foregroundDeletion")
            )

    # Namespaces

    def _fill_namespace(self, name: str) -> None:
        """Make what every namespace has."""
        if self._store.find(kinds.NAMESPACES, "", name) is None:
            return
        for kind, obj in (
            (kinds.SERVICEACCOUNTS, {"metadata": {"name": "default"}}),
            (
                kinds.CONFIGMAPS,
                {"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": "emulator"}},
            ),
        ):
            if self._store.find(kind, name, obj["metadata"]["name"]) is None:
                self._registry.create(kind, name, obj)

    def _empty_namespace(self, name: str) -> None:
        space = self._store.find(kinds.NAMESPACES, "", name)
        if space is None or not space.obj["metadata"].get("deletionTimestamp"):
            return
        left = 0
        for kind in self._served:
            if not kind.namespaced:
                continue
            for entry in list(self._store.entries(kind, name)):
                if not entry.obj["metadata"].get("deletionTimestamp"):
                    self._delete(entry)
            left += self._store.count(kind, name)
        if not left and (current := self._store.find(kinds.NAMESPACES, "", name)) is not None:
            self._store.remove(current)


def _without_finalizer(obj: Object, name: str) -> None:
    left = [one for one in obj["metadata"].get("finalizers") or () if one != name]
    if left:
        obj["metadata"]["finalizers"] = left
    else:
        obj["metadata"].pop("finalizers", None)


def _without_owner(obj: Object, uid: str) -> None:
    left = [one for one in obj["metadata"].get("ownerReferences") or () if one["uid"] != uid]
    if left:
        obj["metadata"]["ownerReferences"] = left
    else:
        obj["metadata"].pop("ownerReferences", None)
