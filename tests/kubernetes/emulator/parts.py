"""The parts of one running cluster, put together. Everything here lives on one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from tests.kubernetes.emulator import kinds, nodes
from tests.kubernetes.emulator.collector import Collector
from tests.kubernetes.emulator.control import Control
from tests.kubernetes.emulator.discovery import Discovery
from tests.kubernetes.emulator.evictions import Evictions
from tests.kubernetes.emulator.faults import Faults
from tests.kubernetes.emulator.jobs import JobController
from tests.kubernetes.emulator.kubelet import AT_ONCE, Kubelet, Pace
from tests.kubernetes.emulator.nodes import Node
from tests.kubernetes.emulator.podlogs import PodLogs
from tests.kubernetes.emulator.processes import ProcessKubelet
from tests.kubernetes.emulator.quota_status import QuotaController
from tests.kubernetes.emulator.rbac import MASTERS, Access, User
from tests.kubernetes.emulator.registry import Registry
from tests.kubernetes.emulator.scheduler import Scheduler
from tests.kubernetes.emulator.scripted import ScriptedKubelet
from tests.kubernetes.emulator.server import Server
from tests.kubernetes.emulator.store import Store

ADMIN_TOKEN = "admin-token"
KubeletKind = Literal["scripted", "processes"]


class Parts:
    def __init__(
        self,
        *,
        folder: Path,
        kubelet: KubeletKind,
        installed: Sequence[str],
        port: int,
        bookmark_seconds: float,
        pace: Pace = AT_ONCE,
        offline: bool = False,
    ) -> None:
        store = Store()
        self.registry = Registry(store)
        self.faults = Faults()
        self.access = Access(tokens={ADMIN_TOKEN: User("kubernetes-admin", (MASTERS,))})
        extra = [kind for name in installed for kind in kinds.CUSTOM[name]]
        self.discovery = Discovery([*kinds.BUILT_IN, *extra])
        self.evictions = Evictions(self.registry)
        # The collector looks first: what it deletes, nobody else needs to look at.
        self.collector = Collector(self.registry, self.discovery.kinds, self.soon)
        self.scheduler = Scheduler(self.registry)
        self.quotas = QuotaController(self.registry)
        self.jobs = JobController(self.registry, self.soon)
        self.logs = PodLogs(folder, lambda node: node not in self.kubelet.lost)
        self.kubelet: Kubelet
        if kubelet == "processes":
            self.kubelet = ProcessKubelet(
                self.registry, self.logs, folder, pace=pace, offline=offline
            )
        else:
            self.kubelet = ScriptedKubelet(self.registry, self.logs, pace=pace, offline=offline)
        self.control = Control(self)
        self.server = Server(
            registry=self.registry, access=self.access, faults=self.faults,
            discovery=self.discovery, logs=self.logs, evictor=self.evictions,
            execute=self.kubelet.execute,
            control=self._call, bookmark_seconds=bookmark_seconds, port=port,
        )  # fmt: skip

    async def start(self, machines: Sequence[Node]) -> None:
        for name in ("default", "kube-system", "kube-public"):
            self.registry.create(kinds.NAMESPACES, "", {"metadata": {"name": name}})
        for name, value in (
            ("system-cluster-critical", 2000000000), ("system-node-critical", 2000001000),
        ):  # fmt: skip
            obj = {"metadata": {"name": name}, "value": value}
            self.registry.create(kinds.PRIORITYCLASSES, "", obj)
        for number, machine in enumerate(machines, 1):
            self.registry.create(kinds.NODES, "", nodes.document(machine, number))
        service = {
            "metadata": {"name": "kubernetes"}, "spec": {"ports": [{"name": "https", "port": 443}]},
        }  # fmt: skip
        self.registry.create(kinds.SERVICES, "default", service)
        await asyncio.sleep(0)  # the namespaces get their service accounts
        await self.server.start()

    async def stop(self) -> None:
        await self.server.stop()
        await self.kubelet.close()
        self.logs.close()

    def soon(self, action: Any, *args: Any) -> None:
        asyncio.get_running_loop().call_soon(action, *args)

    def _call(self, name: str, values: dict[str, Any]) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.control, name)(**values)
