"""The Kubernetes runtime, on the cluster of `$KUBECONFIG` where that and `$BUSYBOX_IMAGE` are set, else on the emulator.

Times are what a second watcher of the same cluster sees, so that both sides are told by one server.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import gc
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from airflow_training.control.first_ledger import new_ledger
from airflow_training.documents.resolved import (
    ResolvedJob,
    ResolvedRole,
    RestartRules,
    RunKey,
    RunRef,
)
from airflow_training.errors import StillAlive
from airflow_training.runtimes.kubernetes.collecting import STREAMS
from airflow_training.runtimes.kubernetes.connection import CONNECTIONS
from airflow_training.runtimes.kubernetes.logs import LogArchive
from airflow_training.runtimes.kubernetes.pods import PodOptions
from airflow_training.runtimes.kubernetes.runtime import KubernetesRuntime
from airflow_training.runtimes.port import Snapshot
from airflow_training.state.store import Store
from airflow_training.supervise.loop import Supervisor
from benchmarks.report import figure, heading, median, quantile

REPLACEMENTS = 100
FEW, MANY = 100, 1000
ENDS = 6
IDLE_JOBS = 20
IDLE_SECONDS = 60.0
PATIENCE_SECONDS = 300.0


@dataclass(kw_only=True)
class Place:
    """A cluster, and a namespace of it that is ours."""

    kubeconfig: Path
    namespace: str
    image: str
    is_emulated: bool
    folder: Path

    async def connect(self, _: str = "") -> Any:
        from kubernetes_asyncio import client, config

        configuration = client.Configuration()
        configuration.connection_pool_maxsize = CONNECTIONS
        await config.load_kube_config(str(self.kubeconfig), client_configuration=configuration)
        return client.ApiClient(configuration)

    @functools.cached_property
    def runtime(self) -> KubernetesRuntime:
        return KubernetesRuntime(
            connect=self.connect,
            archive=LogArchive(str(self.folder / "logs"), tail_bytes=1),
            options=PodOptions(),
            collected=self.folder / "collected",
        )

    def container(self, script: str) -> dict[str, Any]:
        return {
            "name": "main",
            "image": self.image,
            "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", script],
            "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}},
        }

    def job(self, name: str, *scripts: str, replicas: int = 1) -> ResolvedJob:
        """Return a job with a role for each script."""
        roles = tuple(
            ResolvedRole(
                name=f"worker{number}",
                replicas=replicas,
                template={
                    "spec": {
                        "containers": [self.container(script)],
                        "terminationGracePeriodSeconds": 0,
                    }
                },
                restart_policy="OnFailure",
                backoff_limit=100_000,
            )
            for number, script in enumerate(scripts)
        )
        return ResolvedJob(
            name=name,
            namespace=self.namespace,
            runtime="kubernetes",
            roles=roles,
            restart=RestartRules(backoff_initial_seconds=0.0, max_restarts=1_000_000),
            clean_pod_policy="All",
        )


@contextlib.contextmanager
def a_cluster(folder: Path) -> Iterator[Place]:
    """Return the cluster that was named, or an emulator in a process of its own."""
    name = f"bench-{uuid4().hex[:8]}"
    if os.environ.get("KUBECONFIG") and os.environ.get("BUSYBOX_IMAGE"):
        kubeconfig = Path(os.environ["KUBECONFIG"].partition(os.pathsep)[0])
        image = os.environ["BUSYBOX_IMAGE"]
        yield Place(
            kubeconfig=kubeconfig, namespace=name, image=image, is_emulated=False, folder=folder
        )
        return
    kubeconfig = folder / "kubeconfig"
    command = [sys.executable, "-m", "tests.kubernetes.emulator", "--kubeconfig", str(kubeconfig)]
    server = subprocess.Popen(
        [*command, "--nodes", "20", "--pods", "250"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        assert server.stdout.readline().startswith("ready")
        yield Place(
            kubeconfig=kubeconfig, namespace=name, image="busybox", is_emulated=True, folder=folder
        )
    finally:
        server.terminate()
        server.wait(30)


@contextlib.asynccontextmanager
async def a_namespace(place: Place) -> AsyncIterator[Any]:
    """Make the place's namespace; it goes afterwards. Yields a client."""
    from kubernetes_asyncio import client

    async with await place.connect() as api:
        core: Any = client.CoreV1Api(api)
        await core.create_namespace({"metadata": {"name": place.namespace}})
        try:
            if not place.is_emulated:
                await asyncio.sleep(3)  # its service account
            yield api
        finally:
            await core.delete_namespace(place.namespace)


