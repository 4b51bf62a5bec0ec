"""The emulator answers as a real API server would: pods that are real processes, and the emulator as one."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kubernetes_asyncio import client, config

from tests.kubernetes.emulated.client import (
    MERGE,
    Events,
    connect,
    phase_is,
    pod,
)
from tests.kubernetes.emulator import Cluster, remote_control
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.emulator


def start(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


class TestProcess:
    async def test_runs_on_its_own(self, tmp_path: Path) -> None:
        file = tmp_path / "config"
        command = [sys.executable, "-m", "tests.kubernetes.emulator", "--kubeconfig", str(file)]
        process = start(command)
        try:
            assert process.stdout is not None
            word, url = process.stdout.readline().split()
            assert word == "ready"
            connection = await config.new_client_from_config(str(file))
            async with connection:
                core: Any = client.CoreV1Api(connection)
                await core.create_namespaced_pod("default", pod("a"))
                control = remote_control(url)
                await until(lambda: control.get(plural="pods", name="a")["status"].get("podIP"))
                control.finish(name="a", exit_code=5)
                found = await core.read_namespaced_pod("a", "default")
            assert found.status.container_statuses[0].state.terminated.exit_code == 5
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0
            process.stdout.close()


class TestProcessPods:
    @pytest.fixture
    def machines(self) -> Any:
        with Cluster(kubelet="processes") as started:
            yield started

    async def log(self, cluster: Cluster, name: str, **options: Any) -> str:
        connection, api = await connect(cluster)
        async with connection:
            text = await api.core.read_namespaced_pod_log(name, "default", **options)
        return str(text)

    async def test_environment_and_expansion(self, machines: Cluster) -> None:
        machines.control.create(
            {
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "env"},
                "data": {"KEY": "from-map"},
            }
        )  # fmt: skip
        env = [
            {"name": "A", "value": "1"},
            {"name": "B", "value": "$(A)-$(NONE)-$$(A)"},
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
            {"name": "K", "valueFrom": {"configMapKeyRef": {"name": "env", "key": "KEY"}}},
        ]
        container = {
            "env": env, "envFrom": [{"prefix": "P_", "configMapRef": {"name": "env"}}],
            "args": ["$(A)"], "workingDir": "/usr", "resources": {"limits": {"cpu": "1500m"}},
        }  # fmt: skip
        script = 'echo "$B|$K|$P_KEY|$CPU|$0|$(pwd)|$(hostname)"; echo $IP'
        machines.control.create(
            pod("env", ["sh", "-c", script.replace("$(", "$$(")], container=container)
        )
        found = await until(phase_is(machines, "env", "Succeeded"))
        text = await self.log(machines, "env")
        assert text.splitlines() == [
            "1-$(NONE)-$(A)|from-map|from-map|2|1|/usr|env", found["status"]["podIP"],
        ]  # fmt: skip

    async def test_volumes_appear_where_they_are_mounted(self, machines: Cluster) -> None:
        machines.control.create(
            {
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "files"},
                "data": {"run.sh": "#!/bin/sh\necho ran\n", "other": "x"},
            }
        )  # fmt: skip
        init = [
            {
                "name": "prepare", "image": "x", "command": ["sh", "-c", "echo made > /scratch/here"],
                "volumeMounts": [{"name": "work", "mountPath": "/scratch"}],
            }
        ]  # fmt: skip
        script = (
            "/opt/nowhere/run.sh; cat /scratch/here /sub; touch /opt/nowhere/x 2>/dev/null || echo ro; "
            "cat /info/labels"
        )
        mounts = [
            {"name": "files", "mountPath": "/opt/nowhere"},
            {"name": "work", "mountPath": "/scratch"},
            {"name": "files", "mountPath": "/sub", "subPath": "other"},
            {"name": "info", "mountPath": "/info"},
        ]
        labels = {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}
        volumes = [
            {"name": "files", "configMap": {"name": "files", "defaultMode": 0o755}},
            {"name": "work", "emptyDir": {}},
            {"name": "info", "downwardAPI": {"items": [labels]}},
        ]
        machines.control.create(
            pod(
                "volumes", ["sh", "-c", script], container={"volumeMounts": mounts}, volumes=volumes,
                initContainers=init, metadata={"labels": {"a": "b"}},
            )
        )  # fmt: skip
        await until(phase_is(machines, "volumes", "Succeeded"))
        assert await self.log(machines, "volumes") == 'ran\nmade\nxro\na="b"'
        assert not os.path.lexists("/opt/nowhere")  # noqa: ASYNC240 - quick

    async def test_annotations_reach_a_running_pod(self, machines: Cluster) -> None:
        item = {"path": "go", "fieldRef": {"fieldPath": "metadata.annotations['go']"}}
        machines.control.create(
            pod(
                "held", ["sh", "-c", "until grep -q now /info/go; do sleep 0.02; done; echo released"],
                container={"volumeMounts": [{"name": "info", "mountPath": "/info"}]},
                volumes=[{"name": "info", "downwardAPI": {"items": [item]}}],
            )
        )  # fmt: skip
        await until(phase_is(machines, "held", "Running"))
        connection, api = await connect(machines)
        async with connection:
            await api.core.patch_namespaced_pod(
                "held", "default", {"metadata": {"annotations": {"go": "now"}}}, _content_type=MERGE
            )
        await until(phase_is(machines, "held", "Succeeded"))
        assert await self.log(machines, "held") == "released\n"

    async def test_pods_find_each_other_by_name(self, machines: Cluster) -> None:
        machines.control.create(
            {
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": "team"},
                "spec": {
                    "clusterIP": "None", "selector": {"job": "x"}, "publishNotReadyAddresses": True,
                },
            }
        )  # fmt: skip
        server = (
            "import os, socket; s = socket.create_server((os.environ['IP'], 7000)); "
            "c, who = s.accept(); c.sendall(b'hello\\n')"
        )
        asker = (
            "import socket, time\n"
            "for _ in range(500):\n"
            "    try:\n"
            "        s = socket.create_connection(('first.team.default.svc.cluster.local', 7000))\n"
            "        break\n"
            "    except OSError: time.sleep(0.02)\n"
            "print(s.recv(99).decode(), socket.gethostbyname(socket.gethostname()))\n"
        )
        labels = {"metadata": {"labels": {"job": "x"}}, "subdomain": "team"}
        env = [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
        machines.control.create(pod("second", ["python", "-c", asker], **labels))
        machines.control.create(
            pod("first", ["python", "-c", server], container={"env": env}, **labels)
        )
        found = await until(phase_is(machines, "second", "Succeeded"))
        assert (await self.log(machines, "second")).split() == ["hello", found["status"]["podIP"]]

    @pytest.mark.parametrize(
        ("name", "command", "code", "reason"),
        [
            ("exits", ["sh", "-c", "exit 7"], 7, "Error"),
            ("signal", ["sh", "-c", "sh -c 'kill -9 $$$$'"], 137, "Error"),
            ("missing", ["no-such-program"], 128, "StartError"),
        ],
    )
    async def test_exit_codes(
        self, machines: Cluster, name: str, command: list[str], code: int, reason: str
    ) -> None:
        machines.control.create(pod(name, command))
        found = await until(phase_is(machines, name, "Failed"))
        ended = found["status"]["containerStatuses"][0]["state"]["terminated"]
        assert (ended["exitCode"], ended["reason"]) == (code, reason)

    async def test_deletion_asks_first_and_kills_then(self, machines: Cluster) -> None:
        polite = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.01; done"
        hour = {"terminationGracePeriodSeconds": 3600}
        machines.control.create(pod("polite", ["sh", "-c", polite], **hour))
        # Process 1 of a container ignores TERM where it has no handler, here as there.
        machines.control.create(pod("deaf", ["sleep", "1000"], terminationGracePeriodSeconds=1))
        machines.control.create(pod("spared", ["sleep", "1000"], **hour))
        for name in ("polite", "deaf", "spared"):
            await until(phase_is(machines, name, "Running"))
        connection, api = await connect(machines)
        async with connection, Events(api, resource_version="0") as events:
            for name in ("spared", "polite", "deaf"):
                machines.control.delete("pods", name)
            for name in ("polite", "deaf"):
                await events.until("DELETED", name)
        assert phase_is(machines, "spared", "Running")(), "its hour is not over"
        last = {one["metadata"]["name"]: one for one in events.objects}
        codes = {
            name: last[name]["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"]
            for name in ("polite", "deaf")
        }
        assert codes == {"polite": 0, "deaf": 137}

    async def test_restarts_and_previous_logs(self, machines: Cluster) -> None:
        script = "echo $(date +%s%N); test -e /scratch/x && sleep 1000; touch /scratch/x; exit 3"
        machines.control.create(
            pod(
                "again", ["sh", "-c", script.replace("$(", "$$(")], restartPolicy="OnFailure",
                container={"volumeMounts": [{"name": "work", "mountPath": "/scratch"}]},
                volumes=[{"name": "work", "emptyDir": {}}], terminationGracePeriodSeconds=0,
            )
        )  # fmt: skip

        def restarted() -> Any:
            status = machines.control.get("pods", "again")["status"]
            one = (status.get("containerStatuses") or [{}])[0]
            return one if one.get("restartCount") and "running" in one["state"] else None

        found = await until(restarted)
        assert found["lastState"]["terminated"]["exitCode"] == 3
        first = await self.log(machines, "again", previous=True)
        assert await until(lambda: first)
        assert first != await self.log(machines, "again")

    async def test_readiness_probes(self, machines: Cluster) -> None:
        probe = {"exec": {"command": ["test", "-e", "/scratch/ready"]}, "periodSeconds": 1}
        machines.control.create(
            pod(
                "probed", ["sh", "-c", "sleep 0.3; touch /scratch/ready; sleep 1000"],
                container={
                    "readinessProbe": probe,
                    "volumeMounts": [{"name": "work", "mountPath": "/scratch"}],
                },
                volumes=[{"name": "work", "emptyDir": {}}],
            )
        )  # fmt: skip
        found = await until(phase_is(machines, "probed", "Running"))
        assert found["status"]["containerStatuses"][0]["ready"] is False
        await until(
            lambda: machines.control.get("pods", "probed")["status"]["containerStatuses"][0][
                "ready"
            ]
        )

    async def test_nothing_outlives_the_cluster(self) -> None:
        with Cluster(kubelet="processes") as cluster:
            script = "sleep 1000 & setsid sleep 1001 & wait"
            cluster.control.create(pod("a", ["sh", "-c", script]))
            await until(phase_is(cluster, "a", "Running"))
            run = next(iter(cluster.parts.kubelet.runs.values()))
            parent = cluster.parts.kubelet._pods[run.entry.uid].processes["main"].pid  # type: ignore[attr-defined]

            def tree() -> list[int]:
                first = int(Path(f"/proc/{parent}/task/{parent}/children").read_text().split()[0])
                below = Path(f"/proc/{first}/task/{first}/children").read_text().split()
                return [first, *map(int, below)] if len(below) >= 2 else []

            pids = await until(tree)
        for pid in (parent, *pids):
            await until(functools.partial(_ended, pid))


def _ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False
