"""From a resolved job to a run in the store: what `run` and the `plan` task share. Starts nothing."""

from __future__ import annotations

import time
from collections.abc import Sequence

from airflow_training.admission.queueing import check_fits
from airflow_training.control.first_ledger import new_ledger
from airflow_training.control.model import Event
from airflow_training.control.reasons import CHECKPOINT_REJECTED
from airflow_training.documents.resolved import ResolvedJob, RunKey, RunRef
from airflow_training.errors import InputError, Problem
from airflow_training.runtimes.port import Runtime, SupportsStartWarnings
from airflow_training.runtimes.registry import adapter_of
from airflow_training.runtimes.rendering import expected_addresses, render_instance
from airflow_training.settings import Settings
from airflow_training.state.store import RunRecord, Store

__all__ = [
    "check_runtime",
    "check_size",
    "controller_id",
    "describe_start",
    "launch",
    "record_start",
]


def controller_id(store: Store, settings: Settings) -> str:
    """Return the id that everything this deployment creates carries."""
    return settings.deployment_id or store.deployment.id()


async def check_runtime(
    resolved: ResolvedJob,
    *,
    key: RunKey,
    controller: str,
    runtime: Runtime,
    there: RunRecord | None = None,
) -> Sequence[Problem]:
    """Ask the runtime what it lacks for the job, before anything is stored or created; return warnings.

    `there`: the run, where the store knows it. Raises InputError with everything that is missing, RuntimeUnavailable.
    """
    run = RunRef(
        uid=key.uid,
        job=resolved.name,
        namespace=resolved.namespace,
        controller=controller,
        submitted_at=None if there is None else there.submitted_at,
    )
    addresses = expected_addresses(resolved, run.prefix)
    firsts = [
        render_instance(resolved, run, addresses, role=role.name, index=0)
        for role in resolved.roles
        if role.replicas
    ]
    problems = await runtime.check(run, resolved, firsts)
    warnings: Sequence[Problem] = ()
    if not problems and isinstance(runtime, SupportsStartWarnings):
        warnings = await runtime.warnings(run, resolved, firsts)
    if resolved.scheduling.never_fits == "Fail":
        problems = [*problems, *(each for each in warnings if each.code == "never_fits")]
    if problems:
        raise InputError(problems=problems)
    return warnings


def check_size(resolved: ResolvedJob) -> None:
    """Raise InputError (`not_supported`) for a job that is larger than the machine which all jobs of its runtime share."""
    machine = adapter_of(resolved.runtime).machine()
    if machine is not None:
        check_fits(resolved, machine)


def launch(
    resolved: ResolvedJob,
    *,
    key: RunKey,
    store: Store,
    controller: str,
    activate_all: bool,
    submitted_by: str = "",
) -> RunRecord:
    """Store the run and put it into the queue; a Supervisor takes it from there.

    The same key with the same document gives back the run that is there. `activate_all`: no role
    task will ask for activation (the command line). Raises InputError: `not_supported` for a
    job that is larger than the machine which all jobs share, `conflict` for a run id that another document used.
    """
    there = store.run(key.uid) is not None
    if not there:  # else it has the size of its plan, which may be smaller than the document's
        check_size(resolved)
    ledger = new_ledger(resolved, now=time.time(), activate_all=activate_all)
    record = store.create_run(
        key, resolved, ledger, controller=controller, queue=True, submitted_by=submitted_by
    )
    if not there:
        record_start(store, key.uid, resolved)
    return record


def describe_start(job: ResolvedJob) -> str:
    """A sentence about how an admitted job begins (queued, resumed ...); empty where nothing is unusual."""
    checkpoint = job.checkpoint
    if checkpoint is None:
        return ""
    if initial := checkpoint.initial:
        return f"step {initial.step} in {initial.uri}"
    own = checkpoint.initial_of_each
    return ", ".join(f"{name}: step {each.step} in {each.uri}" for name, each in own.items())


def record_start(store: Store, uid: str, resolved: ResolvedJob) -> None:
    """Add to the story of a run its plan, and the checkpoint it starts from, where it has them.

    And damaged ones that were passed over for that.
    """
    passed_over = resolved.checkpoint.passed_over if resolved.checkpoint else ()
    store.add_events(
        uid,
        [
            Event(at=store.now(), reason=CHECKPOINT_REJECTED, message=each, level="warning")
            for each in passed_over
        ],
    )
    if message := describe_start(resolved):
        initial = resolved.checkpoint and resolved.checkpoint.initial
        data = {"checkpoint": initial.to_document()} if initial else {}
        event = Event(at=store.now(), reason="StartsFrom", message=message, data=data)
        store.add_events(uid, [event])
    if resolved.plan is not None:
        from airflow_training.planning.answers.text import one_line

        plan = resolved.plan
        event = Event(
            at=store.now(),
            reason="Planned",
            message=one_line(plan.document),
            data={"plan": plan.id},
        )
        store.add_events(uid, [event])