@dataclass(kw_only=True)
class Witness:
    """What another watcher of the namespace was told, and when (monotonic)."""

    added: dict[str, float] = field(default_factory=dict)
    """uid -> time."""
    names: dict[str, list[str]] = field(default_factory=dict)
    """Pod name -> uids in the order they appeared."""
    ended: dict[str, float] = field(default_factory=dict)
    jobs_ended: dict[str, float] = field(default_factory=dict)

    def see(self, kind: str, pod: Any) -> None:
        now = time.monotonic()
        uid = pod["metadata"]["uid"]
        if kind == "ADDED" and uid not in self.added:
            self.added[uid] = now
            self.names.setdefault(pod["metadata"]["name"], []).append(uid)
        if pod["status"].get("phase") in ("Succeeded", "Failed"):
            self.ended.setdefault(uid, now)

    def see_job(self, _: str, job: Any) -> None:
        for each in job["status"].get("conditions") or ():
            if each["type"] in ("Complete", "Failed") and each["status"] == "True":
                self.jobs_ended.setdefault(job["metadata"]["name"], time.monotonic())

    def replacements(self) -> list[float]:
        """Return seconds from the end of a pod to the next one of its name."""
        return [
            self.added[after] - self.ended[before]
            for uids in self.names.values()
            for before, after in itertools.pairwise(uids)
            if before in self.ended
        ]


@contextlib.asynccontextmanager
async def a_witness(api: Any, place: Place) -> AsyncIterator[Witness]:
    import aiohttp
    from kubernetes_asyncio import client, watch

    witness = Witness()

    async def follow(ask: Any, see: Callable[[str, Any], None]) -> None:
        while True:  # a server ends a watch when it likes, and one that fell behind
            with contextlib.suppress(client.ApiException, aiohttp.ClientError, OSError):
                async with watch.Watch() as stream:
                    async for event in stream.stream(ask, place.namespace, timeout_seconds=3600):
                        see(event["type"], event["raw_object"])
            await asyncio.sleep(0.1)

    tasks = [
        asyncio.create_task(follow(client.CoreV1Api(api).list_namespaced_pod, witness.see)),
        asyncio.create_task(follow(client.BatchV1Api(api).list_namespaced_job, witness.see_job)),
    ]
    await asyncio.sleep(0.5)
    try:
        yield witness
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError("the cluster took too long")
        await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def running(
    store: Store, runtime: KubernetesRuntime, job: ResolvedJob, *, read_logs: bool = False
) -> AsyncIterator[asyncio.Task[Any]]:
    """Drive a run while the block lasts, then remove it."""
    key = RunKey(source="bench", run_id=uuid4().hex[:12])
    ledger = new_ledger(job, now=store.now(), activate_all=True)
    record = store.create_run(key, job, ledger, controller="bench", queue=False)
    supervisor = Supervisor(
        store=store, runtime=runtime, run_uid=record.uid, owner="bench", read_logs=read_logs
    )
    task = asyncio.create_task(supervisor.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        run = RunRef(
            uid=record.uid,
            job=job.name,
            namespace=job.namespace,
            controller="bench",
            generation=1_000,
        )
        await removed(runtime, run)


async def removed(runtime: KubernetesRuntime, run: RunRef) -> None:
    """Remove a run, asking as often as nodes that end a hundred pods at once need."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(StillAlive):
            return await runtime.remove(run)
    raise TimeoutError("the cluster took too long to end its pods")


async def replacement(place: Place, api: Any, store: Store) -> None:
    # of different length, so that they fail one by one
    job = place.job("replace", *(f"sleep {2 + 0.37 * n:.2f}; exit 137" for n in range(5)))
    async with a_witness(api, place) as witness, running(store, place.runtime, job):
        await until(lambda: len(witness.replacements()) >= REPLACEMENTS)
        times = [seconds * 1e3 for seconds in witness.replacements()]
    target = "<= 100 ms" if place.is_emulated else "<= 1000 ms"
    figure("pod's failure to its replacement created, median", median(times), "ms")
    figure("the same, p95", quantile(times, 0.95), "ms", target=target)


async def creation(place: Place, api: Any, store: Store) -> None:
    for count in (FEW, MANY):
        job = place.job("create", "sleep 100000", replicas=count)
        async with a_witness(api, place) as witness:
            begun = time.monotonic()
            async with running(store, place.runtime, job):
                await until(_has_added(witness, count))
                took = max(witness.added.values()) - begun
                if count == MANY and place.is_emulated:
                    await asyncio.sleep(5)
                    memory(place)
        figure(f"job of {count} submitted to all pods created", took, "s")


async def crowd(place: Place, api: Any, store: Store) -> None:
    """End a job whose logs are all followed: deletes must not wait for a connection."""
    if not place.is_emulated:
        return
    runtime = place.runtime
    job = place.job("crowd", "sleep 100000", replicas=MANY)
    async with a_witness(api, place) as witness:
        async with running(store, runtime, job, read_logs=True):
            await until(_has_added(witness, MANY))
            await until(lambda: runtime.log_api.requests["get pods/log"] >= STREAMS)
            await asyncio.sleep(5)
            begun = time.monotonic()
        took = time.monotonic() - begun
    figure(
        f"job of {MANY} removed while {STREAMS} of its logs are followed",
        took,
        "s",
        target="<= 60 s",
    )


def _has_added(witness: Witness, count: int) -> Callable[[], bool]:
    return lambda: len(witness.added) >= count


def memory(place: Place) -> None:
    """Print the memory of a process that watches what there is now."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.kubernetes", str(place.kubeconfig), place.namespace],
        check=True,
        capture_output=True,
        text=True,
    )
    pods, grown = done.stdout.split()
    per_thousand = float(grown) / float(pods) * 1000 / 2**20
    figure(
        "memory of 1,000 watched pods",
        per_thousand,
        "MB",
        target="<= 20 MB",
        note=f"{pods} watched",
    )


