"""Create attempts: adopt, refuse, or start them. One agent program is started for all of a batch.

Creators of one instance take turns (a lock per instance); whoever was killed half-way is continued.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from airflow_training.agent.files import AttemptFolder
from airflow_training.agent.package import agent_program
from airflow_training.control.reasons import WAITING_FOR_OLD_INSTANCE
from airflow_training.runtimes.folders.attempt_order import make_order, write_order
from airflow_training.runtimes.folders.attempt_state import AgentLiveness, AttemptState
from airflow_training.runtimes.folders.environment import gpu_count
from airflow_training.runtimes.folders.paths import RunFolder, attempt_of, locked
from airflow_training.runtimes.folders.restart import restart_in_place
from airflow_training.runtimes.local.gpus import GpuBook
from airflow_training.runtimes.local.leftovers import end_strays
from airflow_training.runtimes.local.liveness import find_attempt, read_attempt_state
from airflow_training.runtimes.local.recovery import settle_attempt
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
        run = RunFolder(self.local_dir, instance.run.uid)
        attempts = _LocalAttempts(launcher=self, run=run)
        return restart_in_place(
            attempts, instance, spec, seconds=_BEGIN_SECONDS, poll_seconds=_LOOK_SECONDS
        )

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
        return self.write(run, folder, spec, uid=uid)

    def write(
        self, run: RunFolder, folder: AttemptFolder, spec: InstanceSpec, *, uid: str
    ) -> Outcome | None:
        """Claim GPUs for the attempt and write what its agent needs; the outcome where that fails."""
        gpus = self._gpus.claim(folder, uid=uid, count=gpu_count(spec))
        if gpus is None:
            return Outcome(
                ref=spec.ref, result="refused", reason="WaitingForGpus", message=_WAITS_FOR_GPUS
            )
        try:
            order = make_order(
                run,
                folder,
                spec,
                uid=uid,
                host="127.0.0.1",
                cache=self.cache,
                python=self.python,
                inherit=self.inherit,
                gpus=gpus,
            )
            write_order(run, folder, spec.name, order.document())
        except (ValueError, OSError) as error:
            self._gpus.release(gpus, uid=uid)
            never = isinstance(error, ValueError)
            result: Literal["impossible", "error"] = "impossible" if never else "error"
            return Outcome(ref=spec.ref, result=result, message=str(error))
        return None

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _LocalAttempts:
    """The attempts of one run, for a restart in place."""

    launcher: Launcher
    run: RunFolder

    def read(self, folder: AttemptFolder) -> AttemptState | None:
        return read_attempt_state(folder)

    def find(self, ref: InstanceRef) -> tuple[AttemptFolder, AttemptState] | None:
        return find_attempt(self.run, ref)

    def write_next(
        self,
        folder: AttemptFolder,
        spec: InstanceSpec,
        *,
        uid: str,
        after: AttemptFolder,  # noqa: ARG002 - a new order on the same machine needs nothing of it
    ) -> Outcome | None:
        return self.launcher.write(self.run, folder, spec, uid=uid)


def _may_have_lived(ref: InstanceRef) -> bool:
    return ref.run.generation > 1 or attempt_of(ref) != (0, 0, 0)


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
