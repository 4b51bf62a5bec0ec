"""The kubelet whose containers are processes of this machine, each in namespaces of its own."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.kubernetes.emulator import errors, kinds, names, podexec, volumes
from tests.kubernetes.emulator.clock import stamp
from tests.kubernetes.emulator.environment import ConfigError, environment, expand
from tests.kubernetes.emulator.kubelet import Kubelet, Pace, PodRun
from tests.kubernetes.emulator.podlogs import ContainerLog, PodLogs
from tests.kubernetes.emulator.podstatus import Container, running, terminated, waiting
from tests.kubernetes.emulator.registry import Registry
from tests.kubernetes.emulator.store import Change, Object
from tests.kubernetes.emulator.volumes import MountError

INIT = Path(__file__).with_name("container_init.py")
FIRST_BACK_OFF, LONGEST_BACK_OFF = 0.2, 5.0
"""Seconds between restarts; the real ones are 10 s and 5 minutes."""
MESSAGE_BYTES = 4096


class _Pod:
    """The processes and files of one pod."""

    def __init__(self, run: PodRun, folder: Path) -> None:
        self.run = run
        self.folder = folder
        self.task: asyncio.Task[None] | None = None
        self.processes: dict[str, asyncio.subprocess.Process] = {}
        self.killed_as: dict[str, str] = {}
        self.changed = asyncio.Event()
        """Something the pod may be waiting for changed: configuration, or its own fate."""
        self.progress = asyncio.Event()
        """A container of it started or ended."""
        self.volumes: dict[str, Path] = {}
        self.stopper: asyncio.Task[None] | None = None

    @property
    def hosts(self) -> Path:
        return self.folder / "hosts"


class _MasterPort:
    """The port at which the master of a PyTorch job listens, for one cluster of this machine at a time.

    Pods have addresses of their own, but torch's store listens at all of them: workers of one cluster would find the
    master of another that runs beside it.
    """

    NUMBER = 23456

    def __init__(self) -> None:
        self._path = Path(tempfile.gettempdir()) / "airflow-training-test-master-port"
        self._lock: int | None = None
        self._users = 0

    @contextlib.asynccontextmanager
    async def held(self, spec: Object) -> AsyncIterator[None]:
        """Hold the port where the pod declares it; waits while another cluster does."""
        ports = (each for one in spec["containers"] for each in one.get("ports") or ())
        if self.NUMBER not in (each["containerPort"] for each in ports):
            yield
            return
        self._users += 1
        try:
            while self._lock is None and not self._try():  # noqa: ASYNC110 - no event tells of it
                await asyncio.sleep(0.1)
            yield
        finally:
            self._users -= 1
            if not self._users and self._lock is not None:
                os.close(self._lock)
                self._lock = None

    def _try(self) -> bool:
        lock = os.open(self._path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            return False
        self._lock = lock
        return True


class ProcessKubelet(Kubelet):
    def __init__(
        self, registry: Registry, logs: PodLogs, folder: Path, *, pace: Pace, offline: bool
    ) -> None:
        super().__init__(registry, logs, pace=pace, offline=offline)
        self._folder = folder / "pods"
        self._folder.mkdir()
        self._pods: dict[str, _Pod] = {}
        self._master_port = _MasterPort()
        self._refreshing = False
        self._tasks: set[asyncio.Task[None]] = set()
        # Two clusters of one machine should not meet on one address.
        self._network = f"127.{os.getpid() % 200 + 10}"
        registry.store.listeners.append(self._on_configuration)

    def pod_address(self, number: int) -> str:
        return f"{self._network}.{number // 250 % 256}.{number % 250 + 1}"

    async def execute(self, request: web.Request, namespace: str, name: str) -> web.StreamResponse:
        pod = self._pods.get(self.run_of(namespace, name).entry.uid)
        container = request.query.get("container", "")
        process = pod.processes.get(container) if pod is not None else None
        if process is None:
            raise errors.bad_request(f"container {container} of pod {name} is not running")
        first = _first_process(process.pid)
        arguments = _entering(first, request.query.getall("command"))
        return await podexec.respond(request, arguments, _environment_of(first))

    # The life of a pod

    def start_pod(self, run: PodRun) -> None:
        folder = self._folder / run.entry.uid
        folder.mkdir()
        pod = _Pod(run, folder)
        self._pods[run.entry.uid] = pod
        pod.task = self._spawn(self._live(pod))

    def _spawn(self, coroutine: Any) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a pod's task failed", "exception": error}
            )

    async def _live(self, pod: _Pod) -> None:
        run = pod.run
        address, run.pod_ip = run.pod_ip, ""
        self.publish(run)
        if self.cannot_be_pulled(run):
            await self._never_pulled(run)
        await asyncio.sleep(self.pace.start)
        await self._until_mounted(pod)
        run.pod_ip = address
        self._write_hosts(pod)
        sidecars = []
        for spec, one in zip(run.spec.get("initContainers") or (), run.init, strict=True):
            if one.sidecar:
                sidecars.append(self._spawn(self._keep(pod, spec, one, policy="Always")))
                await self._until_started(pod, one)
                one.ready = True
                continue
            policy = "OnFailure" if run.spec["restartPolicy"] != "Never" else "Never"
            await self._keep(pod, spec, one, policy=policy)
            await asyncio.sleep(self.pace.start / 2)
            if one.exit_code or run.ending:
                self.publish(run)
                return
        for one in run.main:
            one.state = waiting("ContainerCreating")
        async with self._master_port.held(run.spec):
            await asyncio.gather(
                *(
                    self._keep(pod, spec, one, policy=run.spec["restartPolicy"])
                    for spec, one in zip(run.spec["containers"], run.main, strict=True)
                )
            )
        if sidecars and not run.stopping:
            await self._end_processes(pod, float(run.spec["terminationGracePeriodSeconds"]))
            await asyncio.gather(*sidecars)
        self.publish(run)

    async def _until_started(self, pod: _Pod, one: Container) -> None:
        while not one.is_running and one.exit_code is None and not pod.run.stopping:
            pod.progress.clear()
            await pod.progress.wait()

    async def _never_pulled(self, run: PodRun) -> None:
        for reason in ("ErrImagePull", "ImagePullBackOff"):
            for one in run.main:
                one.state = waiting(reason, self.pull_error(one.image))
            self.publish(run)
            await asyncio.sleep(0.3)
        await asyncio.Event().wait()

    async def _until_mounted(self, pod: _Pod) -> None:
        while True:
            pod.changed.clear()
            current = self.current(pod.run)
            if current is None:
                return
            try:
                pod.volumes = volumes.set_up(
                    self.registry.store, current.obj, pod.folder / "volumes",
                    self._allocatable(pod.run),
                )  # fmt: skip
            except MountError:
                await pod.changed.wait()
            else:
                return

    def _allocatable(self, run: PodRun) -> Mapping[str, str]:
        node = self.registry.store.find(kinds.NODES, "", run.node)
        return {} if node is None else dict(node.obj["status"]["allocatable"])

    async def _keep(self, pod: _Pod, spec: Object, one: Container, *, policy: str) -> None:
        """Run a container until it has ended for good."""
        run = pod.run
        while not run.ending:
            await self._run_once(pod, spec, one)
            self.publish(run)
            again = policy == "Always" or (policy == "OnFailure" and one.exit_code != 0)
            if not again or run.ending:
                return
            one.last = one.state
            delay = min(FIRST_BACK_OFF * 2**one.restarts, LONGEST_BACK_OFF)
            one.state = waiting(
                "CrashLoopBackOff", f"back-off {delay}s restarting failed container"
            )
            one.restarts += 1
            self.publish(run)
            await asyncio.sleep(delay)

    async def _run_once(self, pod: _Pod, spec: Object, one: Container) -> None:
        run = pod.run
        attempt = pod.folder / f"{one.name}-{one.restarts}"
        attempt.mkdir(exist_ok=True)
        document = await self._document(pod, spec, one, attempt)
        if document is None:
            return
        log = self.logs.open(run.entry, one.name)
        path = attempt / "spec.json"
        path.write_text(json.dumps(document))
        begun, tell = os.pipe()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", str(INIT), str(path), str(tell),
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT, start_new_session=True, pass_fds=(tell,),
        )  # fmt: skip
        os.close(tell)
        pod.processes[one.name] = process
        if run.ending:
            _send(process, signal.SIGUSR1)
        await _told(begun)
        one.container_id = f"containerd://{run.entry.uid}-{one.name}-{one.restarts}"
        one.state = running(stamp())
        started = one.state["running"]["startedAt"]
        probe = spec.get("readinessProbe") if one in run.main else None
        startup = spec.get("startupProbe")
        one.startup_passed = startup is None
        one.ready = probe is None and startup is None
        pod.progress.set()
        self.publish(run)
        prober = None
        if probe or startup:
            prober = self._spawn(self._probes(pod, one, startup, probe, process))
        try:
            await _copy(process, log)
            code = await process.wait()
        finally:
            if prober is not None:
                prober.cancel()
            if process.returncode is None:
                process.kill()
        log.close()
        pod.processes.pop(one.name, None)
        error = attempt / "error"
        reason, message = pod.killed_as.pop(one.name, ""), ""
        if error.exists():
            code, reason = 128, "StartError"
            message = f"failed to create containerd task: {error.read_text()}"
        elif code < 0:
            code = 128 - code
        one.ready = False
        one.state = terminated(
            code, started=started, container_id=one.container_id, reason=reason,
            message=message or _termination_message(spec, attempt, log, code),
        )  # fmt: skip

    async def _document(
        self, pod: _Pod, spec: Object, one: Container, attempt: Path
    ) -> Object | None:
        """Return what `container_init` does, or None where the pod ends before it could."""
        run = pod.run
        env = await self._environment(pod, spec, one)
        if env is None:
            return None
        hostname = names.hostname_of(run.entry.obj)
        (attempt / "root").mkdir(exist_ok=True)
        message = attempt / "termination-log"
        message.touch()
        message.chmod(0o666)
        resolver = pod.folder / "resolv.conf"
        resolver.write_text(
            f"nameserver 127.0.0.1\nsearch {run.entry.namespace}.svc.cluster.local "
            "svc.cluster.local cluster.local\noptions timeout:1 attempts:1\n"
        )
        (pod.folder / "hostname").write_text(f"{hostname}\n")
        command = [*(spec.get("command") or ()), *(spec.get("args") or ())]
        return {
            "root": str(attempt / "root"), "hostname": hostname, "env": env,
            "cwd": spec.get("workingDir") or self.workdirs.get(spec["image"], "/"),
            "argv": [expand(text, env) for text in command]
            or ["no command given: images are not emulated"],
            "error_file": str(attempt / "error"),
            "mounts": [
                {"source": str(pod.hosts), "target": "/etc/hosts", "read_only": False},
                {"source": str(resolver), "target": "/etc/resolv.conf", "read_only": False},
                {
                    "source": str(pod.folder / "hostname"), "target": "/etc/hostname",
                    "read_only": False,
                },
                {
                    "source": str(message), "target": spec["terminationMessagePath"],
                    "read_only": False,
                },
                *(self._mount(pod, mount, env) for mount in spec.get("volumeMounts") or ()),
            ],
        }  # fmt: skip

    async def _environment(self, pod: _Pod, spec: Object, one: Container) -> dict[str, str] | None:
        """Return the environment; waits while what it refers to is not there."""
        run = pod.run
        while True:
            pod.changed.clear()
            current = self.current(run)
            if current is None or run.ending:
                return None
            addresses = {"podIP": run.pod_ip, "podIPs": [{"ip": run.pod_ip}], "hostIP": run.host_ip}
            seen = {**current.obj, "status": {**current.obj["status"], **addresses}}
            try:
                return environment(
                    self.registry.store, seen, spec, self._allocatable(run),
                    hostname=names.hostname_of(seen),
                )  # fmt: skip
            except ConfigError as error:
                one.state = waiting("CreateContainerConfigError", str(error))
                self.publish(run)
                await pod.changed.wait()

    def _mount(self, pod: _Pod, mount: Object, env: Mapping[str, str]) -> Object:
        source = pod.volumes[mount["name"]]
        sub_path = mount.get("subPath") or expand(mount.get("subPathExpr") or "", env)
        volume = next(v for v in pod.run.spec["volumes"] if v["name"] == mount["name"])
        configured = any(volume.get(key) for key in volumes.CONFIGURED)
        if sub_path:
            source = source / sub_path
            if configured:
                source = source.resolve()  # a file of its own: it never changes again
            if not source.exists():
                source.mkdir(parents=True)
        return {
            "source": str(source), "target": mount["mountPath"],
            "read_only": bool(mount.get("readOnly")) or configured,
        }  # fmt: skip

    # Probes

    async def _probes(
        self,
        pod: _Pod,
        one: Container,
        startup: Object | None,
        readiness: Object | None,
        process: asyncio.subprocess.Process,
    ) -> None:
        if startup:
            await asyncio.sleep(startup.get("initialDelaySeconds", 0))
            while not await self._passes(pod, startup, process):  # noqa: ASYNC110 - a probe is a poll
                await asyncio.sleep(startup.get("periodSeconds", 10))
            one.startup_passed = True
            one.ready = readiness is None
            self.publish(pod.run)
        if readiness:
            await self._probe(pod, one, readiness, process)

    async def _probe(
        self, pod: _Pod, one: Container, probe: Object, process: asyncio.subprocess.Process
    ) -> None:
        await asyncio.sleep(probe.get("initialDelaySeconds", 0))
        good = bad = 0
        while True:
            passed = await self._passes(pod, probe, process)
            good, bad = (good + 1, 0) if passed else (0, bad + 1)
            ready = one.ready
            if good >= probe.get("successThreshold", 1):
                ready = True
            elif bad >= probe.get("failureThreshold", 3):
                ready = False
            if ready != one.ready:
                one.ready = ready
                self.publish(pod.run)
            await asyncio.sleep(probe.get("periodSeconds", 10))

    async def _passes(self, pod: _Pod, probe: Object, process: asyncio.subprocess.Process) -> bool:
        timeout = probe.get("timeoutSeconds", 1)
        try:
            if probe.get("exec"):
                return await asyncio.wait_for(
                    _exec_passes(process.pid, probe["exec"]["command"]), timeout
                )
            action = probe.get("tcpSocket") or probe["httpGet"]
            port = action["port"]
            if isinstance(port, str) and not port.isdecimal():
                port = next(
                    one["containerPort"]
                    for container in pod.run.spec["containers"]
                    for one in container.get("ports") or ()
                    if one.get("name") == port
                )
            host = action.get("host") or pod.run.pod_ip
            path = probe["httpGet"]["path"] if probe.get("httpGet") else None
            return await asyncio.wait_for(_answers(host, int(port), path), timeout)
        except (OSError, asyncio.TimeoutError, StopIteration):
            return False

    # Ending

    def stop_pod(self, run: PodRun, grace_seconds: float) -> None:
        pod = self._pods.get(run.entry.uid)
        if pod is None:
            self.confirm_stopped(run)
            return
        if pod.stopper is not None:
            pod.stopper.cancel()  # a shorter grace came
        pod.stopper = self._spawn(self._stop(pod, grace_seconds))

    async def _stop(self, pod: _Pod, grace_seconds: float) -> None:
        pod.changed.set()
        pod.progress.set()
        await self._end_processes(pod, grace_seconds)
        if pod.task is not None:
            done, _ = await asyncio.wait([pod.task], timeout=0.5)
            if not done:  # still waiting for something that will not come: it has no process
                pod.task.cancel()
        for one in pod.run.main:
            if one.exit_code is None:
                one.state = terminated(
                    137, started=stamp(), container_id="", reason="ContainerStatusUnknown",
                    message="The container could not be located when the pod was terminated",
                )  # fmt: skip
                one.ready = False
        self.confirm_stopped(pod.run)

    async def _end_processes(self, pod: _Pod, grace_seconds: float) -> None:
        processes = list(pod.processes.values())
        for process in processes:
            _send(process, signal.SIGTERM)
        waits = [asyncio.ensure_future(process.wait()) for process in processes]
        if waits:
            await asyncio.wait(waits, timeout=grace_seconds)
            for process in processes:
                _send(process, signal.SIGUSR1)
            await asyncio.wait(waits)

    def kill_pod(self, run: PodRun) -> None:
        pod = self._pods.pop(run.entry.uid, None)
        if pod is None:
            return
        run.over = True
        for process in pod.processes.values():
            _send(process, signal.SIGUSR1)
        self._spawn(self._forget(pod))
        self._refresh_soon()

    async def _forget(self, pod: _Pod) -> None:
        for process in list(pod.processes.values()):
            await process.wait()
        for task in (pod.task, pod.stopper):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        shutil.rmtree(pod.folder, ignore_errors=True)

    def kill_container(self, run: PodRun, name: str, number: int, reason: str = "") -> None:
        """Send a signal to a container's process 1, as something on the node would."""
        pod = self._pods[run.entry.uid]
        if reason:
            pod.killed_as[name] = reason
        process = pod.processes[name]
        if number == signal.SIGKILL:
            _send(process, signal.SIGUSR1)
        else:
            os.kill(_first_process(process.pid), number)

    async def close(self) -> None:
        for pod in self._pods.values():
            pod.run.over = True
            for process in pod.processes.values():
                _send(process, signal.SIGUSR1)
        for pod in list(self._pods.values()):
            for process in list(pod.processes.values()):
                await process.wait()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Configuration and names that change while pods run

    def _on_configuration(self, change: Change) -> None:
        if change.entry.kind in (kinds.CONFIGMAPS, kinds.SECRETS, kinds.SERVICES, kinds.PODS):
            self._refresh_soon()

    def _refresh_soon(self) -> None:
        if not self._refreshing:
            self._refreshing = True
            asyncio.get_running_loop().call_later(self.pace.sync, self._refresh)

    def _refresh(self) -> None:
        self._refreshing = False
        lines: dict[str, list[str]] = {}
        for pod in list(self._pods.values()):
            current = self.current(pod.run)
            if current is None:
                continue
            pod.changed.set()
            volumes.refresh(
                self.registry.store, current.obj, pod.folder / "volumes",
                self._allocatable(pod.run),
            )  # fmt: skip
            if pod.hosts.exists():
                namespace = current.namespace
                if namespace not in lines:
                    lines[namespace] = names.service_lines(self.registry.store, namespace)
                self._write_hosts(pod, lines[namespace])

    def _write_hosts(self, pod: _Pod, lines: list[str] | None = None) -> None:
        if lines is None:
            lines = names.service_lines(self.registry.store, pod.run.entry.namespace)
        own = names.own_line(pod.run.entry.obj, pod.run.pod_ip)
        text = "".join((names.HEAD, own, *lines)).encode()
        if pod.hosts.exists() and pod.hosts.read_bytes() == text:
            return
        # In place: the file is mounted, a new one would not be seen.
        target = os.open(pod.hosts, os.O_WRONLY | os.O_CREAT, 0o644)
        os.pwrite(target, text, 0)
        os.ftruncate(target, len(text))
        os.close(target)


