"""What the real server refuses with 422: names, labels, pods, services; and what may not change."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tests.kubernetes.emulator import kinds
from tests.kubernetes.emulator.errors import (
    Cause,
    duplicate,
    not_allowed,
    required,
    too_long,
    unknown_reference,
    unsupported,
    wrong,
)
from tests.kubernetes.emulator.kinds import Kind
from tests.kubernetes.emulator.quantities import quantity

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_DNS_1035 = r"[a-z]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = rf"({_QUALIFIED})?"
_ENV_NAME = r"[ -<>-~]+"

SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character (e.g. 'example.com', regex used for "
    r"validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must "
    "start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for "
    "validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
DNS_1035_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
    "regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
LABEL_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or "
    "'12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
QUALIFIED_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with "
    "an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)

MAX_CONFIG_BYTES = 1024 * 1024
MAX_ANNOTATION_BYTES = 256 * 1024

IMMUTABLE_POD = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions "
    "to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it "
    "was previously negative)"
)


def is_label(name: str) -> bool:
    return len(name) <= 63 and re.fullmatch(_LABEL, name) is not None


def _name_causes(kind: Kind, name: str, field: str) -> Iterator[Cause]:
    if kind in (kinds.SERVICES, kinds.NAMESPACES):
        pattern, rule = (
            (_DNS_1035, DNS_1035_RULE) if kind is kinds.SERVICES else (_LABEL, LABEL_RULE)
        )
        limit = 63
    else:
        pattern, rule, limit = _SUBDOMAIN, SUBDOMAIN_RULE, 253
    if re.fullmatch(pattern, name) is None:
        yield wrong(field, name, rule)
    if len(name) > limit:
        yield wrong(field, name, f"must be no more than {limit} characters")


def label_causes(labels: Any, field: str) -> Iterator[Cause]:
    for key, value in (labels or {}).items():
        yield from _key_causes(key, field)
        if len(value) > 63:
            yield wrong(field, value, "must be no more than 63 characters")
        elif re.fullmatch(_LABEL_VALUE, value) is None:
            yield wrong(field, value, LABEL_VALUE_RULE)


def _key_causes(key: str, field: str) -> Iterator[Cause]:
    prefix, slash, name = key.rpartition("/")
    if slash and re.fullmatch(_SUBDOMAIN, prefix) is None:
        yield wrong(field, key, f"prefix part {SUBDOMAIN_RULE}")
    if len(name) > 63:
        yield wrong(field, key, "name part must be no more than 63 characters")
    elif re.fullmatch(_QUALIFIED, name) is None:
        yield wrong(field, key, QUALIFIED_RULE)


def metadata_causes(kind: Kind, meta: Mapping[str, Any]) -> Iterator[Cause]:
    yield from _name_causes(kind, meta["name"], "metadata.name")
    yield from label_causes(meta.get("labels"), "metadata.labels")
    size = 0
    for key, value in (meta.get("annotations") or {}).items():
        yield from _key_causes(key.lower(), "metadata.annotations")
        size += len(key) + len(value)
    if size > MAX_ANNOTATION_BYTES:
        yield too_long("metadata.annotations", MAX_ANNOTATION_BYTES)
    for at, owner in enumerate(meta.get("ownerReferences") or ()):
        for key in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(key):
                yield wrong(
                    f"metadata.ownerReferences[{at}].{key}", "",
                    {"apiVersion": "version", "uid": "uid"}.get(key, key) + " must not be empty",
                )  # fmt: skip
    for finalizer in meta.get("finalizers") or ():
        if "/" not in finalizer and finalizer not in ("foregroundDeletion", "orphan", "kubernetes"):
            yield wrong(
                "metadata.finalizers", finalizer,
                "name is neither a standard finalizer name nor is it fully qualified",
            )  # fmt: skip


def object_causes(kind: Kind, obj: Mapping[str, Any]) -> Iterator[Cause]:
    yield from metadata_causes(kind, obj["metadata"])
    if kind is kinds.PODS:
        yield from pod_causes(obj.get("spec"), "spec")
    elif kind is kinds.SERVICES:
        yield from _service_causes(obj.get("spec") or {})
    elif kind in (kinds.CONFIGMAPS, kinds.SECRETS):
        yield from _config_causes(kind, obj)
    elif kind is kinds.JOBS:
        yield from _job_causes(obj.get("spec") or {})
    elif kind is kinds.PRIORITYCLASSES and "value" not in obj:
        yield required("value")


def _config_causes(kind: Kind, obj: Mapping[str, Any]) -> Iterator[Cause]:
    data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    for key in (*data, *binary):
        if re.fullmatch(r"[-._a-zA-Z0-9]{1,253}", key) is None or key in (".", ".."):
            yield wrong(
                f"data[{key}]", key,
                "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. "
                "'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is "
                "'[-._a-zA-Z0-9]+')",
            )  # fmt: skip
    size = sum(len(v.encode()) for v in data.values())
    size += sum(len(v) * 3 // 4 for v in binary.values())
    if kind is kinds.SECRETS:
        size = size * 3 // 4
    if size > MAX_CONFIG_BYTES:
        yield too_long("" if kind is kinds.CONFIGMAPS else "data", MAX_CONFIG_BYTES)


def _service_causes(spec: Mapping[str, Any]) -> Iterator[Cause]:
    headless = spec.get("clusterIP") == "None"
    ports = spec.get("ports") or ()
    if not ports and not headless and spec.get("type") != "ExternalName":
        yield required("spec.ports")
    names: set[str] = set()
    for at, port in enumerate(ports):
        name = port.get("name", "")
        if not name and len(ports) > 1:
            yield required(f"spec.ports[{at}].name")
        elif name and not is_label(name):
            yield wrong(f"spec.ports[{at}].name", name, LABEL_RULE)
        elif name and name in names:
            yield duplicate(f"spec.ports[{at}].name", name)
        names.add(name)
        if not 1 <= port.get("port", 0) <= 65535:
            yield wrong(
                f"spec.ports[{at}].port", port.get("port", 0),
                "must be between 1 and 65535, inclusive",
            )  # fmt: skip


def _job_causes(spec: Mapping[str, Any]) -> Iterator[Cause]:
    for field in ("parallelism", "completions", "backoffLimit", "activeDeadlineSeconds"):
        if spec.get(field, 0) < 0:
            yield wrong(f"spec.{field}", spec[field], "must be greater than or equal to 0")
    template = spec.get("template") or {}
    policy = (template.get("spec") or {}).get("restartPolicy")
    if policy not in ("Never", "OnFailure"):
        yield Cause(
            "spec.template.spec.restartPolicy", "FieldValueRequired",
            'Required value: valid values: "OnFailure", "Never"',
        ) if not policy or policy == "Always" else unsupported(
            "spec.template.spec.restartPolicy", policy, ("OnFailure", "Never")
        )  # fmt: skip
    yield from pod_causes(template.get("spec"), "spec.template.spec")


def pod_causes(spec: Any, at: str) -> Iterator[Cause]:
    """Yield what is wrong with a PodSpec that has its defaults."""
    spec = spec or {}
    volumes: set[str] = set()
    for n, volume in enumerate(spec.get("volumes") or ()):
        name = volume.get("name", "")
        if not name:
            yield required(f"{at}.volumes[{n}].name")
        elif not is_label(name):
            yield wrong(f"{at}.volumes[{n}].name", name, LABEL_RULE)
        elif name in volumes:
            yield duplicate(f"{at}.volumes[{n}].name", name)
        sources = [key for key, value in volume.items() if key != "name" and value is not None]
        if len(sources) > 1:
            yield not_allowed(
                f"{at}.volumes[{n}].{sources[1]}", "may not specify more than 1 volume type"
            )
        volumes.add(name)
    if not spec.get("containers"):
        yield required(f"{at}.containers")
    names: set[str] = set()
    for field in ("initContainers", "containers"):
        for n, container in enumerate(spec.get(field) or ()):
            yield from _container_causes(container, f"{at}.{field}[{n}]", names, volumes)
            if field == "containers" and container.get("restartPolicy"):
                yield not_allowed(
                    f"{at}.{field}[{n}].restartPolicy", "may not be set for non-init containers"
                )
    yield from _pod_fields(spec, at)


def _pod_fields(spec: Mapping[str, Any], at: str) -> Iterator[Cause]:
    for field, allowed in (
        ("restartPolicy", ("Always", "OnFailure", "Never")),
        ("dnsPolicy", ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")),
        ("preemptionPolicy", ("Never", "PreemptLowerPriority")),
    ):
        if spec.get(field) and spec[field] not in allowed:
            yield unsupported(f"{at}.{field}", spec[field], allowed)
    for field in ("hostname", "subdomain"):
        if spec.get(field) and not is_label(spec[field]):
            yield wrong(f"{at}.{field}", spec[field], LABEL_RULE)
    if spec.get("activeDeadlineSeconds") is not None and not (
        1 <= spec["activeDeadlineSeconds"] <= 2147483647
    ):
        yield wrong(
            f"{at}.activeDeadlineSeconds", spec["activeDeadlineSeconds"],
            "must be between 1 and 2147483647, inclusive",
        )  # fmt: skip
    if spec.get("terminationGracePeriodSeconds", 0) < 0:
        yield wrong(
            f"{at}.terminationGracePeriodSeconds", spec["terminationGracePeriodSeconds"],
            "must be greater than or equal to 0",
        )  # fmt: skip
    yield from label_causes(spec.get("nodeSelector"), f"{at}.nodeSelector")
    for n, spread in enumerate(spec.get("topologySpreadConstraints") or ()):
        where = f"{at}.topologySpreadConstraints[{n}]"
        if spread.get("maxSkew", 0) <= 0:
            yield wrong(f"{where}.maxSkew", spread.get("maxSkew", 0), "must be greater than zero")
        if not spread.get("topologyKey"):
            yield required(f"{where}.topologyKey", "can not be empty")
        if spread.get("whenUnsatisfiable") not in ("DoNotSchedule", "ScheduleAnyway"):
            yield unsupported(
                f"{where}.whenUnsatisfiable", spread.get("whenUnsatisfiable", ""),
                ("DoNotSchedule", "ScheduleAnyway"),
            )  # fmt: skip
    for n, toleration in enumerate(spec.get("tolerations") or ()):
        if not toleration.get("key") and toleration.get("operator", "Equal") != "Exists":
            yield wrong(
                f"{at}.tolerations[{n}].operator", toleration.get("operator", "Equal"),
                "operator must be Exists when `key` is empty, which means \"match all values and all "
                'keys"',
            )  # fmt: skip


def _container_causes(
    container: Mapping[str, Any], at: str, names: set[str], volumes: set[str]
) -> Iterator[Cause]:
    name = container.get("name", "")
    if not name:
        yield required(f"{at}.name")
    elif not is_label(name):
        yield wrong(f"{at}.name", name, LABEL_RULE)
    elif name in names:
        yield duplicate(f"{at}.name", name)
    names.add(name)
    if not container.get("image"):
        yield required(f"{at}.image")
    elif container["image"] != container["image"].strip():
        yield wrong(
            f"{at}.image", container["image"], "must not have leading or trailing whitespace"
        )
    if container.get("imagePullPolicy") not in (None, "Always", "IfNotPresent", "Never"):
        yield unsupported(
            f"{at}.imagePullPolicy", container["imagePullPolicy"],
            ("Always", "IfNotPresent", "Never"),
        )  # fmt: skip
    for n, env in enumerate(container.get("env") or ()):
        if not env.get("name"):
            yield required(f"{at}.env[{n}].name")
        elif re.fullmatch(_ENV_NAME, env["name"]) is None:
            yield wrong(
                f"{at}.env[{n}].name", env["name"],
                "a valid environment variable name must consist only of printable ASCII characters "
                "other than '='",
            )  # fmt: skip
        if env.get("value") and env.get("valueFrom"):
            yield wrong(
                f"{at}.env[{n}].valueFrom", "", "may not be specified when `value` is not empty"
            )
    yield from _mount_causes(container, at, volumes)
    yield from _port_causes(container, at)
    yield from _resource_causes(container.get("resources") or {}, f"{at}.resources")


def _mount_causes(container: Mapping[str, Any], at: str, volumes: set[str]) -> Iterator[Cause]:
    paths: set[str] = set()
    for n, mount in enumerate(container.get("volumeMounts") or ()):
        where = f"{at}.volumeMounts[{n}]"
        if not mount.get("name"):
            yield required(f"{where}.name")
        elif mount["name"] not in volumes:
            yield unknown_reference(f"{where}.name", mount["name"])
        if not mount.get("mountPath"):
            yield required(f"{where}.mountPath")
        elif mount["mountPath"] in paths:
            yield Cause(
                f"{where}.mountPath", "FieldValueInvalid",
                f'Invalid value: "{mount["mountPath"]}": must be unique',
            )  # fmt: skip
        paths.add(mount.get("mountPath", ""))
        sub_path = mount.get("subPath", "")
        if sub_path.startswith("/"):
            yield wrong(f"{where}.subPath", sub_path, "must be a relative path")
        elif ".." in sub_path.split("/"):
            yield wrong(f"{where}.subPath", sub_path, "must not contain '..'")


def _port_causes(container: Mapping[str, Any], at: str) -> Iterator[Cause]:
    names: set[str] = set()
    for n, port in enumerate(container.get("ports") or ()):
        name = port.get("name", "")
        if name and (
            len(name) > 15 or not is_label(name) or re.search("[a-z]", name) is None or "--" in name
        ):
            why = (
                "must be no more than 15 characters"
                if len(name) > 15
                else "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"
            )
            yield wrong(f"{at}.ports[{n}].name", name, why)
        elif name and name in names:
            yield duplicate(f"{at}.ports[{n}].name", name)
        names.add(name)
        if not port.get("containerPort"):
            yield required(f"{at}.ports[{n}].containerPort")
        elif not 1 <= port["containerPort"] <= 65535:
            yield wrong(
                f"{at}.ports[{n}].containerPort", port["containerPort"],
                "must be between 1 and 65535, inclusive",
            )  # fmt: skip


def _resource_causes(resources: Mapping[str, Any], at: str) -> Iterator[Cause]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    amounts: dict[tuple[str, str], Any] = {}
    for field, values in (("limits", limits), ("requests", requests)):
        for name, text in values.items():
            where = f"{at}.{field}[{name}]"
            amounts[field, name] = quantity(text)  # its syntax was a matter of decoding
            if amounts[field, name] < 0:
                yield wrong(where, str(text), "must be greater than or equal to 0")
            if (
                "/" not in name
                and name not in ("cpu", "memory", "ephemeral-storage")
                and (not name.startswith("hugepages-"))
            ):
                yield wrong(where, name, "must be a standard resource for containers")
            if "/" in name and amounts[field, name].denominator != 1:
                yield wrong(where, str(text), "must be an integer")
    for name, text in requests.items():
        if ("limits", name) in amounts and amounts["requests", name] > amounts["limits", name]:
            yield wrong(
                f"{at}.requests", str(text),
                f"must be less than or equal to {name} limit of {limits[name]}",
            )  # fmt: skip
        elif "/" in name and name not in limits:
            yield required(f"{at}.limits", "Limit must be set for non overcommitable resources")


def update_causes(kind: Kind, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Cause]:
    """Yield what an update changes although it may not."""
    old_meta, new_meta = old["metadata"], new["metadata"]
    if old_meta.get("deletionTimestamp"):
        added = set(new_meta.get("finalizers") or ()) - set(old_meta.get("finalizers") or ())
        if added:
            shown = ", ".join(f'"{one}"' for one in sorted(added))
            yield not_allowed(
                "metadata.finalizers",
                "no new finalizers can be added if the object is being deleted, found new "
                f"finalizers []string{{{shown}}}",
            )
    if kind is kinds.PODS:
        yield from _pod_update_causes(old["spec"], new.get("spec") or {})
    elif kind in (kinds.CONFIGMAPS, kinds.SECRETS) and old.get("immutable"):
        for field in ("data", "binaryData", "immutable"):
            if (old.get(field) or None) != (new.get(field) or None):
                yield not_allowed(field, "field is immutable when `immutable` is set")
    elif kind is kinds.SERVICES:
        if old["spec"].get("clusterIP") != (new.get("spec") or {}).get("clusterIP"):
            shown = (new.get("spec") or {}).get("clusterIP", "")
            yield wrong("spec.clusterIPs[0]", shown, "may not change once set")
    elif kind is kinds.JOBS:
        for field in ("template", "completionMode", "selector"):
            if old["spec"].get(field) != (new.get("spec") or {}).get(field):
                yield wrong(f"spec.{field}", "...", "field is immutable")
    elif kind is kinds.PRIORITYCLASSES and old.get("value") != new.get("value"):
        yield not_allowed("value", "may not be changed in an update.")


def _pod_update_causes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Cause]:
    before, after = old.get("activeDeadlineSeconds"), new.get("activeDeadlineSeconds")
    if before is not None and (after is None or after > before):
        yield wrong(
            "spec.activeDeadlineSeconds", after,
            "must be less than or equal to previous value"
            if after is not None
            else "must not update from a positive integer to nil value",
        )  # fmt: skip
    if _frozen(old) != _frozen(new):
        yield not_allowed("spec", IMMUTABLE_POD)
    kept = new.get("tolerations") or []
    if any(one not in kept for one in old.get("tolerations") or ()):
        yield not_allowed(
            "spec.tolerations",
            "existing toleration can not be modified except its tolerationSeconds",
        )


def _frozen(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a PodSpec may not change."""
    free = {
        "activeDeadlineSeconds",
        "tolerations",
        "containers",
        "initContainers",
    }
    kept = {key: value for key, value in spec.items() if key not in free and value is not None}
    for field in ("containers", "initContainers"):
        kept[field] = [
            {key: value for key, value in one.items() if key != "image"}
            for one in spec.get(field) or ()
        ]
    return kept