async def ends(place: Place, api: Any, store: Store) -> None:
    """Compare how long it takes to notice that a job of ten pods has ended."""
    import yaml
    from airflow.providers.cncf.kubernetes.hooks.kubernetes import AsyncKubernetesHook
    from airflow.providers.cncf.kubernetes.triggers.job import KubernetesJobTrigger
    from kubernetes_asyncio import client

    kubeconfig = yaml.safe_load(place.kubeconfig.read_text())
    batch: Any = client.BatchV1Api(api)
    ours, theirs = [], []
    runtime = place.runtime
    async with a_witness(api, place) as witness:
        for number in range(ENDS):
            script = f"sleep {4 + 1.7 * number:g}"  # their poll has a phase: spread over it
            before = set(witness.ended)
            async with running(
                store, runtime, place.job(f"ours{number}", script, replicas=10)
            ) as task:
                await asyncio.wait_for(task, PATIENCE_SECONDS)
                done = time.monotonic()
                ours.append(
                    done - max(at for uid, at in witness.ended.items() if uid not in before)
                )
        for number in range(ENDS):
            name = f"theirs{number}"
            pod = {
                "containers": [place.container(f"sleep {4 + 1.7 * number:g}")],
                "restartPolicy": "Never",
            }
            body = {
                "metadata": {"name": name},
                "spec": {"completions": 10, "parallelism": 10, "template": {"spec": pod}},
            }
            await batch.create_namespaced_job(place.namespace, body)
            trigger = KubernetesJobTrigger(
                job_name=name,
                job_namespace=place.namespace,
                pod_names=[],
                pod_namespace=place.namespace,
                base_container_name="main",
            )
            # it would look for an Airflow connection
            trigger.hook = AsyncKubernetesHook(config_dict=kubeconfig, in_cluster=False)
            async for _ in trigger.run():
                break
            done = time.monotonic()
            await until(functools.partial(witness.jobs_ended.__contains__, name))
            theirs.append(done - witness.jobs_ended[name])
    figure("end of 10 pods to the run's end, median", median(ours), "s")
    figure(
        "KubernetesJobOperator (deferrable): end of the Job to its event, median",
        median(theirs),
        "s",
    )
    ratio = median(ours) / median(theirs)
    figure("ours to theirs", ratio, "", target="<= 0.25", note="poll interval 10 s, its default")


