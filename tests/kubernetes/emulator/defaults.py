"""The defaults that the server writes into pods and services."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]


def pod_spec(spec: Object) -> None:
    """Fill in a PodSpec in place, as of a pod template too."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    for volume in spec.get("volumes") or ():
        for source in ("configMap", "secret", "downwardAPI", "projected"):
            if isinstance(volume.get(source), dict):
                volume[source].setdefault("defaultMode", 420)
        if not any(value is not None for key, value in volume.items() if key != "name"):
            volume["emptyDir"] = {}
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        _container(container)


def _container(container: Object) -> None:
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    image = str(container.get("image", ""))
    tag = image.rpartition("/")[2].partition(":")[2]
    latest = "@" not in image and tag in ("", "latest")
    container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
    resources = container.setdefault("resources", {})
    limits, requests = resources.get("limits"), resources.get("requests")
    if limits:
        resources["requests"] = {**limits, **(requests or {})}
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    for env in container.get("env") or ():
        source = env.get("valueFrom") or {}
        if source.get("fieldRef"):
            source["fieldRef"].setdefault("apiVersion", "v1")
        if source.get("resourceFieldRef"):
            source["resourceFieldRef"].setdefault("divisor", "0")
    for probe in ("readinessProbe", "livenessProbe", "startupProbe"):
        if container.get(probe):
            for key, value in (
                ("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1),
                ("failureThreshold", 3),
            ):  # fmt: skip
                container[probe].setdefault(key, value)
            if container[probe].get("httpGet"):
                container[probe]["httpGet"].setdefault("path", "/")
                container[probe]["httpGet"].setdefault("scheme", "HTTP")


def admitted_pod(spec: Object) -> None:
    """Fill in what admission writes into a pod, but not into a template."""
    spec.setdefault("serviceAccountName", "default")
    spec.setdefault("serviceAccount", spec["serviceAccountName"])
    spec.setdefault("enableServiceLinks", True)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    spec.setdefault("priority", 0)
    tolerations = spec.setdefault("tolerations", [])
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        known = any(
            (not one.get("key") or one["key"] == key) and one.get("effect") in (None, "NoExecute")
            for one in tolerations
        )
        if not known:
            tolerations.append(
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            )


def service_spec(spec: Object) -> None:
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    spec.setdefault("internalTrafficPolicy", "Cluster")
    spec.setdefault("ipFamilyPolicy", "SingleStack")
    spec.setdefault("ipFamilies", ["IPv4"])
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))


def job_spec(spec: Object) -> None:
    spec.setdefault("completions", 1) if "parallelism" not in spec else None
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("manualSelector", False)
    spec.setdefault("podReplacementPolicy", "TerminatingOrFailed")
    pod_spec(spec.setdefault("template", {}).setdefault("spec", {}))


def qos_class(spec: Object) -> str:
    """Return Guaranteed, Burstable or BestEffort."""
    every, some = True, False
    for container in (*(spec.get("initContainers") or ()), *spec["containers"]):
        resources = container.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        for name in ("cpu", "memory"):
            some = some or name in limits or name in requests
            every = every and name in limits and requests.get(name) == limits[name]
    return "Guaranteed" if every else "Burstable" if some else "BestEffort"