async def _told(pipe: int) -> None:
    """Wait until the command runs, or will not."""
    reader = asyncio.StreamReader()
    file = os.fdopen(pipe, "rb", 0)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), file
    )
    await reader.read(1)
    transport.close()


async def _copy(process: asyncio.subprocess.Process, log: ContainerLog) -> None:
    if process.stdout is not None:
        while data := await process.stdout.read(65536):
            log.write(data)


def _send(process: asyncio.subprocess.Process, number: int) -> None:
    if process.returncode is None:
        try:
            process.send_signal(number)
        except ProcessLookupError:
            return


def _first_process(parent: int) -> int:
    """Return the container's process 1 as this machine numbers it."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return int(children[0])


def _environment_of(process: int) -> dict[str, str]:
    text = Path(f"/proc/{process}/environ").read_bytes().decode(errors="replace")
    return {name: value for name, _, value in (one.partition("=") for one in text.split("\0"))}


def _entering(first: int, command: Sequence[str]) -> list[str]:
    """Return what runs a command where a container's process 1 is."""
    user = () if os.getuid() == 0 else ("--user", "--preserve-credentials")
    return [
        "nsenter", "--target", str(first), *user, "--mount", "--uts", "--pid", "--root", "--wd",
        "--", *command,
    ]  # fmt: skip


async def _exec_passes(parent: int, command: list[str]) -> bool:
    try:
        first = _first_process(parent)
    except (OSError, IndexError):
        return False
    process = await asyncio.create_subprocess_exec(
        *_entering(first, command), env=_environment_of(first), stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        return await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()


async def _answers(host: str, port: int, path: str | None) -> bool:
    """Return whether a port takes connections or, with a path, answers HTTP with 200 to 399."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        if path is None:
            return True
        writer.write(f"GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
        words = (await reader.readline()).split()
        return len(words) > 1 and 200 <= int(words[1]) < 400
    finally:
        writer.close()


def _termination_message(spec: Object, attempt: Path, log: ContainerLog, code: int) -> str:
    text = (attempt / "termination-log").read_text(errors="replace")[:MESSAGE_BYTES]
    if text or not code or spec["terminationMessagePolicy"] != "FallbackToLogsOnError":
        return text
    lines = [line.split(b" ", 3)[3] for line in log.path.read_bytes().splitlines()[-80:]]
    return b"\n".join(lines).decode(errors="replace")[-2048:]
