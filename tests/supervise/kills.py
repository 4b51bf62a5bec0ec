"""A controller that is killed between what it has decided and what it does about it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from airflow_training.admission.launch import launch
from airflow_training.control.model import JobEntry
from airflow_training.documents.resolved import ResolvedJob, RunKey
from airflow_training.runtimes.faults import Behaviour, Script
from airflow_training.runtimes.memory import MemoryRuntime
from airflow_training.state.store import Store
from airflow_training.supervise.loop import Supervisor
from airflow_training.supervise.owners import new_owner
from tests.builders import job, role

__all__ = ["Killed", "Outcome", "failing_job", "run_killed_at_its_actions"]


class Killed(BaseException):
    """The process is no more: nothing between here and the operating system may catch it."""


class Guillotine(MemoryRuntime):
    """Kills its caller before or after an action; every instance fails at once."""

    def __init__(self, dice: random.Random) -> None:
        super().__init__(script=Script(default=Behaviour(run_seconds=0.001, exit_code=1)))
        self._dice = dice
        self.kills = 0
        self.ports: dict[tuple[str, int, int], set[int]] = {}
        """By role, index and job attempt."""

    async def create(self, instances):
        self._maybe_kill()
        for each in instances:
            attempt = (each.ref.role, each.ref.index, each.ref.job_attempt)
            self.ports.setdefault(attempt, set()).update(each.ports.values())
        made = await super().create(instances)
        self._maybe_kill()
        return made

    async def delete(self, instances, *, grace_seconds, dump_stacks=False):
        self._maybe_kill()
        await super().delete(instances, grace_seconds=grace_seconds, dump_stacks=dump_stacks)
        self._maybe_kill()

    def _maybe_kill(self) -> None:
        if self._dice.random() < 0.5:
            self.kills += 1
            raise Killed


@dataclass(frozen=True)
class Outcome:
    entry: JobEntry
    kills: int
    ports: Mapping[tuple[str, int, int], set[int]]
    """By role, index and job attempt."""


def failing_job() -> ResolvedJob:
    """Return a job none of whose attempts succeeds: three recoveries, a fresh job, three more."""
    return job(
        role("worker", 2, backoff_limit=99, ports={"main": 1234}),
        scope="Job",
        max_restarts=3,
        then="FreshJob",
        max_fresh_jobs=1,
        checkpoint={"uri": "/nowhere"},
        runtime="memory",
    )


async def run_killed_at_its_actions(store: Store, seed: int) -> Outcome:
    """Drive a failing job to its end, by as many controllers as it takes."""
    runtime = Guillotine(random.Random(seed))
    key = RunKey(source="cli", run_id=f"run-{seed}")
    uid = launch(failing_job(), key=key, store=store, controller="here", activate_all=True).uid
    while True:
        holder = Supervisor(store=store, runtime=runtime, run_uid=uid, owner=new_owner())
        try:
            await holder.run()
        except Killed:
            continue
        return Outcome(entry=store.ledger(uid).job, kills=runtime.kills, ports=runtime.ports)
