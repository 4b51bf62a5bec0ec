"""A runtime as another package would bring it: orders are folders of a spool, and workers take them."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import re
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from airflow_training.control.attempts import FIRST_ATTEMPT, AttemptId
from airflow_training.control.observations import Observation
from airflow_training.control.reason_facts import ReasonFacts
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import ResolvedJob, RunRef
from airflow_training.errors import LeaseLost, Problem, StillAlive
from airflow_training.runtimes.adapter import Adapter, RuntimeContext
from airflow_training.runtimes.agent_reasons import AGENT_REASONS
from airflow_training.runtimes.port import (
    Address,
    Addresses,
    Capabilities,
    ClusterSnapshot,
    Cursor,
    InstanceRef,
    InstanceRemoval,
    InstanceSpec,
    InstanceUpdate,
    LogChunk,
    NodeView,
    Outcome,
    ReleaseAnswer,
    Snapshot,
)
from airflow_training.settings import Settings

_WORKER = Path(__file__).with_name("worker.py")
_LOOK_SECONDS = 0.02
_OVER = frozenset({"succeeded", "failed"})


class Options(BaseModel):
    """What a job may say under `spec.runtime.options`."""

    model_config = ConfigDict(extra="forbid")
    nice: int = Field(default=0, ge=0, le=19)


class Spool(Adapter):
    name = "spool"
    module = __name__
    capabilities = Capabilities(
        hold=True,
        runs_here=True,
        gangs=("none", "together"),
        reasons={**AGENT_REASONS, "SpoolFull": ReasonFacts("resource", "pod", "unschedulable")},
    )
    options = Options

    def open(self, settings: Settings, given: RuntimeContext) -> SpoolRuntime:
        return SpoolRuntime(settings.local_dir / "spool")


@dataclass(frozen=True)
class Order:
    """One attempt of one instance: a folder."""

    folder: Path

    def read(self, name: str) -> dict[str, Any]:
        with contextlib.suppress(FileNotFoundError):
            found: dict[str, Any] = json.loads((self.folder / name).read_text())
            return found
        return {}

    @property
    def deleted(self) -> bool:
        return (self.folder / "deleted").exists()

    @property
    def over(self) -> bool:
        return self.read("state.json").get("state") in _OVER

    @property
    def gone(self) -> bool:
        return self.over and self.deleted

    def delete(self, grace_seconds: float) -> None:
        if not self.deleted:
            _write(self.folder / "deleted", grace_seconds)

    def observe(self) -> Observation:
        order, state = self.read("order.json"), self.read("state.json")
        now = state.get("state", "pending")
        running = now == "running"
        if self.deleted and now not in _OVER:
            now = "terminating"
        return Observation(
            key=InstanceKey(order["role"], order["index"]),
            uid=order["uid"],
            attempt_id=AttemptId(**{name: order[name] for name in (*_ATTEMPT, "generation")}),
            state=now,
            reason=state.get("reason", "WaitingForDependency" if order["held"] else "Starting"),
            message=state.get("message", ""),
            exit_code=state.get("exit_code"),
            signal=state.get("signal"),
            held=now == "pending" and order["held"],
            address_live=running,
            port_open=running,
            ready=running,
            node=socket.gethostname(),
            address=order["address"],
            state_since=state.get("since", order["at"]),
            started_at=state.get("started_at"),
            finished_at=state.get("finished_at"),
        )


_ATTEMPT = ("epoch", "job_attempt", "attempt")


def _attempt(ref: InstanceRef) -> tuple[int, int, int]:
    return ref.epoch, ref.job_attempt, ref.attempt


def _write(path: Path, document: Any) -> None:
    draft = path.with_suffix(f".{uuid.uuid4().hex}")
    draft.write_text(json.dumps(document))
    draft.replace(path)


class Run:
    """The folder of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def locked(self) -> Iterator[dict[str, Any]]:
        """Yield what is known of the run; what the block changes is kept."""
        with (self.path / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            known = {"generation": -1, "removed": -1, "ports": {}} | Order(self.path).read(
                "run.json"
            )
            yield known
            _write(self.path / "run.json", known)

    def orders(
        self, role: str = "", index: int = -1
    ) -> Iterator[tuple[tuple[int, int, int], Order]]:
        for path in sorted(self.path.glob(f"{role or '*'}@{index if index >= 0 else '*'}@*")):
            order = Order(path)
            written = order.read("order.json")
            if written:
                yield (written["epoch"], written["job_attempt"], written["attempt"]), order

    def visible(self) -> dict[InstanceKey, Observation]:
        """Return the newest attempt of each instance that is still there."""
        found: dict[InstanceKey, tuple[tuple[int, int, int], Observation]] = {}
        for attempt, order in self.orders():
            seen = order.observe()
            key = seen.key
            if not order.gone and (key not in found or attempt >= found[key][0]):
                found[key] = attempt, seen
        return {key: seen for key, (_, seen) in found.items()}


class SpoolRuntime:
    """The port; everything is in the folder, so any number of processes may serve it."""

    name = Spool.name
    capabilities = Spool.capabilities

    def __init__(self, root: Path) -> None:
        self._root = root

    def _run(self, run: RunRef) -> Run:
        return Run(self._root / run.uid)

    async def check(
        self, run: RunRef, job: ResolvedJob, firsts: Sequence[InstanceSpec]
    ) -> Sequence[Problem]:
        return ()

    async def prepare(
        self, run: RunRef, job: ResolvedJob, *, attempt: AttemptId = FIRST_ATTEMPT
    ) -> Addresses:
        with self._run(run).locked() as known:
            why = _refusal(known, run)
            if why:
                raise LeaseLost(why)
            known["nice"] = Options.model_validate(job.runtime_options).nice
            roles = known["ports"].setdefault(f"{attempt.epoch}.{attempt.job_attempt}", {})
            for role in job.roles:
                team = roles.setdefault(role.name, [])
                while len(team) < max(role.replicas, role.max_replicas or 0):
                    team.append({})
                    for port in role.ports:
                        team[-1][port] = _free_port(known["ports"])
        return {
            role: tuple(Address(host="127.0.0.1", ports=ports) for ports in team)
            for role, team in roles.items()
        }

    async def create(self, instances: Sequence[InstanceSpec]) -> Sequence[Outcome]:
        return [await asyncio.to_thread(self._create, spec) for spec in instances]

    def _create(self, spec: InstanceSpec) -> Outcome:
        ref, run = spec.ref, self._run(spec.ref.run)
        with run.locked() as known:
            why = _refusal(known, ref.run) or ("" if known["ports"] else "it was never prepared")
            for attempt, order in run.orders(ref.role, ref.index):
                if attempt == _attempt(ref) and not order.deleted:
                    uid = order.read("order.json")["uid"]
                    return Outcome(ref=replace(ref, uid=uid), result="adopted")
                if attempt > _attempt(ref):
                    why = why or "a newer attempt exists"
                elif not order.over:
                    why = why or "another attempt still lives"
            if why:
                return Outcome(ref=ref, result="refused", message=why)
            uid = uuid.uuid4().hex
            folder = run.path / f"{ref.role}@{ref.index}@{uid}"
            (folder / "output").mkdir(parents=True)
            (folder / "log").touch()
            _write(folder / "order.json", _order(spec, uid, folder, nice=known.get("nice", 0)))
        subprocess.run([sys.executable, "-I", "-S", _WORKER, folder], check=True)
        return Outcome(ref=replace(ref, uid=uid), result="created")

    async def release(self, instances: Sequence[InstanceRef], answer: ReleaseAnswer) -> None:
        for order in self._meant(instances):
            _write(order.folder / "released", answer.kind)

    async def delete(
        self,
        instances: Sequence[InstanceRef],
        *,
        grace_seconds: float,
        dump_stacks: bool = False,
    ) -> None:
        for order in self._meant(instances):
            order.delete(grace_seconds)

    def _meant(self, instances: Sequence[InstanceRef]) -> Iterator[Order]:
        for ref in instances:
            for attempt, order in self._run(ref.run).orders(ref.role, ref.index):
                same = order.read("order.json")["uid"] == ref.uid if ref.uid else True
                if same and attempt == _attempt(ref):
                    yield order

    async def stop_process(
        self, instances: Sequence[InstanceRef], *, grace_seconds: float, dump_stacks: bool = False
    ) -> None:
        """Do nothing: nothing stays here."""

    async def await_peers(
        self, instances: Sequence[InstanceRef], *, seconds: float, number: int
    ) -> None:
        """Do nothing: nothing stays here."""

    async def restart_process(self, instance: InstanceRef, spec: InstanceSpec) -> Outcome:
        return Outcome(ref=spec.ref, result="refused", message="nothing waits there")

    async def dismiss(self, instances: Sequence[InstanceRef]) -> None:
        """Do nothing: nothing waits here."""

    async def watch(
        self, run: RunRef
    ) -> AsyncIterator[Snapshot | InstanceUpdate | InstanceRemoval]:
        folder = self._run(run)
        before = await asyncio.to_thread(folder.visible)
        yield Snapshot(instances=tuple(before.values()))
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            now = await asyncio.to_thread(folder.visible)
            for (role, index), old in before.items():
                new = now.get(InstanceKey(role, index))
                if new is None or new.uid != old.uid:
                    yield InstanceRemoval(key=InstanceKey(role, index), uid=old.uid)
            for key, seen in now.items():
                if seen != before.get(key):
                    yield InstanceUpdate(instance=seen)
            before = now

    async def read_log(
        self, instance: InstanceRef, cursor: Cursor, *, limit: int, attempt: int | None = None
    ) -> LogChunk:
        wanted = replace(instance, uid="")
        wanted = wanted if attempt is None else wanted.at_attempt(attempt)
        for order in self._meant([wanted]):
            over = order.over  # asked first: what is over prints no more
            with (order.folder / "log").open("rb") as file:
                file.seek(cursor.offset)
                data = file.read(limit)
            after = Cursor(offset=cursor.offset + len(data))
            return LogChunk(data=data, next=after, end=over and len(data) < limit)
        return LogChunk(data=b"", next=cursor, end=False)

    async def tail_log(self, instance: InstanceRef, *, limit: int) -> bytes:
        for order in self._meant([replace(instance, uid="")]):
            return (order.folder / "log").read_bytes()[-limit:]
        return b""

    async def collect_logs(
        self, run: RunRef, *, only: Collection[InstanceKey] | None = None
    ) -> None:
        """Return: logs are files."""

    async def remove(self, run: RunRef) -> None:
        folder = self._run(run)
        with folder.locked() as known:
            known["removed"] = max(known["generation"], run.generation)
        until = time.monotonic() + 20
        while any(not order.gone for _, order in folder.orders()):
            for _, order in folder.orders():
                order.delete(order.read("order.json")["grace_seconds"])
            if time.monotonic() > until:
                raise StillAlive(f"run {run.uid} has workers that do not answer")
            await asyncio.sleep(_LOOK_SECONDS)

    async def cluster_view(
        self, job: ResolvedJob | None = None, *, with_free: bool = False
    ) -> ClusterSnapshot:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        node = NodeView(
            name=socket.gethostname(), cpus=float(os.cpu_count() or 1), memory_bytes=memory
        )
        return ClusterSnapshot(nodes=(node,))


def _refusal(known: dict[str, Any], run: RunRef) -> str:
    """Return why this generation may not create, or take note that it owns the run."""
    if run.generation <= known["removed"]:
        return f"run {run.uid} was removed"
    if run.generation < known["generation"]:
        return f"generation {known['generation']} owns run {run.uid}"
    known["generation"] = run.generation
    return ""


def _free_port(taken: Mapping[str, Mapping[str, Sequence[Mapping[str, int]]]]) -> int:
    used = {
        port
        for roles in taken.values()
        for team in roles.values()
        for ports in team
        for port in ports.values()
    }
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if port not in used:
            return port


def _order(spec: InstanceSpec, uid: str, folder: Path, *, nice: int) -> dict[str, Any]:
    ref = spec.ref
    env = {**spec.env, "TRAINING_INSTANCE_DIR": str(folder)}

    def expanded(text: str) -> str:
        return re.sub(r"\$\((\w+)\)", lambda found: env.get(found[1], found[0]), text)

    env = {name: expanded(value) for name, value in env.items()}
    port = next(iter(spec.ports.values()), None)
    return {
        "uid": uid,
        "role": ref.role,
        "index": ref.index,
        **dict(zip(_ATTEMPT, _attempt(ref), strict=True)),
        "generation": ref.run.generation,
        "at": time.time(),
        "address": "127.0.0.1" if port is None else f"127.0.0.1:{port}",
        "command": ["nice", "-n", str(nice), *map(expanded, (*spec.command, *spec.args))],
        "env": env,
        "files": dict(spec.files),
        "live_files": dict(spec.live_files),
        "working_dir": spec.working_dir,
        "held": spec.held,
        "deadline_seconds": spec.deadline_seconds,
        "grace_seconds": spec.grace_seconds,
    }


SPOOL = Spool()