async def idle(place: Place, api: Any, store: Store) -> None:
    """Count requests while jobs run and nothing happens."""
    runtime = place.runtime
    logs = runtime.log_api.requests
    followed = logs["get pods/log"] + 5 * IDLE_JOBS
    async with contextlib.AsyncExitStack() as stack:
        for number in range(IDLE_JOBS):
            job = place.job(f"idle{number}", "sleep 100000", replicas=5)
            await stack.enter_async_context(running(store, runtime, job, read_logs=True))
        await until(lambda: logs["get pods/log"] >= followed)
        await asyncio.sleep(15)
        before = _requests(runtime)
        await asyncio.sleep(IDLE_SECONDS)
        ours = _requests(runtime) - before
    minutes = IDLE_JOBS * IDLE_SECONDS / 60
    figure(
        "API requests per job and minute, idle, logs followed",
        ours / minutes,
        "",
        target="<= 1",
        note=f"{ours} of {IDLE_JOBS} jobs of 5 pods in {IDLE_SECONDS:g} s",
    )
    theirs = await pod_operator_requests(place, api)
    figure("KubernetesPodOperator (deferrable), the same for one pod", theirs, "")


def _requests(runtime: KubernetesRuntime) -> int:
    return sum((runtime.api.requests + runtime.log_api.requests).values())


async def pod_operator_requests(place: Place, api: Any) -> float:
    """Return requests per minute of the provider's trigger for one running pod, logs left out."""
    import datetime

    import yaml
    from airflow.providers.cncf.kubernetes.triggers.pod import KubernetesPodTrigger
    from kubernetes_asyncio import client
    from kubernetes_asyncio.client import rest

    core: Any = client.CoreV1Api(api)
    body = {
        "metadata": {"name": "theirs"},
        "spec": {"containers": [place.container("sleep 100000")]},
    }
    await core.create_namespaced_pod(place.namespace, body)
    trigger = KubernetesPodTrigger(
        pod_name="theirs",
        pod_namespace=place.namespace,
        trigger_start_time=datetime.datetime.now(tz=datetime.timezone.utc),
        base_container_name="main",
        config_dict=yaml.safe_load(place.kubeconfig.read_text()),
        in_cluster=False,
        get_logs=False,
    )
    count = 0
    sender: Any = rest.RESTClientObject
    send = sender.request

    async def counted(self: Any, *args: Any, **values: Any) -> Any:
        nonlocal count
        count += 1
        return await send(self, *args, **values)

    async def follow() -> None:
        async for _ in trigger.run():
            return

    task = asyncio.create_task(follow())
    await asyncio.sleep(15)
    sender.request = counted
    try:
        await asyncio.sleep(IDLE_SECONDS)
    finally:
        sender.request = send
        if task.done():
            task.result()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await core.delete_namespaced_pod("theirs", place.namespace, grace_period_seconds=1)
    return count / (IDLE_SECONDS / 60)


async def measure(place: Place) -> None:
    store = Store(f"sqlite:///{place.folder}/store.db")
    async with a_namespace(place) as api:
        for part in (replacement, creation, crowd, ends, idle):
            await part(place, api, store)


def main() -> None:
    # the provider's hook looks for an Airflow of its own
    os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp(prefix="airflow-training-bench-"))
    os.environ.setdefault("AIRFLOW__LOGGING__LOGGING_LEVEL", "ERROR")
    with tempfile.TemporaryDirectory() as folder, a_cluster(Path(folder)) as place:
        heading("Kubernetes, " + ("emulated" if place.is_emulated else "a cluster"))
        asyncio.run(measure(place))


async def _watched(kubeconfig: str, namespace: str) -> tuple[int, int]:
    """Return how many pods a watch saw, and by how many bytes the process grew."""
    here = Path(tempfile.gettempdir())
    place = Place(
        kubeconfig=Path(kubeconfig), namespace=namespace, image="", is_emulated=True, folder=here
    )
    from kubernetes_asyncio import client

    async with await place.connect() as api:
        found = await client.CoreV1Api(api).list_namespaced_pod(namespace, limit=1)
        labels = found.items[0].metadata.labels
    del found
    run = RunRef(
        uid=labels["airflow-training/run"],
        job=labels["app.kubernetes.io/name"],
        namespace=namespace,
        controller="bench",
        generation=0,
    )
    runtime = place.runtime
    before = _resident_bytes()
    changes = runtime.watch(run)
    first = await changes.__anext__()
    assert isinstance(first, Snapshot)
    await asyncio.sleep(3)
    grown = _resident_bytes() - before
    await changes.aclose()
    return len(first.instances), grown


def _resident_bytes() -> int:
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    print(*asyncio.run(_watched(sys.argv[1], sys.argv[2])))
