"""Create attempts: adopt, refuse, or ask an allocation for a step. Every write can be repeated.

Creators of one instance take turns (a lock per instance); whoever was killed half-way is continued.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.resources
import os
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from airflow_training.agent.files import AttemptFolder, read_json, write_json, write_text
from airflow_training.agent.package import agent_program
from airflow_training.control.reasons import WAITING_FOR_OLD_INSTANCE
from airflow_training.errors import RuntimeUnavailable
from airflow_training.runtimes.folders.attempt_order import make_order, write_order
from airflow_training.runtimes.folders.attempt_state import AgentLiveness, AttemptState
from airflow_training.runtimes.folders.orders import order_delete
from airflow_training.runtimes.folders.paths import RunFolder, attempt_of, locked
from airflow_training.runtimes.folders.restart import restart_in_place
from airflow_training.runtimes.port import InstanceRef, InstanceSpec, Outcome
from airflow_training.runtimes.slurm import allocation_program
from airflow_training.runtimes.slurm.allocation_options import AllocationOptions
from airflow_training.runtimes.slurm.allocation_program import (
    host_name,
    hosts_of,
    named_instances,
    place_order,
)
from airflow_training.runtimes.slurm.allocations import Allocation
from airflow_training.runtimes.slurm.attempts import AttemptReader, placement_file
from airflow_training.runtimes.slurm.cluster import SubmitRefused
from airflow_training.runtimes.slurm.containers import order_in_container
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
        options = AllocationOptions.from_document(about["options"])
        with locked(reader.run.path / "allocations.lock"):
            placed = {place: self._find_place(reader, plan) for place, plan in plans.items()}
            homeless = {plan.name: plan for place, plan in plans.items() if placed[place] is None}
            longest = reader.book.cluster.longest_array
            for request in _requests(homeless, about, longest_array=longest):
                reader.book.add(
                    replace(request, excluded=_excluded(plans)), idle_seconds=options.idle_seconds
                )
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
            allocation = reader.book.accepting(plan.name, excluded=plan.spec.excluded_nodes)
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

    def _keeper(self, options: AllocationOptions) -> list[str]:
        """Return the words that keep an allocation, without its folder."""
        own = importlib.resources.files(allocation_program.__package__ or "")
        source = own.joinpath("allocation_program.py").read_text(encoding="utf-8")
        agent = agent_program(self.cache)
        program = agent.with_name(f"{agent.stem}-allocation-{_digest(source)}.py")
        if not program.exists():
            write_text(program, source)
        return [options.python or sys.executable, "-I", "-S", str(program), str(agent), "keep"]

    # orders -----------------------------------------------------------------------------------------
    def _write(self, run: RunFolder, plan: _Plan) -> None:
        """Write down what the agent shall do; raises ValueError for what cannot be done here."""
        order = self._order(run, plan.folder, plan.spec, uid=plan.uid)
        write_order(run, plan.folder, plan.spec.name, order)

    def _order(
        self, run: RunFolder, folder: AttemptFolder, spec: InstanceSpec, *, uid: str
    ) -> dict[str, Any]:
        """Make the folders of an attempt; return its order, with names in the place of nodes."""
        about = read_json(run.about) or {}
        options = AllocationOptions.from_document(about["options"])
        python = options.python or sys.executable
        host = host_name(spec.ref.role, spec.ref.index, spec.ref.run.uid)
        order = make_order(
            run,
            folder,
            spec,
            uid=uid,
            host=host,
            cache=self.cache,
            python=python,
            inherit=self.inherit,
        )
        if options.container_runtime:
            folders = (str(run.path), str(self.cache), str(about.get("base_dir") or ""))
            order = order_in_container(order, spec, options, folders=folders, host=os.environ)
        return order.document()

    def restart(self, reader: AttemptReader, instance: InstanceRef, spec: InstanceSpec) -> Outcome:
        """Begin an attempt in the place of one that has failed and waits; blocks until it has begun."""
        attempts = _Attempts(launcher=self, reader=reader)
        return restart_in_place(
            attempts, instance, spec, seconds=_BEGIN_SECONDS, poll_seconds=_LOOK_SECONDS
        )

    def write_next(
        self,
        reader: AttemptReader,
        folder: AttemptFolder,
        spec: InstanceSpec,
        *,
        uid: str,
        after: AttemptFolder,
    ) -> Outcome | None:
        """Write an attempt that begins where another waits: its node and its variables are known."""
        run, before = reader.run, reader.read(after)
        placed = None if before is None else reader.placement(after, before.uid)
        if placed is None:
            return Outcome(ref=spec.ref, result="refused", message="nothing waits there")
        try:
            document = self._order(run, folder, spec, uid=uid)
            step = read_json(after.control / "step.json") or {}
            machine = read_json(after.control / "machine.json") or {}
            hosts = hosts_of(run.path, read_json, named_instances(document, run.path.name))
            placement = {"uid": uid, "allocation": placed[0].key, "step": placed[1]}
            write_json(placement_file(folder), placement)
            write_json(folder.control / "step.json", step)
            write_json(folder.control / "machine.json", machine)
            env = step.get("env", {})
            order = place_order(document, run=run.path.name, hosts=hosts, env=env)
            write_order(run, folder, spec.name, order)
        except (ValueError, OSError) as error:
            return Outcome(ref=spec.ref, result="refused", message=str(error))
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempts:
    """The attempts of one run, for a restart in place."""

    launcher: SlurmLauncher
    reader: AttemptReader

    @property
    def run(self) -> RunFolder:
        return self.reader.run

    def read(self, folder: AttemptFolder) -> AttemptState | None:
        return self.reader.read(folder)

    def find(self, ref: InstanceRef) -> tuple[AttemptFolder, AttemptState] | None:
        return self.reader.find(ref)

    def write_next(
        self, folder: AttemptFolder, spec: InstanceSpec, *, uid: str, after: AttemptFolder
    ) -> Outcome | None:
        return self.launcher.write_next(self.reader, folder, spec, uid=uid, after=after)


def _requests(
    homeless: Mapping[str, _Plan], about: Mapping[str, Any], *, longest_array: int
) -> list[AllocationRequest]:
    """Return what to ask Slurm for, so that each of these has a place."""
    rest = dict(homeless)
    found = []
    gang = {
        role: (AllocationComponent(**each["component"]), int(each["count"]))
        for role, each in about["gang"].items()
    }
    together = {f"{role}-{i}" for role, (_, count) in gang.items() for i in range(count)}
    if together & set(rest):
        options = AllocationOptions.from_document(about["options"])
        found.append(gang_request(gang, options))
        rest = {name: plan for name, plan in rest.items() if name not in together}
    return found + single_requests(
        {
            name: AllocationComponent.of_resources(plan.spec.resources)
            for name, plan in rest.items()
        },
        longest_array=longest_array,
    )


def _excluded(plans: Mapping[int, _Plan]) -> tuple[str, ...]:
    return tuple(sorted({node for plan in plans.values() for node in plan.spec.excluded_nodes}))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def describe(state: AttemptState) -> str:
    """Name an attempt that lives, for people."""
    host = state.agent.get("host", "a node that is not known yet")
    return f"{state.order.role} {state.order.index} lives on {host}"
