"""What each verb does to the objects: validation, admission, conflicts, deletion. No HTTP here."""

from __future__ import annotations

import base64
import itertools
import json
import random
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.kubernetes.emulator import (
    defaults,
    errors,
    kinds,
    podsecurity,
    quota,
    schema,
    validation,
)
from tests.kubernetes.emulator.clock import later, stamp
from tests.kubernetes.emulator.errors import Cause
from tests.kubernetes.emulator.kinds import Kind
from tests.kubernetes.emulator.quantities import quantity
from tests.kubernetes.emulator.selectors import Predicate
from tests.kubernetes.emulator.store import Entry, Object, Store

_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
ENVELOPE = ("kind", "apiVersion")

Mutation = Callable[[Object], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    dry_run: bool = False
    strict: bool = False
    """`fieldValidation=Strict`: unknown fields are an error."""
    applied: bool = False
    """A server-side apply: they are one in any case, in words of its own."""
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOptions:
    grace_seconds: int | None = None
    propagation: str = ""
    uid: str = ""
    version: str = ""
    dry_run: bool = False


class Registry:
    """All verbs, for HTTP requests and for the emulator's own controllers."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._addresses = itertools.count(1)
        self._random = random.Random(0)
        self.forgotten: set[schema.Forgotten] = set()

    # Reading

    def get(self, kind: Kind, namespace: str, name: str) -> Entry:
        entry = self.store.find(kind, namespace, name)
        if entry is None:
            raise errors.not_found(kind, name)
        return entry

    def select(self, kind: Kind, namespace: str, predicate: Predicate | None) -> list[Entry]:
        entries = self.store.entries(kind, namespace)
        return [entry for entry in entries if predicate is None or predicate(entry.obj)]

    # Creating

    def create(
        self,
        kind: Kind,
        namespace: str,
        obj: Object,
        options: WriteOptions | None = None,
    ) -> Entry:
        """POST."""
        options = options or WriteOptions()
        obj = self._decoded(kind, obj, options)
        meta = obj["metadata"]
        self._place(kind, namespace, meta)
        if meta.get("resourceVersion"):
            raise errors.bad_request("resourceVersion should not be set on objects to be created")
        if not meta.get("name"):
            prefix = meta.get("generateName")
            if not prefix:
                raise errors.invalid(
                    kind, "",
                    [errors.required("metadata.name", "name or generateName is required")],
                )  # fmt: skip
            meta["name"] = prefix[:58] + "".join(self._random.choices(_SUFFIX_LETTERS, k=5))
        for key in ("selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields"):
            meta.pop(key, None)
        meta["uid"] = str(uuid.uuid4())
        meta["creationTimestamp"] = stamp()
        self._new_status(kind, obj)
        _set_defaults(kind, obj)
        self._admit(kind, obj)
        causes = list(validation.object_causes(kind, obj))
        if causes:
            raise errors.invalid(kind, meta["name"], causes)
        if self.store.find(kind, meta.get("namespace", ""), meta["name"]) is not None:
            raise errors.already_exists(kind, meta["name"])
        quota.check(self.store, kind, obj)
        if options.dry_run:
            return Entry(kind, obj, 0)
        return self.store.put(kind, obj)

    def _decoded(self, kind: Kind, obj: Object, options: WriteOptions) -> Object:
        """Return the object without envelope, with types checked and unknown fields dropped."""
        obj, unknown = schema.decode(kind, obj, forgotten=self.forgotten)
        if unknown and options.applied:
            raise errors.undeclared(kind, obj, unknown[0])
        if unknown and options.strict:
            raise errors.strict_decoding(kind, unknown)
        options.warnings.extend(f'unknown field "{path}"' for path in unknown)
        obj = {key: value for key, value in obj.items() if key not in ENVELOPE}
        obj["metadata"] = dict(obj.get("metadata") or {})
        for key in ("labels", "annotations"):
            values = obj["metadata"].get(key)
            if values is not None and not (
                isinstance(values, dict) and all(isinstance(v, str) for v in values.values())
            ):
                raise errors.bad_request(
                    "json: cannot unmarshal into Go struct field "
                    f"ObjectMeta.metadata.{key} of type string"
                )
        _check_quantities(kind, obj)
        return obj

    def _place(self, kind: Kind, namespace: str, meta: Object) -> None:
        if not kind.namespaced:
            meta.pop("namespace", None)
            return
        if meta.get("namespace", namespace) != namespace:
            raise errors.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        meta["namespace"] = namespace

    def _new_status(self, kind: Kind, obj: Object) -> None:
        """A status is never taken from a create."""
        if kind.status_subresource and kind is not kinds.NODES:
            obj.pop("status", None)
        if kind is kinds.PODS:
            obj["status"] = {"phase": "Pending"}
        elif kind is kinds.SERVICES:
            obj["status"] = {"loadBalancer": {}}
        elif kind in (kinds.QUOTAS, kinds.JOBS):
            obj["status"] = {}
        elif kind is kinds.NAMESPACES:
            obj["status"] = {"phase": "Active"}
            obj.setdefault("spec", {})["finalizers"] = ["kubernetes"]
            obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = obj[
                "metadata"
            ]["name"]
        if kind in (kinds.PODS, kinds.JOBS) or kind.custom:
            obj["metadata"]["generation"] = 1

    def _admit(self, kind: Kind, obj: Object) -> None:
        meta = obj["metadata"]
        if kind.namespaced:
            space = self.store.find(kinds.NAMESPACES, "", meta["namespace"])
            if space is None:
                raise errors.not_found(kinds.NAMESPACES, meta["namespace"])
            if space.obj["metadata"].get("deletionTimestamp"):
                why = (
                    f"unable to create new content in namespace {meta['namespace']} because it is "
                    "being terminated"
                )
                cause = Cause(
                    "metadata.namespace", "NamespaceTerminating",
                    f"namespace {meta['namespace']} is being terminated",
                )  # fmt: skip
                raise errors.forbidden(kind, meta["name"], why, [cause])
        if kind is kinds.PODS:
            self._admit_pod(obj)
        elif kind is kinds.SERVICES:
            self._give_address(obj["spec"])

    def _admit_pod(self, obj: Object) -> None:
        meta, spec = obj["metadata"], obj["spec"]
        wanted = spec.get("priorityClassName")
        if wanted:
            found = self.store.find(kinds.PRIORITYCLASSES, "", wanted)
            if found is None:
                raise errors.forbidden(
                    kinds.PODS, meta["name"], f"no PriorityClass with name {wanted} was found"
                )
            if "priority" in spec and spec["priority"] != found.obj["value"]:
                raise errors.forbidden(
                    kinds.PODS, meta["name"],
                    "the integer value of priority "
                    f"({spec['priority']}) must not be provided in pod spec; priority admission "
                    "controller computed "
                    f"{found.obj['value']} from the given PriorityClass name",
                )  # fmt: skip
            spec["priority"] = found.obj["value"]
            spec.setdefault(
                "preemptionPolicy", found.obj.get("preemptionPolicy", "PreemptLowerPriority")
            )
        account = spec.get("serviceAccountName") or "default"
        if self.store.find(kinds.SERVICEACCOUNTS, meta["namespace"], account) is None:
            raise errors.forbidden(
                kinds.PODS, meta["name"],
                f"error looking up service account {meta['namespace']}/{account}: "
                f'serviceaccount "{account}" not found',
            )  # fmt: skip
        defaults.admitted_pod(spec)
        namespace = self.store.find(kinds.NAMESPACES, "", meta["namespace"])
        why = podsecurity.violations(namespace.obj, spec) if namespace is not None else ""
        if why:
            raise errors.forbidden(kinds.PODS, meta["name"], why)
        obj["status"]["qosClass"] = defaults.qos_class(spec)

    def _give_address(self, spec: Object) -> None:
        if spec.get("type") == "ExternalName":
            return
        if not spec.get("clusterIP"):
            n = next(self._addresses)
            spec["clusterIP"] = f"10.96.{n // 250}.{n % 250 + 1}"
        spec["clusterIPs"] = [spec["clusterIP"]]

    # Changing

    def replace(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        obj: Object,
        *,
        subresource: str = "",
        options: WriteOptions | None = None,
    ) -> Entry:
        """PUT."""
        options = options or WriteOptions()
        obj = self._decoded(kind, obj, options)
        meta = obj["metadata"]
        self._place(kind, namespace, meta)
        if meta.get("name") != name:
            raise errors.bad_request(
                f"the name of the object ({meta.get('name', '')}) does not match the name on the "
                f"URL ({name})"
            )
        old = self.get(kind, namespace, name)
        if kind.custom and not meta.get("resourceVersion"):
            cause = errors.wrong("metadata.resourceVersion", 0, "must be specified for an update")
            raise errors.invalid(kind, name, [cause])
        return self._update(old, obj, subresource, options)

    def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        patch: Object,
        *,
        subresource: str = "",
        options: WriteOptions | None = None,
    ) -> Entry:
        """PATCH of an existing object with a merge patch."""
        options = options or WriteOptions()
        old = self.get(kind, namespace, name)
        envelope = {"kind": kind.kind, "apiVersion": kind.api_version()}
        obj: Object = _merged({**envelope, **old.obj}, patch)
        obj = self._decoded(kind, obj, options)
        if obj["metadata"].get("name") != name:
            raise errors.bad_request("the name of the object does not match the name on the URL")
        return self._update(old, obj, subresource, options)

    def _update(self, old: Entry, obj: Object, subresource: str, options: WriteOptions) -> Entry:
        kind, meta, was = old.kind, obj["metadata"], old.obj["metadata"]
        if meta.get("uid", was["uid"]) != was["uid"]:
            raise errors.conflict(
                kind, old.name,
                f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: "
                f"{was['uid']}",
            )  # fmt: skip
        if meta.get("resourceVersion") and meta["resourceVersion"] != was["resourceVersion"]:
            raise errors.conflict(kind, old.name)
        for key in (
            "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds",
            "generation", "namespace", "resourceVersion", "managedFields", "generateName",
        ):  # fmt: skip
            meta.pop(key, None)
            if key in was:
                meta[key] = was[key]
        if subresource == "status":
            obj = {**old.obj, "status": obj.get("status") or {}, "metadata": meta}
            for key in ("labels", "annotations", "finalizers", "ownerReferences"):
                meta.pop(key, None)
                if key in was:
                    meta[key] = was[key]
        elif kind.status_subresource:
            obj.pop("status", None)
            if "status" in old.obj:
                obj["status"] = old.obj["status"]
        _set_defaults(kind, obj)
        _keep_server_fields(kind, old.obj, obj)
        causes = [
            *validation.object_causes(kind, obj),
            *validation.update_causes(kind, old.obj, obj),
        ]
        if causes:
            raise errors.invalid(kind, old.name, causes)
        if "generation" in meta and obj.get("spec") != old.obj.get("spec"):
            meta["generation"] = was["generation"] + 1
        return self.write(old, obj, dry_run=options.dry_run)

    def write(self, old: Entry, obj: Object, *, dry_run: bool = False) -> Entry:
        """Store a new version, or nothing where nothing changed; the last finalizer ends it."""
        if obj == old.obj:
            return old
        if dry_run:
            return Entry(old.kind, obj, old.version)
        meta = obj["metadata"]
        over = meta.get("deletionTimestamp") and not meta.get("finalizers")
        if over and not meta.get("deletionGracePeriodSeconds") and old.kind is not kinds.NAMESPACES:
            return self.store.remove(Entry(old.kind, obj, old.version))
        return self.store.put(old.kind, obj)

    def change(self, entry: Entry, mutate: Mutation) -> Entry:
        """Let a controller change the current version of an object; nothing where it is gone."""
        current = self.store.find(entry.kind, entry.namespace, entry.name)
        if current is None or current.uid != entry.uid:
            return entry
        obj: Object = json.loads(json.dumps(current.obj))
        mutate(obj)
        return self.write(current, obj)

    def set_status(self, entry: Entry, status: Object) -> Entry:
        """Replace the status; for controllers, without validation."""
        current = self.store.find(entry.kind, entry.namespace, entry.name)
        if current is None or current.uid != entry.uid:
            return entry
        obj = {**current.obj, "metadata": dict(current.obj["metadata"]), "status": status}
        return self.write(current, obj)

    # Deleting

    def delete(
        self, kind: Kind, namespace: str, name: str, options: DeleteOptions | None = None
    ) -> tuple[Entry, bool]:
        """Delete, or begin to; returns the last version and whether it is gone."""
        options = options or DeleteOptions()
        entry = self.get(kind, namespace, name)
        meta = entry.obj["metadata"]
        if options.uid and options.uid != meta["uid"]:
            raise errors.conflict(
                kind, name,
                f"the UID in the precondition ({options.uid}) does not match the UID in record "
                f"({meta['uid']}). The object might have been deleted and then recreated",
            )  # fmt: skip
        if options.version and options.version != meta["resourceVersion"]:
            raise errors.conflict(
                kind, name,
                f"the ResourceVersion in the precondition ({options.version}) does not match the "
                f"ResourceVersion in record ({meta['resourceVersion']}). The object might have "
                "been modified",
            )  # fmt: skip
        if options.dry_run:
            return entry, False
        finalizers = list(meta.get("finalizers") or ())
        wanted = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}.get(
            # A job's dependents stay unless the client says otherwise, for old clients' sake.
            options.propagation or ("Orphan" if kind is kinds.JOBS else "")
        )
        if options.propagation:
            finalizers = [one for one in finalizers if one not in ("foregroundDeletion", "orphan")]
        if wanted and wanted not in finalizers:
            finalizers.append(wanted)
        grace = _grace(kind, entry.obj, options.grace_seconds)
        if not finalizers and not grace and kind is not kinds.NAMESPACES:
            return self.store.remove(entry), True
        if meta.get("deletionTimestamp"):
            shorter = grace < meta.get("deletionGracePeriodSeconds", 0)
            if not shorter:
                if finalizers == list(meta.get("finalizers") or ()):
                    return entry, False
                grace = meta.get("deletionGracePeriodSeconds", 0)
        new = {
            **meta,
            "deletionTimestamp": stamp(later(grace)),
            "deletionGracePeriodSeconds": grace,
        }
        if finalizers:
            new["finalizers"] = finalizers
        obj = {**entry.obj, "metadata": new}
        if kind is kinds.NAMESPACES:
            del new["deletionGracePeriodSeconds"]
            obj["status"] = {**entry.obj.get("status", {}), "phase": "Terminating"}
        elif "generation" in new and not meta.get("deletionTimestamp"):
            new["generation"] += 1
        return self.write(entry, obj), False


def _merged(target: Any, patch: Any) -> Any:
    """Return `target` with `patch` merged in (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), value)
    return merged


