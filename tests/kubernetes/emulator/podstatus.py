"""The status of a pod as a kubelet writes it, out of the states of its containers. Pure."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.kubernetes.emulator.clock import stamp

Object = dict[str, Any]


def waiting(reason: str, message: str = "") -> Object:
    return {"waiting": {"reason": reason, **({"message": message} if message else {})}}


def running(since: str) -> Object:
    return {"running": {"startedAt": since}}


def terminated(
    exit_code: int,
    *,
    started: str,
    container_id: str,
    reason: str = "",
    signal: int | None = None,
    message: str = "",
) -> Object:
    state: Object = {
        "exitCode": exit_code, "reason": reason or ("Error" if exit_code else "Completed"),
        "startedAt": started, "finishedAt": stamp(), "containerID": container_id,
    }  # fmt: skip
    if signal:
        state["signal"] = signal
    if message:
        state["message"] = message
    return {"terminated": state}


@dataclass(slots=True, kw_only=True)
class Container:
    """What the kubelet knows of one container."""

    name: str
    image: str
    state: Object = field(default_factory=lambda: waiting("ContainerCreating"))
    last: Object = field(default_factory=dict)
    restarts: int = 0
    ready: bool = False
    container_id: str = ""
    sidecar: bool = False
    startup_passed: bool = True

    @property
    def exit_code(self) -> int | None:
        ended = self.state.get("terminated")
        return None if ended is None else int(ended["exitCode"])

    @property
    def is_running(self) -> bool:
        return "running" in self.state

    def document(self) -> Object:
        found: Object = {
            "name": self.name, "image": self.image, "imageID": "", "ready": self.ready,
            "restartCount": self.restarts, "started": self.is_running and self.startup_passed,
            "state": copy.deepcopy(self.state), "lastState": copy.deepcopy(self.last),
        }  # fmt: skip
        if self.container_id:
            found["containerID"] = self.container_id
            found["imageID"] = f"emulator/{self.image}@sha256:0"
        return found


def containers_of(spec: Mapping[str, Any]) -> tuple[list[Container], list[Container]]:
    """Return the init containers and the containers of a pod that did not start yet."""
    init = [
        Container(
            name=one["name"], image=one["image"], state=waiting("PodInitializing"),
            sidecar=one.get("restartPolicy") == "Always",
        )
        for one in spec.get("initContainers") or ()
    ]  # fmt: skip
    reason = "PodInitializing" if init else "ContainerCreating"
    main = [
        Container(name=one["name"], image=one["image"], state=waiting(reason))
        for one in spec["containers"]
    ]
    return init, main


def phase_of(init: Sequence[Container], main: Sequence[Container], restart_policy: str) -> str:
    """Return the phase by the kubelet's rules."""
    for one in init:
        if one.sidecar:
            if not one.is_running and not any(
                c.is_running or c.exit_code is not None for c in main
            ):
                return "Pending"
            continue
        if one.exit_code is None:
            return "Pending"
        if one.exit_code and restart_policy == "Never":
            return "Failed"
        if one.exit_code:
            return "Pending"
    if any(one.is_running for one in main):
        return "Running"
    codes = [one.exit_code for one in main]
    if any(code is None for code in codes):
        restarted = any(one.last for one in main)
        return "Running" if restarted or any(code is not None for code in codes) else "Pending"
    if restart_policy == "Always":
        return "Running"
    if all(code == 0 for code in codes):
        return "Succeeded"
    return "Failed" if restart_policy == "Never" else "Running"


def condition(
    kind: str, value: bool, *, reason: str = "", message: str = "", since: str = ""
) -> Object:
    found: Object = {
        "type": kind, "status": "True" if value else "False", "lastProbeTime": None,
        "lastTransitionTime": since or stamp(),
    }  # fmt: skip
    if reason:
        found["reason"] = reason
    if message:
        found["message"] = message
    return found


def with_condition(conditions: Sequence[Object] | None, new: Object) -> list[Object]:
    """Return the conditions with one set; its transition time changes only with its status."""
    result = []
    found = False
    for one in conditions or ():
        if one["type"] != new["type"]:
            result.append(one)
            continue
        found = True
        if one["status"] == new["status"]:
            new = {**new, "lastTransitionTime": one["lastTransitionTime"]}
        result.append(new)
    return result if found else [*result, new]


def build(
    pod: Mapping[str, Any],
    *,
    init: Sequence[Container],
    main: Sequence[Container],
    pod_ip: str,
    host_ip: str,
    started: str,
) -> Object:
    """Return the whole status; what others own of it (PodScheduled, DisruptionTarget) stays."""
    old = pod["status"]
    policy = pod["spec"]["restartPolicy"]
    phase = phase_of(init, main, policy)
    status: Object = {
        "observedGeneration": pod["metadata"].get("generation", 1),
        "phase": phase, "qosClass": old.get("qosClass", "BestEffort"), "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}], "startTime": started,
        "containerStatuses": [one.document() for one in main],
    }  # fmt: skip
    if pod_ip:
        status |= {"podIP": pod_ip, "podIPs": [{"ip": pod_ip}]}
    if init:
        status["initContainerStatuses"] = [one.document() for one in init]
    for key in ("reason", "message"):
        if key in old:
            status[key] = old[key]
    status["conditions"] = _conditions(
        old.get("conditions"), phase, init, main, has_ip=bool(pod_ip)
    )
    return status


def _conditions(
    old: Sequence[Object] | None,
    phase: str,
    init: Sequence[Container],
    main: Sequence[Container],
    *,
    has_ip: bool,
) -> list[Object]:
    over = phase in ("Succeeded", "Failed")
    begun = [one for one in init if not one.sidecar and one.exit_code != 0]
    initialized = not begun
    unready = [one.name for one in main if not one.ready]
    if over:
        reason, message = ("PodCompleted" if phase == "Succeeded" else "PodFailed"), ""
    elif unready:
        reason = "ContainersNotReady"
        message = f"containers with unready status: [{' '.join(unready)}]"
    else:
        reason = message = ""
    ready = not unready and not over
    result = list(old or ())
    for new in (
        condition("PodReadyToStartContainers", has_ip and not over),
        condition(
            "Initialized", initialized,
            reason="PodCompleted" if phase == "Succeeded" else ""
            if initialized
            else "ContainersNotInitialized",
            message=""
            if initialized
            else f"containers with incomplete status: [{' '.join(one.name for one in begun)}]",
        ),
        condition("Ready", ready, reason=reason, message=message),
        condition("ContainersReady", ready, reason=reason, message=message),
    ):  # fmt: skip
        result = with_condition(result, new)
    return result
