"""The kubelet without processes: what a pod does follows from its command and from the test."""

from __future__ import annotations

import asyncio
import re
import shlex
from dataclasses import dataclass
from typing import Any

from tests.kubernetes.emulator.clock import stamp
from tests.kubernetes.emulator.kubelet import Kubelet, PodRun
from tests.kubernetes.emulator.podstatus import Container, running, terminated, waiting

KILLED = 137
TERMINATED = 143
BACK_OFF_SECONDS = 0.3
"""Until a kubelet says that it waits; 10 s in a real one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """What pods whose `namespace/name` matches do instead of what their command says."""

    pattern: str
    exit_code: int | None = None
    """None: run until told otherwise."""
    after: float = 0.0
    """Seconds from start to exit."""
    creating: bool = False
    """Stays in ContainerCreating."""
    stop_seconds: float = 0.0
    """How long it takes to end after a TERM; longer than its grace: it is killed then."""


@dataclass(slots=True)
class Plan:
    seconds: float = 0.0
    exit_code: int | None = 0
    output: str = ""


def plan_of(command: list[str]) -> Plan:
    """Return what a command would do: sleep, echo, exit, true, false; others never end."""
    if command[:1] and command[0].rpartition("/")[2] in ("sh", "bash") and "-c" in command:
        plan = Plan()
        for part in re.split(r";|&&|\n", command[command.index("-c") + 1]):
            step = plan_of(shlex.split(part.strip())) if part.strip() else Plan()
            plan.seconds += step.seconds
            plan.output += step.output
            if step.exit_code != 0:
                plan.exit_code = step.exit_code
                break
        return plan
    if not command:
        return Plan(exit_code=None)
    name, *args = command
    match name.rpartition("/")[2]:
        case "true":
            return Plan()
        case "false":
            return Plan(exit_code=1)
        case "exit":
            return Plan(exit_code=int(args[0]) if args else 0)
        case "echo":
            return Plan(output=" ".join(args) + "\n")
        case "sleep" if args and args[0].replace(".", "", 1).isdigit():
            return Plan(seconds=float(args[0]))
        case _:
            return Plan(exit_code=None)


class ScriptedKubelet(Kubelet):
    """Instant: a pod runs in the moment it is bound."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.behaviours: list[Behaviour] = []

    def _behaviour(self, run: PodRun) -> Behaviour | None:
        return next((one for one in self.behaviours if re.search(one.pattern, run.key)), None)

    def start_pod(self, run: PodRun) -> None:
        told = self._behaviour(run)
        if told is not None and told.creating:
            self.publish(run)
            return
        if self.cannot_be_pulled(run):
            self._say_of_images(run, "ErrImagePull")
            if run.main[0].image in self.refused_images:
                asyncio.get_running_loop().call_later(
                    BACK_OFF_SECONDS, self._say_of_images, run, "ImagePullBackOff"
                )
            return
        for spec, one in zip(run.spec.get("initContainers") or (), run.init, strict=True):
            plan = plan_of([*(spec.get("command") or ()), *(spec.get("args") or ())])
            self._begin_container(run, one, plan.output)
            if one.sidecar:
                one.ready = True
                continue
            # Init containers are short here: what would run on counts as done.
            self._end_container(one, plan.exit_code or 0)
            if plan.exit_code:
                self.publish(run)
                return
        plans = []
        for spec, one in zip(run.spec["containers"], run.main, strict=True):
            plan = plan_of([*(spec.get("command") or ()), *(spec.get("args") or ())])
            if told is not None and one is run.main[0]:
                plan = Plan(told.after, told.exit_code)
            self._begin_container(run, one, plan.output)
            plans.append((one, plan))
        self.publish(run)
        loop = asyncio.get_running_loop()
        for one, plan in plans:
            if plan.exit_code is not None:
                loop.call_later(
                    plan.seconds, self._exit_on_time, run, one, one.restarts, plan.exit_code
                )

    def _say_of_images(self, run: PodRun, reason: str) -> None:
        """Say why only the first time, as kubelets before 1.31 do."""
        for one in run.main:
            again = f'Back-off pulling image "{one.image}"'
            first = reason == "ErrImagePull"
            one.state = waiting(reason, self.pull_error(one.image) if first else again)
        self.publish(run)

    def _begin_container(self, run: PodRun, one: Container, output: str) -> None:
        one.container_id = f"containerd://{run.entry.uid}-{one.name}-{one.restarts}"
        one.state = running(stamp())
        one.ready = not any(c is one for c in run.init)
        if output:
            self.print(run, one.name, output)

    def print(self, run: PodRun, container: str, text: str) -> None:
        """Append to a container's log."""
        log = self.logs.current(run.entry, container)
        if log is None or log.closed:
            log = self.logs.open(run.entry, container)
        log.write(text.encode())

    def _exit_on_time(self, run: PodRun, one: Container, attempt: int, code: int) -> None:
        if one.is_running and one.restarts == attempt and not run.over:
            self.exit_container(run, one, code)

    def exit_container(
        self,
        run: PodRun,
        one: Container,
        exit_code: int,
        *,
        reason: str = "",
        signal: int | None = None,
        message: str = "",
    ) -> None:
        """End a container; it starts again where the pod's restart policy says so."""
        self._end_container(one, exit_code, reason=reason, signal=signal, message=message)
        log = self.logs.current(run.entry, one.name)
        if log is not None:
            log.close()
        policy = run.spec["restartPolicy"]
        again = policy == "Always" or (policy == "OnFailure" and exit_code != 0)
        if again and not run.stopping and not run.over:
            one.last = one.state
            one.restarts += 1
            self._begin_container(run, one, "")
        self.publish(run)

    def _end_container(
        self,
        one: Container,
        exit_code: int,
        *,
        reason: str = "",
        signal: int | None = None,
        message: str = "",
    ) -> None:
        started = one.state.get("running", {}).get("startedAt") or stamp()
        one.container_id = one.container_id or f"containerd://{one.name}"
        one.state = terminated(
            exit_code, started=started, container_id=one.container_id, reason=reason,
            signal=signal, message=message,
        )  # fmt: skip
        one.ready = False

    def stop_pod(self, run: PodRun, grace_seconds: float) -> None:
        slow = max(
            (b.stop_seconds for b in self.behaviours if re.search(b.pattern, run.key)), default=0.0
        )
        code = TERMINATED if slow <= grace_seconds else KILLED
        seconds = min(slow, grace_seconds)
        if seconds:
            asyncio.get_running_loop().call_later(seconds, self._stopped, run, code)
        else:
            self._stopped(run, code)

    def _stopped(self, run: PodRun, code: int) -> None:
        for one in (*run.main, *run.init):
            if one.is_running:
                self._end_container(one, code)
            elif one.exit_code is None and one in run.main:
                # Never started: the kubelet says so in these words.
                self._end_container(
                    one, 137, reason="ContainerStatusUnknown",
                    message="The container could not be located when the pod was terminated",
                )  # fmt: skip
            log = self.logs.current(run.entry, one.name)
            if log is not None:
                log.close()
        self.confirm_stopped(run)

    def kill_pod(self, run: PodRun) -> None:
        run.over = True
