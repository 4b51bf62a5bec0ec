"""Create attempts: adopt, refuse, or start them. One agent program is started for all of a batch.

Creators of one instance take turns (a lock per instance); whoever was killed half-way is continued.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any, Literal

from airflow_training.agent.files import AttemptFolder, read_json, write_json, write_text
from airflow_training.agent.order import VERSION, Order
from airflow_training.agent.package import agent_program, remote_shell_script
from airflow_training.control.reasons import WAITING_FOR_OLD_INSTANCE
from airflow_training.frameworks.pods import training_container
from airflow_training.runtimes.environment_orders import environment_order
from airflow_training.runtimes.local.environment import (
    command_line,
    environment,
    gpu_count,
    memory_bytes,
)
from airflow_training.runtimes.local.gpus import GpuBook
from airflow_training.runtimes.local.leftovers import end_strays
from airflow_training.runtimes.local.liveness import (
    AgentLiveness,
    AttemptState,
    find_attempt,
    read_attempt_state,
)
from airflow_training.runtimes.local.paths import RunFolder, attempt_of, locked
from airflow_training.runtimes.local.recovery import give_order, settle_attempt
from airflow_training.runtimes.port import InstanceRef, InstanceSpec, Outcome

__all__ = ["Launcher"]

_START_SECONDS = 60.0
_BEGIN_SECONDS = 5.0
_LOOK_SECONDS = 0.005
_WAITS_FOR_GPUS = "it waits for GPUs: not so many are free on this machine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """Starts agents for one local directory."""

    local_dir: Path
    inherit: Sequence[str]
    python: str

    @property
    def _gpus(self) -> GpuBook:
        return GpuBook(self.local_dir)

    @property
    def cache(self) -> Path:
        return self.local_dir / ".agent"

    def create(self, specs: Sequence[InstanceSpec]) -> list[Outcome]:
        """Create or adopt every instance; blocks until each agent can be found."""
        # looked for only where something may have lived: a first start need not wait for it
        for uid in {each.ref.run.uid for each in specs if _may_have_lived(each.ref)}:
            if left := end_strays(RunFolder(self.local_dir, uid)):
                message = f"processes whose folder was deleted still live: {left}"
                return [Outcome(ref=each.ref, result="refused", message=message) for each in specs]
        outcomes: dict[int, Outcome] = {}
        starting: dict[str, int] = {}
        # in one order for everybody, so that two creators never wait for each other
        order = sorted(range(len(specs)), key=lambda i: (specs[i].ref.role, specs[i].ref.index))
        with contextlib.ExitStack() as locks:
            for place in order:
                ref = specs[place].ref
                run = RunFolder(self.local_dir, ref.run.uid)
                run.make()
                attempt = run.attempt(ref.role, ref.index, attempt_of(ref))
                locks.enter_context(locked(attempt.create_lock))
                answer = self._plan(run, attempt, specs[place])
                if answer is not None:
                    outcomes[place] = answer
                else:
                    starting[str(attempt.path)] = place
            for folder, line in self._start(list(starting)).items():
                place = starting[folder]
                outcomes[place] = _outcome(specs[place].ref, AttemptFolder(Path(folder)), line)
        return [outcomes[place] for place in range(len(specs))]

    def restart(self, instance: InstanceRef, spec: InstanceSpec) -> Outcome:
        """Begin an attempt in the place of one that has failed and waits; blocks until it has begun.

        Whatever keeps it from doing so is told as `refused`: an agent of its own can still be made.
        """
        ref = spec.ref
        run = RunFolder(self.local_dir, ref.run.uid)
        folder = run.attempt(ref.role, ref.index, attempt_of(ref))
        with locked(folder.create_lock):
            begun = read_attempt_state(folder)
            if begun is not None and begun.recorded and not begun.deleted:
                return Outcome(ref=replace(ref, uid=begun.uid), result="adopted")
            refusal = run.refuse_or_own(ref.run.generation)
            found = None if refusal else find_attempt(run, instance)
            if found is None or found[1].life is not AgentLiveness.WAITING or found[1].deleted:
                return Outcome(ref=ref, result="refused", message=refusal or "nothing waits there")
            if found[1].order.version != VERSION:
                message = "the agent that waits understands orders of another version"
                return Outcome(ref=ref, result="refused", message=message)
            newest = max(
                numbers for numbers, each in run.attempts(ref.role, ref.index) if each.spec.exists()
            )
            if newest > attempt_of(ref):
                return Outcome(ref=ref, result="refused", message="a newer attempt exists")
            old = found[0]
            uid = begun.uid if begun is not None and not begun.deleted else uuid.uuid4().hex
            problem = self._write_down(run, folder, spec, uid=uid)
            if problem is not None:
                return replace(problem, result="refused")  # a new instance may still be made
            give_order(old, found[1].uid, "restart", attempt=folder.path.name, next=uid)
            return _start_outcome(folder, replace(ref, uid=uid), inside=old)

    def _plan(self, run: RunFolder, folder: AttemptFolder, spec: InstanceSpec) -> Outcome | None:
        """Return the outcome, or None when all is written down and an agent has to be started."""
        ref = spec.ref
        wanted = attempt_of(ref)
        refusal = run.refuse_or_own(ref.run.generation)
        if not run.about.exists():
            refusal = "the folder of the run was deleted; it has to be prepared again"
        if refusal:
            return Outcome(ref=ref, result="refused", message=refusal)
        uid = ""
        for attempt, other in run.attempts(ref.role, ref.index):
            standing = read_attempt_state(other)
            if standing is None:
                continue
            standing = settle_attempt(other, standing)
            if attempt > wanted and (standing.recorded or standing.life is AgentLiveness.STARTING):
                return Outcome(ref=ref, result="refused", message="a newer attempt exists")
            if attempt == wanted:
                exists = standing.life is not AgentLiveness.MISSING
                if exists and not standing.deleted:
                    return Outcome(ref=replace(ref, uid=standing.uid), result="adopted")
                # ordered before, but nobody was started, or not yet: the same object then
                uid = "" if standing.deleted else standing.uid
            if not standing.over:
                return Outcome(
                    ref=ref,
                    result="refused",
                    reason=WAITING_FOR_OLD_INSTANCE,
                    message=_is_alive(standing),
                )
        uid = uid or uuid.uuid4().hex
        return self._write_down(run, folder, spec, uid=uid)

    def _write_down(
        self, run: RunFolder, folder: AttemptFolder, spec: InstanceSpec, *, uid: str
    ) -> Outcome | None:
        """Claim GPUs for the attempt and write what its agent needs; the outcome where that fails."""
        gpus = self._gpus.claim(folder, uid=uid, count=gpu_count(spec))
        if gpus is None:
            return Outcome(
                ref=spec.ref, result="refused", reason="WaitingForGpus", message=_WAITS_FOR_GPUS
            )
        try:
            self._write(run, folder, spec, uid=uid, gpus=gpus)
        except (ValueError, OSError) as error:
            self._gpus.release(gpus, uid=uid)
            never = isinstance(error, ValueError)
            result: Literal["impossible", "error"] = "impossible" if never else "error"
            return Outcome(ref=spec.ref, result=result, message=str(error))
        return None

    def _write(
        self,
        run: RunFolder,
        folder: AttemptFolder,
        spec: InstanceSpec,
        *,
        uid: str,
        gpus: Sequence[str],
    ) -> None:
        """Write down what the agent shall do; raises ValueError for what cannot be done here."""
        ref = spec.ref
        for path in (*spec.files, *spec.live_files):
            if PurePath(path).is_absolute() or ".." in PurePath(path).parts:
                raise ValueError(
                    f"file {path!r}: the local runtime writes only inside the instance's folder;"
                    " use a relative path"
                )
        container = training_container(spec.resolved.template, None, name=spec.container)
        folder.control.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.output.mkdir(exist_ok=True)
        folder.predictions.mkdir(exist_ok=True)
        folder.log.touch(mode=0o600)
        shell = remote_shell_script(self.cache, python=self.python)
        env = environment(
            spec,
            folder,
            uid=uid,
            remote_shell=shell,
            library=agent_program(self.cache),
            inherit=self.inherit,
            gpus=gpus,
        )
        base = str((read_json(run.about) or {}).get("base_dir") or folder.path)
        order = Order(
            uid=uid,
            generation=ref.run.generation,
            role=ref.role,
            index=ref.index,
            epoch=ref.epoch,
            job_attempt=ref.job_attempt,
            attempt=ref.attempt,
            address=_address(spec),
            resources=dict(spec.resources),
            held=spec.held,
            files=_files(spec, spec.files),
            live_files=_files(spec, spec.live_files),
            readiness=None if spec.readiness is None else spec.readiness.to_document(),
            watch=spec.watch,
            ports=dict(spec.ports),
            memory_bytes=memory_bytes(spec),
            command=command_line(spec, env),
            env=env,
            # an absolute second part replaces the first
            working_dir=str((folder.code if spec.code else Path(base)) / spec.working_dir),
            code=None if spec.code is None else spec.code.to_order(),
            code_dir=str(folder.code),
            environment=environment_order(spec, self.cache, python=self.python),
            progress_file=str(folder.progress),
            readiness_probe=container.get("readinessProbe"),
            stall=None if spec.stall is None else spec.stall.to_order(),
            predictions_dir=str(folder.predictions),
            predictions_uri=spec.predictions_uri or str(run.predictions / folder.instance.name),
            deadline_seconds=spec.deadline_seconds,
            grace_seconds=spec.grace_seconds,
            output_dir=str(folder.output),
            output_uri=_output_uri(spec.output_uri, base),
            in_place_seconds=spec.in_place_seconds,
        )
        write_json(folder.spec, order.document())
        if spec.name:
            write_text(run.names / spec.name, folder.instance.name)
        link = folder.instance / f".current.{os.getpid()}"
        link.unlink(missing_ok=True)
        link.symlink_to(folder.path.name)
        link.replace(folder.instance / "current")

    def _start(self, folders: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        """Start one agent per folder; return folder -> its answer."""
        if not folders:
            return {}
        program = agent_program(self.cache)
        command = [self.python, "-I", "-S", str(program), "start", *folders]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_START_SECONDS,
                cwd=self.local_dir,
                env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"},
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return {f: {"result": "error", "message": f"{self.python}: {error}"} for f in folders}
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        found = {each["folder"]: each for each in answers}
        told = done.stderr.decode(errors="replace").strip()[-500:]
        silent = {"result": "error", "message": told or "the agent gave no answer"}
        return {folder: found.get(folder, silent) for folder in folders}


def _may_have_lived(ref: InstanceRef) -> bool:
    return ref.run.generation > 1 or attempt_of(ref) != (0, 0, 0)


def _start_outcome(folder: AttemptFolder, ref: InstanceRef, *, inside: AttemptFolder) -> Outcome:
    """Return what came of the order to begin the attempt in `folder`, once that is known."""
    until = time.monotonic() + _BEGIN_SECONDS
    waits = True
    while waits and time.monotonic() < until:
        old = read_attempt_state(inside)
        waits = (
            old is not None and old.life is AgentLiveness.WAITING
        )  # looked at first: it leaves last
        standing = read_attempt_state(folder)
        if standing is not None and standing.recorded:
            return Outcome(ref=ref, result="created")
        time.sleep(_LOOK_SECONDS)
    message = "the agent that waits does not answer" if waits else "nothing waits there any more"
    return Outcome(ref=ref, result="refused", message=message)


def _outcome(ref: InstanceRef, folder: AttemptFolder, line: Mapping[str, Any]) -> Outcome:
    standing = read_attempt_state(folder)
    known = replace(ref, uid=standing.uid) if standing else ref
    message = str(line.get("message", ""))
    match line["result"]:
        case "started":
            return Outcome(ref=known, result="created")
        case "busy":  # an agent that an earlier creator had started was faster
            alive = standing is not None and standing.recorded
            result = "adopted" if alive else "refused"
            return Outcome(ref=known, result=result, message="" if alive else message)  # type: ignore[arg-type]  # both are results
        case "refused":
            return Outcome(ref=ref, result="refused", message=message)
    return Outcome(ref=ref, result="error", message=message)


def _is_alive(standing: AttemptState) -> str:
    attempt = standing.order.attempt
    if standing.life is AgentLiveness.ELSEWHERE:
        return f"attempt {attempt} was started on {standing.place}, where we cannot see"
    return f"attempt {attempt} still lives (agent pid {standing.agent.get('pid')})"


def _address(spec: InstanceSpec) -> str:
    port = next(iter(spec.ports.values()), None)
    return "127.0.0.1" if port is None else f"127.0.0.1:{port}"


def _files(spec: InstanceSpec, files: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    return {
        path: {"content": content, "executable": path in spec.executables}
        for path, content in files.items()
    }


def _output_uri(uri: str, base: str) -> str:
    return str(Path(base) / uri) if uri and "://" not in uri else uri
