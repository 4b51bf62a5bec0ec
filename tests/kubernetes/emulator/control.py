"""What a test can do to a cluster: faults, fates of pods, nodes and rights."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from tests.kubernetes.emulator import kinds, nodes
from tests.kubernetes.emulator.clock import stamp
from tests.kubernetes.emulator.faults import Rule
from tests.kubernetes.emulator.kinds import Kind
from tests.kubernetes.emulator.kubelet import PodRun
from tests.kubernetes.emulator.podlogs import Break
from tests.kubernetes.emulator.podstatus import condition, with_condition
from tests.kubernetes.emulator.processes import ProcessKubelet
from tests.kubernetes.emulator.rbac import Grant, User
from tests.kubernetes.emulator.registry import DeleteOptions
from tests.kubernetes.emulator.scripted import Behaviour, ScriptedKubelet
from tests.kubernetes.emulator.store import Entry, Object

if TYPE_CHECKING:
    from tests.kubernetes.emulator.parts import Parts


class Control:
    """Every method is also `POST /_faults/<method>` with its arguments as one JSON document.

    All run at once on the cluster's own event loop: when one returns, it has happened.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._registry = parts.registry
        self._store = parts.registry.store

    # Requests that go wrong

    def fail_requests(
        self,
        *,
        code: int = 500,
        times: int = 1,
        verb: str = "",
        path: str = "",
        retry_after: int | None = None,
        message: str = "",
        past_dry_runs: bool = False,
    ) -> None:
        """Answer the next `times` requests of a verb whose path matches with an error.

        `past_dry_runs`: but not those that only ask.
        """
        self._rule(
            Rule(
                action="status", verb=verb, path=path, times=times, code=code,
                retry_after=retry_after, message=message, past_dry_runs=past_dry_runs,
            )
        )  # fmt: skip

    def hang_requests(
        self, *, seconds: float, times: int = 1, verb: str = "", path: str = ""
    ) -> None:
        """Let requests wait before they are served."""
        self._rule(Rule(action="hang", verb=verb, path=path, times=times, seconds=seconds))

    def hold_requests(self, *, times: int = 1, verb: str = "", path: str = "") -> None:
        """Let requests wait before they are served, until `let_requests_go`."""
        self._rule(Rule(action="hold", verb=verb, path=path, times=times))

    def held_requests(self) -> int:
        """Return how many wait."""
        return sum(rule.held for rule in self._parts.faults.rules if not rule.door.is_set())

    def let_requests_go(self) -> None:
        for rule in self._parts.faults.rules:
            rule.door.set()

    def reset_requests(
        self, *, after_effect: bool, times: int = 1, verb: str = "", path: str = ""
    ) -> None:
        """Cut connections before anything happened, or after it did but before the answer."""
        action = "reset-after" if after_effect else "reset-before"
        self._rule(Rule(action=action, verb=verb, path=path, times=times))  # type: ignore[arg-type]  # one of two

    def _rule(self, rule: Rule) -> None:
        self._parts.faults.rules.append(rule)

    def break_log(self, *, after_bytes: int, how: Literal["cut", "silence"]) -> None:
        """Let the next log that is followed break off after so many bytes."""
        self._parts.logs.breaks.append(Break(after_bytes=after_bytes, how=how))

    def cut_logs(self) -> None:
        """Cut the connections over which logs are followed now."""
        self._parts.logs.cut()

    def clear_faults(self) -> None:
        self._parts.faults.rules.clear()
        self._parts.faults.duplicated = False
        self._parts.faults.http_gone = False
        self._parts.faults.delays.clear()

    def cut_watches(self) -> int:
        """Reset the connections of all open watches; returns how many."""
        return self._parts.server.watches.cut_all()

    def open_watches(self) -> int:
        return self._parts.server.watches.count

    def compact(self, *, http_gone: bool = False) -> int:
        """Forget the history: watches and pages from before get 410.

        A watch gets it as an ERROR event, or as the answer itself with `http_gone`.
        """
        self._parts.faults.http_gone = http_gone
        return self._store.compact()

    def duplicate_events(self, *, on: bool = True) -> None:
        self._parts.faults.duplicated = on

    def delay_events(self, *, pattern: str, seconds: float) -> None:
        """Let watch events of objects (`namespace/name`) come late, so others overtake them."""
        self._parts.faults.delays[pattern] = seconds

    def server_away(self) -> Awaitable[None]:
        """Close the listener and all connections; not from another process, whose own it is too."""
        return self._parts.server.stop()

    def server_back(self) -> Awaitable[None]:
        """Let a server that is away listen again on the same port."""
        return self._parts.server.start()

    # Objects

    def create(self, document: Mapping[str, Any], *, namespace: str = "default") -> Object:
        """Create an object from a document with kind and apiVersion, as an administrator."""
        kind = self._kind(document)
        namespace = document.get("metadata", {}).get("namespace", namespace)
        space = namespace if kind.namespaced else ""
        return self._shown(self._registry.create(kind, space, dict(document)))

    def get(self, plural: str, name: str, *, namespace: str = "default") -> Any:
        """Return an object, or None where there is none."""
        kind = self._plural(plural)
        entry = self._store.find(kind, namespace if kind.namespaced else "", name)
        return None if entry is None else self._shown(entry)

    def list(self, plural: str, *, namespace: str = "") -> Sequence[Object]:
        return [self._shown(e) for e in self._store.entries(self._plural(plural), namespace)]

    def delete(
        self,
        plural: str,
        name: str,
        *,
        namespace: str = "default",
        grace_seconds: int | None = None,
    ) -> None:
        """Delete an object behind the client's back."""
        kind = self._plural(plural)
        options = DeleteOptions(grace_seconds=grace_seconds)
        self._registry.delete(kind, namespace if kind.namespaced else "", name, options)

    def forget_field(self, model: str, field: str) -> None:
        """Let the server be of a version that has no such field (`V1PodSpec`, `resourceClaims`)."""
        self._registry.forgotten.add((model, field))

    def create_namespace(self, name: str, *, pod_security: str = "privileged") -> None:
        labels = {"pod-security.kubernetes.io/enforce": pod_security}
        document = {"metadata": {"name": name, "labels": labels}}
        self._registry.create(kinds.NAMESPACES, "", document)

    def _kind(self, document: Mapping[str, Any]) -> Kind:
        for kind in self._parts.discovery.kinds:
            versions = [kind.api_version(version) for version in kind.versions]
            if kind.kind == document["kind"] and document["apiVersion"] in versions:
                return kind
        raise ValueError(f"no kind {document['kind']} in {document['apiVersion']}")

    def _plural(self, plural: str) -> Kind:
        for kind in self._parts.discovery.kinds:
            if plural in (kind.plural, kind.qualified):
                return kind
        raise ValueError(f"no resource {plural}")

    def _shown(self, entry: Entry) -> Object:
        kind = entry.kind
        return {"kind": kind.kind, "apiVersion": kind.api_version(), **entry.obj}

    # Fates of pods

    def behave(self, pattern: str, **behaviour: Any) -> None:
        """Say what pods (`namespace/name` regex) do, before they start: see `Behaviour`."""
        self._scripted.behaviours.insert(0, Behaviour(pattern=pattern, **behaviour))

    def image_starts_in(self, image: str, folder: str) -> None:
        """Let containers of an image start in a folder of this machine, as its WORKDIR."""
        self._parts.kubelet.workdirs[image] = folder

    def refuse_image(self, image: str, words: str) -> None:
        """Let no node get an image, and its registry say why."""
        self._parts.kubelet.refused_images[image] = words

    def finish(
        self,
        name: str,
        *,
        exit_code: int = 0,
        namespace: str = "default",
        container: str = "",
        reason: str = "",
        signal: int | None = None,
        message: str = "",
    ) -> None:
        """End a container of a running pod, the first one by default."""
        run = self._run(namespace, name)
        self._scripted.exit_container(
            run, run.container(container), exit_code, reason=reason, signal=signal, message=message
        )

    def oom_kill(self, name: str, *, namespace: str = "default", container: str = "") -> None:
        if isinstance(self._parts.kubelet, ProcessKubelet):
            self.kill_container(name, namespace=namespace, container=container, reason="OOMKilled")
            return
        self.finish(
            name, exit_code=137, namespace=namespace, container=container, reason="OOMKilled"
        )

    def print(
        self, name: str, text: str, *, namespace: str = "default", container: str = ""
    ) -> None:
        """Append to a container's log."""
        run = self._run(namespace, name)
        self._scripted.print(run, run.container(container).name, text)

    def rotate_log(self, name: str, *, namespace: str = "default", container: str = "") -> None:
        """Begin another file of a container's log, as the kubelet does with one that is full."""
        run = self._run(namespace, name)
        log = self._parts.kubelet.logs.current(run.entry, run.container(container).name)
        if log is not None:
            log.rotate()

    def evict_by_node(
        self,
        name: str,
        *,
        namespace: str = "default",
        message: str = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 10Mi. ",
    ) -> None:
        """Node-pressure eviction: the pod fails as a whole and stays as an object."""
        run = self._run(namespace, name)
        run.disruption = condition(
            "DisruptionTarget", True, reason="TerminationByKubelet", message=message
        )
        run.over = True
        run.forced = {"phase": "Failed", "reason": "Evicted", "message": message}
        self._parts.kubelet.stop_pod(run, 0)

    def delay_phases(self, *, seconds: float) -> None:
        """Let kubelets tell exit codes at once, and the last phase of a pod so much later."""
        kubelet = self._parts.kubelet
        kubelet.pace = dataclasses.replace(kubelet.pace, phase=seconds)

    def evict_by_api(self, name: str, *, namespace: str = "default") -> None:
        """What `kubectl drain` does to one pod."""
        pod = self._registry.get(kinds.PODS, namespace, name)
        self._parts.evictions.evict(pod, DeleteOptions())

    def preempt(self, name: str, *, namespace: str = "default") -> None:
        self._disrupt(
            namespace, name, "PreemptionByScheduler",
            "default-scheduler: preempting to accommodate a higher priority pod",
        )  # fmt: skip
        self._registry.delete(kinds.PODS, namespace, name)

    def _disrupt(self, namespace: str, name: str, reason: str, message: str) -> None:
        self._parts.evictions.disrupt(
            self._registry.get(kinds.PODS, namespace, name), reason, message
        )

    def kill_container(
        self,
        name: str,
        *,
        signal: int = 9,
        namespace: str = "default",
        container: str = "",
        reason: str = "",
    ) -> None:
        """Kill a container's process (process kubelet); `reason`: what the status says."""
        run = self._run(namespace, name)
        kubelet = self._parts.kubelet
        if not isinstance(kubelet, ProcessKubelet):
            raise TypeError("only the process kubelet has processes")
        kubelet.kill_container(run, run.container(container).name, signal, reason)

    # Nodes

    def add_node(self, name: str, **values: Any) -> None:
        number = sum(1 for _ in self._store.entries(kinds.NODES)) + 1
        self._registry.create(
            kinds.NODES, "", nodes.document(nodes.Node(name=name, **values), number)
        )

    def cordon(self, name: str, *, on: bool = True) -> None:
        entry = self._registry.get(kinds.NODES, "", name)
        self._taint(entry, nodes.UNSCHEDULABLE, "NoSchedule", on=on)
        current = self._registry.get(kinds.NODES, "", name)
        self._registry.change(current, lambda obj: obj["spec"].update(unschedulable=on))

    def node_condition(
        self, name: str, kind: str, *, on: bool = True, reason: str = "", message: str = ""
    ) -> None:
        """Set a condition of a node, as node-problem-detector does."""
        node = self._registry.get(kinds.NODES, "", name)
        told = nodes.condition(kind, "True" if on else "False", reason, message)
        status = {**node.obj["status"]}
        status["conditions"] = with_condition(status["conditions"], told)
        self._registry.set_status(node, status)

    def taint_node(self, name: str, key: str, *, on: bool = True) -> None:
        """Set a taint that keeps new pods away."""
        self._taint(self._registry.get(kinds.NODES, "", name), key, "NoSchedule", on=on)

    def drain(self, name: str) -> None:
        """Cordon a node and evict its pods."""
        self.cordon(name)
        for pod in self._pods_on(name):
            self._parts.evictions.evict(pod, DeleteOptions())

    def node_lost(self, name: str, *, evict_after: float | None = None) -> None:
        """Lose a node: Ready Unknown, taints, its pods not ready; they are deleted after a while.

        Deleted pods stay Terminating: the kubelet that would confirm it is away.
        """
        self._parts.kubelet.lost.add(name)
        node = self._registry.get(kinds.NODES, "", name)
        status = {**node.obj["status"]}
        lost = nodes.ready_condition(
            "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status."
        )
        status["conditions"] = with_condition(status["conditions"], lost)
        self._registry.set_status(node, status)
        for effect in ("NoSchedule", "NoExecute"):
            self._taint(
                self._registry.get(kinds.NODES, "", name), nodes.UNREACHABLE, effect, on=True
            )
        for pod in self._pods_on(name):
            self._node_not_ready(pod)
            seconds = _toleration_seconds(pod) if evict_after is None else evict_after
            if seconds is not None:
                asyncio.get_running_loop().call_later(seconds, self._evict_from_lost, name, pod)

    def _node_not_ready(self, pod: Entry) -> None:
        status = {**pod.obj["status"]}
        status["conditions"] = with_condition(
            status.get("conditions"),
            condition("Ready", False, reason="NodeNotReady", message="Node is not ready"),
        )
        self._registry.set_status(pod, status)

    def _evict_from_lost(self, node: str, pod: Entry) -> None:
        current = self._store.find(kinds.PODS, pod.namespace, pod.name)
        if node not in self._parts.kubelet.lost or current is None or current.uid != pod.uid:
            return
        self._parts.evictions.disrupt(
            current, "DeletionByTaintManager",
            "Taint manager: deleting due to NoExecute taint",
        )  # fmt: skip
        self._registry.delete(kinds.PODS, pod.namespace, pod.name)
        current = self._store.find(kinds.PODS, pod.namespace, pod.name)
        if current is not None:
            text = f"Node {node} which was running pod {pod.name} is unresponsive"
            status = {**current.obj["status"], "reason": "NodeLost", "message": text}
            self._registry.set_status(current, status)

    def node_back(self, name: str) -> None:
        """Let a lost node come back: it reports what its pods did and confirms deletions."""
        node = self._registry.get(kinds.NODES, "", name)
        back = nodes.ready_condition("True", "KubeletReady", "kubelet is posting ready status")
        status = {**node.obj["status"]}
        status["conditions"] = with_condition(status["conditions"], back)
        self._registry.set_status(node, status)
        for effect in ("NoSchedule", "NoExecute"):
            self._taint(
                self._registry.get(kinds.NODES, "", name), nodes.UNREACHABLE, effect, on=False
            )
        self._parts.kubelet.node_back(name)

    def delete_node(self, name: str) -> None:
        """Remove a node; the pod garbage collector removes its pods by force."""
        self._registry.delete(kinds.NODES, "", name)
        for pod in self._pods_on(name):
            self._collect_pod(pod)

    def _collect_pod(self, pod: Entry) -> None:
        self._parts.evictions.disrupt(
            pod, "DeletionByPodGC", "PodGC: node no longer exists", phase="Failed"
        )
        options = DeleteOptions(grace_seconds=0)
        self._registry.delete(kinds.PODS, pod.namespace, pod.name, options)

    def _taint(self, node: Entry, key: str, effect: str, *, on: bool) -> None:
        def change(obj: Object) -> None:
            taints = [
                one
                for one in obj["spec"].get("taints") or ()
                if (one["key"], one["effect"]) != (key, effect)
            ]
            if on:
                taints.append({"key": key, "effect": effect, "timeAdded": stamp()})
            obj["spec"]["taints"] = taints

        self._registry.change(node, change)

    def _pods_on(self, node: str) -> Sequence[Entry]:
        return [
            pod
            for pod in self._store.entries(kinds.PODS)
            if pod.obj["spec"].get("nodeName") == node
            and pod.obj["status"].get("phase") not in ("Succeeded", "Failed")
        ]

    # Rights

    def add_user(self, name: str, *, token: str, groups: Sequence[str] = ()) -> None:
        """Let a bearer token stand for a user; a service account's user is `system:serviceaccount:ns:name`."""
        everyone = (*groups, "system:authenticated")
        self._parts.access.tokens[token] = User(name, everyone)

    def bind(self, documents: Sequence[Mapping[str, Any]]) -> None:
        """Take Role, ClusterRole, RoleBinding and ClusterRoleBinding documents."""
        self._parts.access.bind(documents)

    def allow(self, user: str, rules: Sequence[Mapping[str, Any]], *, namespace: str = "") -> None:
        """Give a user rules as in a Role; no namespace: in the whole cluster."""
        grant = Grant(
            subject=f"User {user}", namespace=namespace, rules=tuple(rules), origin="RBAC"
        )
        self._parts.access.grants.append(grant)

    def revoke(self, user: str) -> None:
        access = self._parts.access
        access.grants = [one for one in access.grants if one.subject != f"User {user}"]

    # Inside

    @property
    def _scripted(self) -> ScriptedKubelet:
        kubelet = self._parts.kubelet
        if not isinstance(kubelet, ScriptedKubelet):
            raise TypeError("only the scripted kubelet can be told what pods do")
        return kubelet

    def _run(self, namespace: str, name: str) -> PodRun:
        return self._parts.kubelet.run_of(namespace, name)


def _toleration_seconds(pod: Entry) -> float | None:
    """Return how long a pod stays on an unreachable node; None: for ever."""
    taint = {"key": nodes.UNREACHABLE, "effect": "NoExecute"}
    for one in pod.obj["spec"].get("tolerations") or ():
        if nodes.tolerates([one], taint):
            seconds = one.get("tolerationSeconds")
            return None if seconds is None else float(seconds)
    return 0.0
