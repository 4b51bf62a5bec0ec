"""What both kubelets share: which pods are theirs, addresses, and how a pod leaves."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

from tests.kubernetes.emulator import errors, kinds, nodes
from tests.kubernetes.emulator.clock import stamp
from tests.kubernetes.emulator.errors import ApiError
from tests.kubernetes.emulator.podlogs import PodLogs
from tests.kubernetes.emulator.podstatus import Container, build, containers_of, with_condition
from tests.kubernetes.emulator.registry import DeleteOptions, Registry
from tests.kubernetes.emulator.store import Change, Entry, Object


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long kubelets take for what costs an emulated one nothing, in seconds."""

    start: float = 0.0
    """From the node to the first container, and half of it from one container to the next."""
    status: float = 0.0
    """From what happens to where the API server is told, once for all that happened meanwhile."""
    phase: float = 0.0
    """From the exit codes to the last phase of a pod."""
    removal: float = 0.0
    """From the end of a deleted pod's containers to the end of its object."""
    sync: float = 0.01
    """From a change of configuration or names to where pods see it."""


AT_ONCE = Pace()
AS_REAL_ONES = Pace(start=3.0, status=1.0, phase=1.0, removal=1.5, sync=2.0)


class PodRun:
    """A pod that was bound to one of our nodes, until it is gone."""

    def __init__(self, entry: Entry, node: Object, pod_ip: str) -> None:
        self.entry = entry
        """The version the kubelet saw first: its spec does not change."""
        self.init, self.main = containers_of(entry.obj["spec"])
        self.pod_ip = pod_ip
        self.host_ip = nodes.internal_ip(node)
        self.node = entry.obj["spec"]["nodeName"]
        self.started = stamp()
        self.stopping = False
        self.over = False
        """Evicted, past its deadline, failed by force: the phase is final."""
        self.forced: Object = {}
        """phase, reason and message that override what the containers say."""
        self.disruption: Object | None = None
        """The condition by which the kubelet says, with the last phase, that it ended the pod."""
        self.told_soon = False
        """Its status will be told in a moment."""
        self.settles_at: float | None = None
        """When its volumes are unmounted, and the last phase may be told."""

    @property
    def ending(self) -> bool:
        return self.stopping or self.over

    @property
    def key(self) -> str:
        return f"{self.entry.namespace}/{self.entry.name}"

    @property
    def spec(self) -> Object:
        found: Object = self.entry.obj["spec"]
        return found

    def container(self, name: str = "") -> Container:
        """Return a container by name, or the first one."""
        everything = [*self.main, *self.init]
        return next(one for one in everything if not name or one.name == name)


