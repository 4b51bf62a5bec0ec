"""From a resolved job to a run in the store: what `run` and the `plan` task share. Starts nothing."""

from __future__ import annotations

import time

from airflow_training.control.decide import new_ledger
from airflow_training.control.model import Event
from airflow_training.errors import InputError
from airflow_training.runtimes.port import ClusterView, Runtime
from airflow_training.settings import Settings
from airflow_training.spec.resolved import ResolvedJob, RunKey, RunRef
from airflow_training.state.store import RunRecord, Store
from airflow_training.supervise.queueing import check_fits

__all__ = ["beginning", "check_runtime", "controller_id", "launch", "tell_beginning"]


def controller_id(store: Store, settings: Settings) -> str:
    """Return the id that everything this deployment creates carries."""
    return settings.deployment_id or store.deployment_id()


async def check_runtime(
    resolved: ResolvedJob, *, key: RunKey, controller: str, runtime: Runtime
) -> None:
    """Ask the runtime what it lacks for the job, before anything is stored or created.

    Raises InputError with everything that is missing, RuntimeUnavailable.
    """
    run = RunRef(
        uid=key.uid, job=resolved.name, namespace=resolved.namespace, controller=controller
    )
    problems = await runtime.check(run, resolved)
    if problems:
        raise InputError(problems=problems)


def launch(
    resolved: ResolvedJob,
    *,
    key: RunKey,
    store: Store,
    controller: str,
    activate_all: bool,
) -> RunRecord:
    """Store the run and put it into the queue; a Supervisor takes it from there.

    The same key with the same document gives back the run that is there. `activate_all`: no role
    task will ask for activation (the command line). Raises InputError: `not_supported` for a
    local job larger than this machine, `conflict` for a run id that another document used.
    """
    there = store.run(key.uid) is not None
    # a run that is there has the size of its plan, which may be smaller than the document's
    if resolved.runtime == "local" and not there:
        from airflow_training.runtimes.local.node import this_node

        check_fits(resolved, ClusterView(nodes=[this_node()]))
    ledger = new_ledger(resolved, now=time.time(), activate_all=activate_all)
    record = store.create_run(key, resolved, ledger, controller=controller, queue=True)
    if not there:
        tell_beginning(store, key.uid, resolved)
    return record


def beginning(job: ResolvedJob) -> str:
    """Return what a job that was let in begins with, in words; empty where that is nothing."""
    checkpoint = job.checkpoint or {}
    if initial := checkpoint.get("initial"):
        return f"step {initial['step']} in {initial['uri']}"
    if own := checkpoint.get("initialOfEach"):
        return ", ".join(
            f"{name}: step {each['step']} in {each['uri']}" for name, each in own.items()
        )
    return ""


def tell_beginning(store: Store, uid: str, resolved: ResolvedJob) -> None:
    """Add to the story of a run its plan, and the checkpoint it starts from, where it has them."""
    if message := beginning(resolved):
        initial = (resolved.checkpoint or {}).get("initial")
        data = {"checkpoint": initial} if initial else {}
        event = Event(at=store.now(), reason="StartsFrom", message=message, data=data)
        store.add_events(uid, [event])
    if resolved.plan is not None:
        from airflow_training.planning.text import one_line

        plan = resolved.plan
        event = Event(
            at=store.now(), reason="Planned", message=one_line(plan), data={"plan": plan["id"]}
        )
        store.add_events(uid, [event])
