"""Create attempts: adopt, refuse, or ask an allocation for a step. Every write can be repeated.

Creators of one instance take turns (a lock per instance); whoever was killed half-way is continued.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any

from airflow_training.agent.files import AttemptFolder, read_json, write_json, write_text
from airflow_training.agent.order import VERSION, Order
from airflow_training.agent.package import agent_program, remote_shell_script
from airflow_training.control.reasons import WAITING_FOR_OLD_INSTANCE
from airflow_training.errors import RuntimeUnavailable
from airflow_training.frameworks.pods import training_container
from airflow_training.runtimes.local.environment import command_line, environment, memory_bytes
from airflow_training.runtimes.local.liveness import AgentLiveness, AttemptState
from airflow_training.runtimes.local.paths import RunFolder, attempt_of, locked
from airflow_training.runtimes.local.recovery import give_order, order_delete
from airflow_training.runtimes.port import InstanceRef, InstanceSpec, Outcome
from airflow_training.runtimes.slurm import allocation_program
from airflow_training.runtimes.slurm.allocation_program import (
    host_name,
    hosts_of,
    named_instances,
    place_order,
)
from airflow_training.runtimes.slurm.allocations import Allocation, SubmitRefused
from airflow_training.runtimes.slurm.attempts import AttemptReader, placement_file
from airflow_training.runtimes.slurm.options import SlurmOptions
from airflow_training.runtimes.slurm.queue_view import SLURM_AWAY
from airflow_training.runtimes.slurm.requests import (
    AllocationComponent,
    AllocationRequest,
    gang_request,
    single_requests,
)

__all__ = ["SlurmLauncher"]

_BEGIN_SECONDS = 10.0
_LOOK_SECONDS = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What an attempt needs before it can be asked for."""

    folder: AttemptFolder
    spec: InstanceSpec
    uid: str
    adopted: bool = False

    @property
    def name(self) -> str:
        return f"{self.spec.ref.role}-{self.spec.ref.index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmLauncher:
    """Creates the attempts of runs below one shared folder."""

    root: Path
    inherit: Sequence[str]

    @property
    def cache(self) -> Path:
        return self.root / ".agent"

    def create(self, reader: AttemptReader, specs: Sequence[InstanceSpec]) -> list[Outcome]:
        """Create or adopt instances of one run; blocks until Slurm has queued what they need."""
        outcomes: dict[int, Outcome] = {}
        plans: dict[int, _Plan] = {}
        run = reader.run
        run.make()
        order = sorted(range(len(specs)), key=lambda i: (specs[i].ref.role, specs[i].ref.index))
        with contextlib.ExitStack() as locks:
            for place in order:
                ref = specs[place].ref
                folder = run.attempt(ref.role, ref.index, attempt_of(ref))
                locks.enter_context(locked(folder.create_lock))
                found = self._plan(reader, folder, specs[place])
                if isinstance(found, Outcome):
                    outcomes[place] = found
                else:
                    plans[place] = found
            if plans:
                outcomes |= self._start(reader, plans)
        return [outcomes[place] for place in range(len(specs))]

    def _plan(
        self, reader: AttemptReader, folder: AttemptFolder, spec: InstanceSpec
    ) -> Outcome | _Plan:
        """Return the outcome, or what has to be started."""
        ref, run = spec.ref, reader.run
        wanted = attempt_of(ref)
        refusal = run.refuse_or_own(ref.run.generation)
        if not run.about.exists():
            refusal = "the folder of the run was deleted; it has to be prepared again"
        if refusal:
            return Outcome(ref=ref, result="refused", message=refusal)
        uid = ""
        for attempt, other in run.attempts(ref.role, ref.index):
            state = reader.read(other)
            if state is None:
                continue
            state = reader.settle(other, state)
            if attempt > wanted and state.life is not AgentLiveness.MISSING:
                return Outcome(ref=ref, result="refused", message="a newer attempt exists")
            if attempt == wanted:
                if state.life is not AgentLiveness.MISSING and not state.deleted:
                    if state.life is AgentLiveness.STARTING:  # its creator may have died half-way
                        return _Plan(folder=folder, spec=spec, uid=state.uid, adopted=True)
                    return Outcome(ref=replace(ref, uid=state.uid), result="adopted")
                # ordered before, but Slurm never heard of it: the same object then
                uid = "" if state.deleted else state.uid
            if not state.over:
                return Outcome(
                    ref=ref,
                    result="refused",
                    reason=WAITING_FOR_OLD_INSTANCE,
                    message=f"attempt {state.order.attempt} still lives",
                )
            if state.end.get("explained") and not state.deleted:
                # Slurm has given it up, which its agent on a node that is cut off may not know
                order_delete(other, state.uid, grace_seconds=state.order.grace_seconds)
        plan = _Plan(folder=folder, spec=spec, uid=uid or uuid.uuid4().hex)
        try:
            self._write(run, plan)
        except ValueError as error:
            return Outcome(ref=ref, result="impossible", message=str(error))
        except OSError as error:
            return Outcome(ref=ref, result="error", message=str(error))
        return plan

    # allocations ------------------------------------------------------------------------------------
    def _start(self, reader: AttemptReader, plans: Mapping[int, _Plan]) -> dict[int, Outcome]:
        about = read_json(reader.run.about) or {}
        options = SlurmOptions.model_validate(about["options"])
        with locked(reader.run.path / "allocations.lock"):
            placed = {place: self._find_place(reader, plan) for place, plan in plans.items()}
            homeless = {plan.name: plan for place, plan in plans.items() if placed[place] is None}
            for request in _requests(homeless, about):
                reader.book.add(request, idle_seconds=options.idle_seconds)
            for place, plan in plans.items():
                if placed[place] is None:
                    placed[place] = self._find_place(reader, plan)
        words = self._keeper(options)
        outcomes: dict[int, Outcome] = {}
        failed: dict[Path, Outcome] = {}
        away: Outcome | None = None
        for place, plan in plans.items():
            allocation = placed[place]
            if allocation is None:  # each has one now
                continue
            folder = allocation.folder.parent
            known = failed.get(folder, away)
            if known is not None and not allocation.submitted.exists():
                # Slurm has answered for all elements of a request, or for none of any
                outcomes[place] = replace(known, ref=plan.spec.ref)
                continue
            found = outcomes[place] = self._submit(reader, plan, allocation, words)
            if found.result not in ("created", "adopted"):
                failed[folder] = found
                away = found if found.reason == SLURM_AWAY else away
        return outcomes

    def _find_place(self, reader: AttemptReader, plan: _Plan) -> Allocation | None:
        """Return the allocation that has taken the order for an attempt; None where none does."""
        before = reader.placement(plan.folder, plan.uid)
        if before is not None and before[1] == plan.uid:
            known = reader.book.phase(before[0]) != "over"
            if known and before[0].ask(plan.uid, plan.name, plan.folder):
                return before[0]
        while True:
            allocation = reader.book.accepting(plan.name)
            if allocation is None:
                return None
            placement = {"uid": plan.uid, "allocation": allocation.key, "step": plan.uid}
            write_json(placement_file(plan.folder), placement)
            if allocation.ask(plan.uid, plan.name, plan.folder):
                return allocation

    def _submit(
        self, reader: AttemptReader, plan: _Plan, allocation: Allocation, words: Sequence[str]
    ) -> Outcome:
        ref = plan.spec.ref
        try:
            reader.book.submit(allocation, words, job=ref.run.job)
        except SubmitRefused as error:
            answer = error.answer
            result = "impossible" if answer.kind == "impossible" else "refused"
            reason = answer.reason if result == "refused" else ""
            return Outcome(ref=ref, result=result, reason=reason, message=answer.message)  # type: ignore[arg-type]  # both are results
        except RuntimeUnavailable as error:
            return Outcome(ref=ref, result="refused", reason=SLURM_AWAY, message=str(error))
        result = "adopted" if plan.adopted else "created"
        return Outcome(ref=replace(ref, uid=plan.uid), result=result)  # type: ignore[arg-type]  # as above

    def _keeper(self, options: SlurmOptions) -> list[str]:
        """Return the words that keep an allocation, without its folder."""
        source = Path(allocation_program.__file__).read_text(encoding="utf-8")
        agent = agent_program(self.cache)
        program = agent.with_name(f"{agent.stem}-allocation-{_digest(source)}.py")
        if not program.exists():
            write_text(program, source)
        return [options.python or sys.executable, "-I", "-S", str(program), str(agent), "keep"]

    # orders -----------------------------------------------------------------------------------------
    def _write(self, run: RunFolder, plan: _Plan) -> None:
        """Write down what the agent shall do; raises ValueError for what cannot be done here."""
        folder, document = plan.folder, self.order(run, plan.folder, plan.spec, uid=plan.uid)
        write_json(folder.spec, document)
        if plan.spec.name:
            write_text(run.names / plan.spec.name, folder.instance.name)
        link = folder.instance / f".current.{uuid.uuid4().hex}"
        link.symlink_to(folder.path.name)
        link.replace(folder.instance / "current")

    def order(
        self, run: RunFolder, folder: AttemptFolder, spec: InstanceSpec, *, uid: str
    ) -> dict[str, Any]:
        """Make the folders of an attempt; return its order, with names in the place of nodes."""
        ref = spec.ref
        for path in (*spec.files, *spec.live_files):
            if PurePath(path).is_absolute() or ".." in PurePath(path).parts:
                raise ValueError(
                    f"file {path!r}: on Slurm files are written only inside the instance's folder;"
                    " use a relative path"
                )
        about = read_json(run.about) or {}
        python = SlurmOptions.model_validate(about["options"]).python or sys.executable
        container = training_container(spec.resolved.template, None, name=spec.container)
        folder.control.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.output.mkdir(exist_ok=True)
        folder.predictions.mkdir(exist_ok=True)
        folder.log.touch(mode=0o600)
        env = environment(
            spec,
            folder,
            uid=uid,
            remote_shell=remote_shell_script(self.cache, python=python),
            library=agent_program(self.cache),
            inherit=self.inherit,
        )
        base = str(about.get("base_dir") or folder.path)
        port = next(iter(spec.ports.values()), None)
        host = host_name(ref.role, ref.index, ref.run.uid)
        order = Order(
            uid=uid,
            generation=ref.run.generation,
            role=ref.role,
            index=ref.index,
            epoch=ref.epoch,
            job_attempt=ref.job_attempt,
            attempt=ref.attempt,
            address=host if port is None else f"{host}:{port}",
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
            working_dir=str(Path(base) / spec.working_dir),
            progress_file=str(folder.progress),
            readiness_probe=container.get("readinessProbe"),
            stall=None if spec.stall is None else spec.stall.to_order(),
            predictions_dir=str(folder.predictions),
            predictions_uri=spec.predictions_uri or str(run.predictions / folder.instance.name),
            deadline_seconds=spec.deadline_seconds,
            grace_seconds=spec.grace_seconds,
            output_dir=str(folder.output),
            output_uri=_beside(spec.output_uri, base),
            output_continuous=spec.output_continuous,
            in_place_seconds=spec.in_place_seconds,
        )
        return order.document()

    def restart(self, reader: AttemptReader, instance: InstanceRef, spec: InstanceSpec) -> Outcome:
        """Begin an attempt in the place of one that has failed and waits; blocks until it has begun."""
        ref, run = spec.ref, reader.run
        folder = run.attempt(ref.role, ref.index, attempt_of(ref))
        with locked(folder.create_lock):
            begun = reader.read(folder)
            if begun is not None and begun.recorded and not begun.deleted:
                return Outcome(ref=replace(ref, uid=begun.uid), result="adopted")
            refusal = run.refuse_or_own(ref.run.generation)
            found = None if refusal else reader.find(instance)
            if found is None or found[1].life is not AgentLiveness.WAITING or found[1].deleted:
                return Outcome(ref=ref, result="refused", message=refusal or "nothing waits there")
            if found[1].order.version != VERSION:
                message = "the agent that waits understands orders of another version"
                return Outcome(ref=ref, result="refused", message=message)
            numbers = (n for n, each in run.attempts(ref.role, ref.index) if each.spec.exists())
            if max(numbers) > attempt_of(ref):
                return Outcome(ref=ref, result="refused", message="a newer attempt exists")
            old, standing = found
            placed = reader.placement(old, standing.uid)
            if placed is None:
                return Outcome(ref=ref, result="refused", message="nothing waits there")
            uid = begun.uid if begun is not None and not begun.deleted else uuid.uuid4().hex
            try:
                self._write_following(run, folder, spec, uid=uid, old=old, placed=placed)
            except (ValueError, OSError) as error:  # a new instance may still be made
                return Outcome(ref=ref, result="refused", message=str(error))
            give_order(old, standing.uid, "restart", attempt=folder.path.name, next=uid)
            return self._begun(reader, folder, replace(ref, uid=uid), inside=old)

    def _write_following(
        self,
        run: RunFolder,
        folder: AttemptFolder,
        spec: InstanceSpec,
        *,
        uid: str,
        old: AttemptFolder,
        placed: tuple[Allocation, str],
    ) -> None:
        """Write an attempt that begins where another waits: its node and its variables are known."""
        document = self.order(run, folder, spec, uid=uid)
        step = read_json(old.control / "step.json") or {}
        hosts = hosts_of(run.path, read_json, named_instances(document, run.path.name))
        placement = {"uid": uid, "allocation": placed[0].key, "step": placed[1]}
        write_json(placement_file(folder), placement)
        write_json(folder.control / "step.json", step)
        env = step.get("env", {})
        write_json(folder.spec, place_order(document, run=run.path.name, hosts=hosts, env=env))
        if spec.name:
            write_text(run.names / spec.name, folder.instance.name)
        link = folder.instance / f".current.{uuid.uuid4().hex}"
        link.symlink_to(folder.path.name)
        link.replace(folder.instance / "current")

    @staticmethod
    def _begun(
        reader: AttemptReader, folder: AttemptFolder, ref: InstanceRef, *, inside: AttemptFolder
    ) -> Outcome:
        """Return what came of the order to begin the attempt in `folder`, once that is known."""
        until = time.monotonic() + _BEGIN_SECONDS
        waits = True
        while waits and time.monotonic() < until:
            old = reader.read(inside)
            waits = old is not None and old.life is AgentLiveness.WAITING
            new = reader.read(folder)
            if new is not None and new.state:
                return Outcome(ref=ref, result="created")
            time.sleep(_LOOK_SECONDS)
        # nothing of it may begin later, beside another that is made instead
        message = (
            "the agent that waits does not answer" if waits else "nothing waits there any more"
        )
        return Outcome(ref=ref, result="refused", message=message)


def _requests(homeless: Mapping[str, _Plan], about: Mapping[str, Any]) -> list[AllocationRequest]:
    """Return what to ask Slurm for, so that each of these has a place."""
    rest = dict(homeless)
    found = []
    gang = {
        role: (AllocationComponent(**each["component"]), int(each["count"]))
        for role, each in about["gang"].items()
    }
    together = {f"{role}-{i}" for role, (_, count) in gang.items() for i in range(count)}
    if together & set(rest):
        found.append(gang_request(gang))
        rest = {name: plan for name, plan in rest.items() if name not in together}
    return found + single_requests(
        {name: AllocationComponent.of_resources(plan.spec.resources) for name, plan in rest.items()}
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _files(spec: InstanceSpec, files: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    return {
        path: {"content": content, "executable": path in spec.executables}
        for path, content in files.items()
    }


def _beside(uri: str, base: str) -> str:
    """Return an address of the document: a plain path is relative to the job file."""
    return str(Path(base) / uri) if uri and "://" not in uri else uri


def describe(state: AttemptState) -> str:
    """Name an attempt that lives, for people."""
    host = state.agent.get("host", "a node that is not known yet")
    return f"{state.order.role} {state.order.index} lives on {host}"