class Kubelet:
    """The kubelets of all nodes of a cluster."""

    def __init__(
        self, registry: Registry, logs: PodLogs, *, pace: Pace = AT_ONCE, offline: bool = False
    ) -> None:
        """`offline`: no registry answers, so that only what nodes have can run."""
        self.registry = registry
        self.logs = logs
        self.pace = pace
        self.offline = offline
        self.runs: dict[str, PodRun] = {}
        self.lost: set[str] = set()
        """Nodes whose kubelet cannot reach the API server."""
        self._numbers = itertools.count(1)
        self.workdirs: dict[str, str] = {}
        """Image -> the folder in which its containers start."""
        self.refused_images: dict[str, str] = {}
        """Image -> why its registry does not give it."""
        registry.store.listeners.append(self._on_change)

    # What the two kinds of kubelet do

    def start_pod(self, run: PodRun) -> None:
        raise NotImplementedError

    def cannot_be_pulled(self, run: PodRun) -> bool:
        """Return whether an image of the pod is nowhere; `.invalid` is the domain that never exists."""
        containers = (*(run.spec.get("initContainers") or ()), *run.spec["containers"])
        return any(
            one["image"] in self.refused_images
            or one["image"].partition("/")[0].endswith(".invalid")
            or (self.offline and one["imagePullPolicy"] == "Always")
            for one in containers
        )

    def pull_error(self, image: str) -> str:
        """Return why an image cannot be pulled, in the words of a container runtime."""
        host = image.partition("/")[0]
        why = self.refused_images.get(
            image, f"dial tcp: lookup {host} on 10.96.0.10:53: no such host"
        )
        return f'failed to pull and unpack image "{image}": failed to resolve reference "{image}": {why}'

    def stop_pod(self, run: PodRun, grace_seconds: float) -> None:
        """Begin to end a pod; `confirm_stopped` when its containers have ended."""
        raise NotImplementedError

    def kill_pod(self, run: PodRun) -> None:
        """The object is gone: end what is left of the pod at once."""
        raise NotImplementedError

    def pod_address(self, number: int) -> str:
        return f"10.244.{number // 250 % 256}.{number % 250 + 1}"

    async def close(self) -> None:
        """End everything."""

    # Following the API server

    def _on_change(self, change: Change) -> None:
        entry = change.entry
        if entry.kind is not kinds.PODS or not entry.obj["spec"].get("nodeName"):
            return
        uid = entry.uid
        if change.type == "DELETED":
            run = self.runs.pop(uid, None)
            if run is not None:
                self._soon(self._gone, run)
        elif uid not in self.runs:
            if entry.obj["status"]["phase"] in ("Succeeded", "Failed"):
                return
            node = self.registry.store.find(kinds.NODES, "", entry.obj["spec"]["nodeName"])
            if node is not None and node.name not in self.lost:
                run = PodRun(entry, node.obj, self.pod_address(next(self._numbers)))
                self.runs[uid] = run
                self._soon(self._begin, run)
        elif entry.obj["metadata"].get("deletionTimestamp"):
            self._soon(self._leave, self.runs[uid])

    def _soon(self, action: Callable[[PodRun], None], run: PodRun) -> None:
        asyncio.get_running_loop().call_soon(action, run)

    def _begin(self, run: PodRun) -> None:
        current = self.current(run)
        if current is None:
            return
        if current.obj["metadata"].get("deletionTimestamp"):
            self._leave(run)
            return
        self.start_pod(run)
        seconds = run.spec.get("activeDeadlineSeconds")
        if seconds is not None:
            asyncio.get_running_loop().call_later(seconds, self._deadline, run)

    def _leave(self, run: PodRun) -> None:
        current = self.current(run)
        if current is None or run.node in self.lost:
            return
        grace = current.obj["metadata"].get("deletionGracePeriodSeconds", 0)
        if run.stopping and grace:
            return
        run.stopping = True
        self.stop_pod(run, grace)

    def _gone(self, run: PodRun) -> None:
        self.kill_pod(run)
        self.logs.forget(run.entry)

    def _deadline(self, run: PodRun) -> None:
        current = self.current(run)
        if current is None or run.over or current.obj["status"]["phase"] in ("Succeeded", "Failed"):
            return
        self.fail_whole(
            run, "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
        )

    # What they use

    async def execute(self, request: web.Request, namespace: str, name: str) -> web.StreamResponse:
        """Run a command in a container; only where there are processes."""
        raise errors.bad_request(f"pod {namespace}/{name} has no processes")

    def current(self, run: PodRun) -> Entry | None:
        found = self.registry.store.find(kinds.PODS, run.entry.namespace, run.entry.name)
        return found if found is not None and found.uid == run.entry.uid else None

    def run_of(self, namespace: str, name: str) -> PodRun:
        entry = self.registry.get(kinds.PODS, namespace, name)
        found = self.runs.get(entry.uid)
        if found is None:
            raise ValueError(f"pod {namespace}/{name} is not on a node")
        return found

    def publish(self, run: PodRun) -> None:
        """Write the pod's status; a lost node says nothing."""
        if not self.pace.status:
            self._publish(run)
        elif not run.told_soon:
            run.told_soon = True
            asyncio.get_running_loop().call_later(self.pace.status, self._publish, run)

    def _publish(self, run: PodRun) -> None:
        run.told_soon = False
        current = self.current(run)
        if current is None or run.node in self.lost:
            return
        if current.obj["status"]["phase"] in ("Succeeded", "Failed") and not run.forced:
            ended = all(one.exit_code is not None for one in run.main)
            if not ended:
                return
        status = build(
            current.obj, init=run.init, main=run.main, pod_ip=run.pod_ip, host_ip=run.host_ip,
            started=run.started,
        )  # fmt: skip
        status.update(run.forced)
        if run.disruption is not None:
            status["conditions"] = with_condition(status["conditions"], run.disruption)
        if not self._is_early(run, current, status):
            self.registry.set_status(current, status)

    def _is_early(self, run: PodRun, current: Entry, status: Object) -> bool:
        """Tell the exit codes alone where the last phase, and who ended the pod, come later."""
        old = current.obj["status"]
        over = ("Succeeded", "Failed")
        if not self.pace.phase or current.obj["metadata"].get("deletionTimestamp"):
            return False
        if status["phase"] not in over or old["phase"] in over:
            return False
        loop = asyncio.get_running_loop()
        if run.settles_at is None:
            run.settles_at = loop.time() + self.pace.phase
            loop.call_at(run.settles_at, self._publish, run)
        if loop.time() >= run.settles_at:
            return False
        early = {key: value for key, value in status.items() if key not in ("reason", "message")}
        early["phase"] = old["phase"]
        early["conditions"] = [one for one in status["conditions"] if one is not run.disruption]
        self.registry.set_status(current, early)
        return True

    def fail_whole(self, run: PodRun, reason: str, message: str) -> None:
        """Fail a pod as a whole, as an eviction or a deadline does; its containers end."""
        run.over = True
        run.forced = {"phase": "Failed", "reason": reason, "message": message}
        self.stop_pod(run, float(run.spec["terminationGracePeriodSeconds"]))

    def confirm_stopped(self, run: PodRun) -> None:
        """Publish the last status and, where the pod is being deleted, let it go."""
        self._publish(run)
        if self.pace.removal:
            asyncio.get_running_loop().call_later(self.pace.removal, self._let_go, run)
        else:
            self._let_go(run)

    def _let_go(self, run: PodRun) -> None:
        current = self.current(run)
        if current is None or run.node in self.lost:
            return
        if current.obj["metadata"].get("deletionTimestamp"):
            options = DeleteOptions(grace_seconds=0, uid=current.uid)
            try:
                self.registry.delete(kinds.PODS, current.namespace, current.name, options)
            except ApiError:
                return

    def node_back(self, name: str) -> None:
        """A lost node is heard of again: it says what happened meanwhile."""
        self.lost.discard(name)
        for run in [run for run in self.runs.values() if run.node == name]:
            self.publish(run)
            current = self.current(run)
            if current is not None and current.obj["metadata"].get("deletionTimestamp"):
                self._leave(run)
        for entry in list(self.registry.store.entries(kinds.PODS)):
            if entry.obj["spec"].get("nodeName") == name and entry.uid not in self.runs:
                self._on_change(Change("MODIFIED", entry, entry))