def _grace(kind: Kind, obj: Mapping[str, Any], asked: int | None) -> int:
    if kind is not kinds.PODS:
        return 0
    ended = obj["status"].get("phase") in ("Succeeded", "Failed")
    if ended or not obj["spec"].get("nodeName"):
        return 0
    return int(obj["spec"]["terminationGracePeriodSeconds"]) if asked is None else asked


def _set_defaults(kind: Kind, obj: Object) -> None:
    if kind is kinds.PODS:
        defaults.pod_spec(obj.setdefault("spec", {}))
    elif kind is kinds.SERVICES:
        defaults.service_spec(obj.setdefault("spec", {}))
    elif kind is kinds.SECRETS:
        for key, text in (obj.pop("stringData", None) or {}).items():
            obj.setdefault("data", {})[key] = _base64(text)
        obj.setdefault("type", "Opaque")
    elif kind is kinds.JOBS:
        spec = obj.setdefault("spec", {})
        defaults.job_spec(spec)
        uid = obj["metadata"]["uid"]
        controller_uid = {"batch.kubernetes.io/controller-uid": uid}
        spec.setdefault("selector", {"matchLabels": controller_uid})
        meta = spec["template"].setdefault("metadata", {})
        meta["labels"] = {
            **(meta.get("labels") or {}), **controller_uid, "controller-uid": uid,
            "batch.kubernetes.io/job-name": obj["metadata"]["name"],
            "job-name": obj["metadata"]["name"],
        }  # fmt: skip
    elif kind is kinds.PRIORITYCLASSES:
        obj.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _keep_server_fields(kind: Kind, old: Mapping[str, Any], new: Object) -> None:
    """A PUT without what the server itself filled in keeps it."""
    if kind is kinds.SERVICES:
        for key in ("clusterIP", "clusterIPs"):
            if key in old["spec"]:
                new["spec"].setdefault(key, old["spec"][key])
    elif kind is kinds.PODS:
        for key in (
            "nodeName", "serviceAccountName", "serviceAccount", "enableServiceLinks", "priority",
            "preemptionPolicy", "tolerations",
        ):  # fmt: skip
            if key in old["spec"]:
                new["spec"].setdefault(key, old["spec"][key])


def _check_quantities(kind: Kind, obj: Mapping[str, Any]) -> None:
    """A malformed quantity is a matter of decoding: 400."""
    spec: Any = None
    if kind is kinds.PODS:
        spec = obj.get("spec")
    elif kind is kinds.JOBS:
        spec = ((obj.get("spec") or {}).get("template") or {}).get("spec")
    containers = (
        *((spec or {}).get("initContainers") or ()), *((spec or {}).get("containers") or ()),
    )  # fmt: skip
    texts = [
        text
        for container in containers
        for values in (container.get("resources") or {}).values()
        if isinstance(values, dict)
        for text in values.values()
    ]
    try:
        for text in texts:
            quantity(text)
    except ValueError as error:
        version = kind.versions[0]
        raise errors.bad_request(
            f'{kind.kind} in version "{version}" cannot be handled as a {kind.kind}: {error}'
        ) from error
