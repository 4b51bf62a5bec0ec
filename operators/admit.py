"""From a job source to a run in the store, inside a worker: what `plan` does. No Airflow classes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from airflow_training.admission.check import AdmissionResponse, check_text
from airflow_training.admission.launch import check_runtime, controller_id, launch, record_start
from airflow_training.admission.request import Planner
from airflow_training.admission.run_accounts import give_up_run, reserve_run
from airflow_training.compiler.resume import RESUME_KEY, resume_overrides
from airflow_training.compiler.source import JobSource
from airflow_training.compiler.submission import submission_events
from airflow_training.control.first_ledger import new_ledger
from airflow_training.control.pools import refuse_small_pools
from airflow_training.documents.parsing import TrainingJob
from airflow_training.documents.resolved import ResolvedJob, RunKey
from airflow_training.documents.resolved_blocks import ResolvedPlan
from airflow_training.errors import InputError
from airflow_training.operators.first_pass import first_pass
from airflow_training.operators.waiting import waiting_tasks
from airflow_training.settings import load_settings
from airflow_training.state.store import Store
from airflow_training.triggers.access import open_store, run_key, runtime_of

if TYPE_CHECKING:
    from airflow_training.admission.plan.job_plan import JobPlan

__all__ = ["AdmittedRun", "admit", "keep_refusal", "refuse_stopped", "template_variables"]

Origin = Literal["file", "form"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmittedRun:
    """What `plan` made."""

    uid: str
    job: str
    roles: Sequence[str]
    warnings: Sequence[str]
    begun: bool
    """The first pass was made; else `reconcile` makes it."""
    plan: ResolvedPlan | None = None
    """Of a job that asks for one; the store keeps it with the run."""

    def reference(self) -> dict[str, Any]:
        """The run for XCom: names only, well below 1 KB."""
        named = {"run": self.uid, "job": self.job, "roles": list(self.roles)}
        return named if self.plan is None else {**named, "plan": self.plan.id}


def admit(
    source: JobSource,
    *,
    params: Mapping[str, Any],
    context: Mapping[str, Any],
    dag: Any,
    group_id: str,
    origin: Origin = "file",
) -> AdmittedRun:
    """Check the job with everything known now, store the run, queue it and begin it if it may.

    A run that is there already is left as it is, unless this is a later try of `plan`: then it
    was cleared, and a new resolved job begins that forgets epochs and finished instances.
    Raises InputError, RuntimeUnavailable.
    """
    settings = load_settings()
    store = open_store()
    ti = context["ti"]
    key = run_key(store, ti, group_id=group_id)
    again = ti.try_number > 1
    if not again:  # who clears a task wants it to run
        refuse_stopped(store, key)
    there = store.run(key.uid)
    user = getattr(context.get("dag_run"), "triggering_user_name", None) or ""
    checked = _check(
        source,
        params={name: value for name, value in params.items() if name != RESUME_KEY},
        overrides=resume_overrides(store, getattr(context.get("dag_run"), "conf", None), key),
        variables=template_variables(context),
        uid=key.uid,
        origin=origin,
        user=user,
        # a run that goes on has its plan; one that begins again is planned anew
        planner=_planner_of(source.read().metadata.name if there is None or again else ""),
    )
    resolved = _resolved(checked)
    warnings = list(checked.warnings)
    if resolved.starts_from_elsewhere and (there is None or again):
        from airflow_training.operators.assets import AssetEvents
        from airflow_training.supervise.hot_start import hot_start

        resolved, more = hot_start(resolved, key=key, store=store, extras=AssetEvents(context))
        warnings += more
    roles = [role.name for role in resolved.roles]
    refuse_small_pools(
        waiting_tasks(dag, group_id=group_id, roles=roles), store.airflow.pools(key.source)
    )
    controller = controller_id(store, settings)
    runtime = runtime_of(resolved)
    warnings += asyncio.run(
        check_runtime(resolved, key=key, controller=controller, runtime=runtime, there=there)
    )
    if again and there is not None:
        _start_over(store, key, resolved)
    else:
        reserve_run(store, resolved, uid=key.uid, account=user)
        try:
            launch(
                resolved,
                key=key,
                store=store,
                controller=controller,
                activate_all=False,
                submitted_by=user,
            )
        except InputError:
            give_up_run(store, key.uid)
            raise
        if not again:
            refuse_stopped(store, key)
    for event in submission_events(getattr(context.get("dag_run"), "conf", None), by=user):
        store.add_event_once(key.uid, event)
    return AdmittedRun(
        uid=key.uid,
        job=resolved.name,
        roles=roles,
        warnings=[str(problem) for problem in warnings],
        begun=first_pass(
            key, store=store, runtime=runtime, dag=dag, group_id=group_id, roles=roles
        ),
        plan=store.job(key.uid).plan,
    )


def keep_refusal(context: Mapping[str, Any], why: str) -> None:
    """Let whoever has sent what a DAG run was to train see why it does not: they do not read its tasks' logs.

    Nothing happens for DAG runs of another origin. Raises what the store raises.
    """
    dag_run = context.get("dag_run")
    user = getattr(dag_run, "triggering_user_name", None) or ""
    if not submission_events(getattr(dag_run, "conf", None), by=user):
        return
    store, ti = open_store(), context["ti"]
    source = run_key(store, ti, group_id="").source
    store.airflow.save_refusal(source, dag_id=ti.dag_id, run_id=ti.run_id, why=why)


def refuse_stopped(store: Store, key: RunKey) -> None:
    """Raise InputError where all of the DAG run was stopped; a run that is stored already ends."""
    stop = store.airflow.stop_of(key.source, dag_id=key.dag_id, run_id=key.run_id)
    if stop is None:
        return
    if store.run(key.uid) is not None:
        store.add_request(key.uid, "stop", reason=stop["reason"], by=stop["by"])
    by = f" by {stop['by']}" if stop["by"] else ""
    raise InputError.of(
        code="conflict",
        field="",
        message=f"DAG run {key.run_id} was stopped{by}: {stop['reason']}",
        hint="clear the task to run it all the same",
    )


def _planner_of(name: str) -> Planner:
    """Return what plans the job called `name`, and no other job of its file; "" plans none."""

    def planner(job: TrainingJob, resolved: ResolvedJob) -> JobPlan | None:
        from airflow_training.admission.plan.history import (
            history_of,  # numpy: only where it is needed
        )
        from airflow_training.admission.plan.step import plan_job

        if job.metadata.name != name:
            return None
        return plan_job(job, resolved, runtime=runtime_of, history=history_of(open_store()))

    return planner


def _check(
    source: JobSource,
    *,
    params: Mapping[str, Any],
    overrides: Sequence[str],
    variables: Mapping[str, Any],
    uid: str,
    origin: Origin,
    user: str,
    planner: Planner,
) -> AdmissionResponse:
    """Return the one document that `source` means, after all checks."""
    job = source.read()
    text = source.text or Path(source.path).read_text(encoding="utf-8")
    documents = check_text(
        text,
        path=source.path or "<job>",
        base_dir=source.base_dir,
        params=params,
        overrides=overrides,
        variables=variables,
        run_uid=uid,
        source=origin,
        user=user,
        planner=planner,
    )
    if len(documents) == 1:
        return documents[0]
    # several jobs in a file: the resolved ones carry their names, the broken ones are all named
    for checked in documents:
        if checked.resolved is not None and checked.resolved.name == job.metadata.name:
            return checked
    problems = [problem for checked in documents for problem in checked.problems]
    raise InputError(problems=problems, path=source.path)


def _resolved(checked: AdmissionResponse) -> ResolvedJob:
    if checked.problems or checked.resolved is None:
        raise InputError(problems=checked.problems, path=checked.path)
    return checked.resolved


def _start_over(store: Store, key: RunKey, resolved: ResolvedJob) -> None:
    """Bring what is left of the run to zero, then begin it again with a new document."""
    from airflow_training.operators.ending import settle

    def begin_again(generation: int) -> None:
        # what was asked of the job before, its stop above all, is not asked of this one
        ledger = new_ledger(
            resolved, now=store.now(), activate_all=False, replaces=store.ledger(key.uid)
        )
        store.replace_job(key.uid, resolved, ledger, generation=generation)
        store.requeue(key.uid)
        record_start(store, key.uid, resolved)

    settle(store, key.uid, reason="plan was cleared", then=begin_again)


def template_variables(context: Mapping[str, Any]) -> dict[str, Any]:
    """Template variables of the DAG run; times are ISO 8601 text.

    A run without a logical date (triggered by hand or by an asset) has no data interval either.
    """
    variables: dict[str, Any] = {"run_id": context["run_id"]}
    for name in ("logical_date", "data_interval_start", "data_interval_end"):
        value = context.get(name)
        variables[name] = value.isoformat() if value is not None else None
    events = context.get("triggering_asset_events") or {}
    variables["triggering_assets"] = [
        {"uri": getattr(asset, "uri", str(asset)), "extra": dict(each.extra or {})}
        for asset, happened in events.items()
        for each in happened
    ]
    return variables
