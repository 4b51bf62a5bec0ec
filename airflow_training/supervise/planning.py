"""The plan step: what `spec.plan` asks is searched, and becomes replicas, variables and files of a run.

The search is pure and lives in `planning`; here the job, the runtime's machines and the answer meet.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_training.errors import InputError, Problem
from airflow_training.frameworks.pods import container_env, environment_problems, training_container
from airflow_training.planning.advice import nccl_variables
from airflow_training.planning.launchers import (
    batch_variables,
    deepspeed_config,
    megatron_arguments,
    split_variables,
    torchtitan_config,
)
from airflow_training.planning.plan import Answer, Workload
from airflow_training.planning.report import answer_document
from airflow_training.planning.search import objectives
from airflow_training.planning.search import search as search_plan
from airflow_training.planning.search.calibrated import pricing_with
from airflow_training.planning.search.constraints import Constraints
from airflow_training.planning.search.constraints import parse as constraints_of
from airflow_training.planning.search.pricing import Pricing
from airflow_training.planning.sources.calibration import chosen_constants
from airflow_training.planning.sources.clusters import write_cluster
from airflow_training.planning.sources.models import is_reference, read_model
from airflow_training.settings import load_settings
from airflow_training.spec.models import TrainingJob
from airflow_training.spec.plan import Objective, Plan
from airflow_training.spec.resolved import FileTemplate, ResolvedJob, ResolvedRole
from airflow_training.supervise.plan_cluster import Nodes, cluster_of
from airflow_training.supervise.plan_sizes import Sizes, sizes_of

if TYPE_CHECKING:
    from airflow_training.planning.cluster import ClusterView
    from airflow_training.planning.computation import ComputationView
    from airflow_training.runtimes.port import NodeView, Runtime

__all__ = [
    "ALTERNATIVES",
    "Planned",
    "Question",
    "best_plan",
    "mistakes_of",
    "of_the_job",
    "plan_job",
    "question_of",
]

_HERE = ("spec", "plan")
ALTERNATIVES = 5
"""Plans that are kept: the best, and the next ones."""
_FILE = "{{ '/etc/training/plan' if runtime == 'kubernetes' else 'plan' }}"
_SEEN = "{{ '/etc/training' if runtime == 'kubernetes' else instance_dir }}/plan"
"""Folder of a plan's files: as they are written, on this machine below the instance's own folder, and
as instances see it."""
FILES: Mapping[str, str] = {
    "PLAN_FILE": "plan.json",
    "DEEPSPEED_CONFIG": "deepspeed.json",
    "TORCHTITAN_CONFIG": "torchtitan.toml",
}
"""Variable -> file that it names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What the planner is asked for a job."""

    workload: Workload
    cluster: ClusterView
    constraints: Constraints
    objective: objectives.Objective
    pricing: Pricing
    sizes: Sizes
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The planner's answer for a job, and what of it the run gets."""

    document: Mapping[str, Any]
    """What the store keeps and `status` shows."""
    replicas: Mapping[str, int]
    """Of the roles that change."""
    env: Mapping[str, str]
    advice: Mapping[str, str]
    """Variables that yield to the user's own."""
    files: Mapping[str, str]
    roles: tuple[str, ...]
    """Those that train: they get variables and files."""

    def sized(self, job: TrainingJob) -> TrainingJob:
        """Return the job with the replicas of the plan."""
        roles = [
            role.model_copy(update={"replicas": self.replicas.get(role.name, role.replicas)})
            for role in job.spec.roles
        ]
        return job.model_copy(update={"spec": job.spec.model_copy(update={"roles": roles})})

    def refused(self, job: TrainingJob) -> list[Problem]:
        """Return `reserved_env` for each variable of the user that the plan sets."""
        return [
            problem
            for role in job.spec.roles
            if role.name in self.roles
            for problem in environment_problems(job.spec, role, set(self.env), by="by the plan")
        ]

    def equipped(self, resolved: ResolvedJob) -> ResolvedJob:
        """Return the resolved job with the plan, its variables and its files.

        Those of a plan that it has already are taken away.
        """
        old = set(resolved.plan["applied"]["env"]) if resolved.plan else set()
        files = tuple(FileTemplate(path=path, content=text) for path, text in self.files.items())

        def equip(role: ResolvedRole) -> ResolvedRole:
            kept = {name: value for name, value in role.env.items() if name not in old}
            others = (file for file in role.files if not file.path.startswith(f"{_FILE}/"))
            env = {**kept, **self.env, **self._advice_for(role)}
            return replace(role, env=env, files=(*others, *files))

        roles = tuple(equip(role) if role.name in self.roles else role for role in resolved.roles)
        return replace(resolved, roles=roles, plan=self.document)

    def _advice_for(self, role: ResolvedRole) -> dict[str, str]:
        container = training_container(role.template, None, name=role.container)
        theirs = {entry.get("name") for entry in container_env(container)}
        return {name: value for name, value in self.advice.items() if name not in theirs}


def plan_job(
    job: TrainingJob, resolved: ResolvedJob, *, runtime: Callable[[ResolvedJob], Runtime]
) -> Planned:
    """Return the best plan of a job. Blocks for the search, seconds at most.

    `runtime` is asked for its machines where the cluster is `nodes`. Raises InputError: something
    of `spec.plan` cannot be read, contradicts itself, or fits nowhere (then with the smallest
    cluster that would do), RuntimeUnavailable.
    """

    def nodes(asking: ResolvedJob) -> Sequence[NodeView]:
        return asyncio.run(runtime(asking).cluster_view()).nodes

    return best_plan(job.spec.plan, question_of(job, resolved, nodes=nodes))


def best_plan(plan: Plan, question: Question) -> Planned:
    """Return the answer to a question, as `plan_job` does."""
    started = time.perf_counter()
    try:
        answer = search_plan(
            question.workload,
            question.cluster,
            constraints=question.constraints,
            objective=question.objective,
            top_k=ALTERNATIVES,
            pricing=question.pricing,
        )
    except InputError as error:
        raise InputError(problems=[of_the_job(problem) for problem in error.problems]) from None
    answer = replace(answer, seconds=time.perf_counter() - started)
    return _planned(plan, question, answer)


def of_the_job(problem: Problem, *, path: str = "") -> Problem:
    """Return a problem of the search, or of a file beside the job, as one of the job that asked."""
    if path:
        hint = problem.hint
        said = replace(problem, hint="", allowed=())
        return Problem(
            code="bad_reference",
            field="spec.plan",
            message=f"{path}: {said}",
            allowed=problem.allowed,
            hint=hint,
        )
    if problem.field.startswith("spec."):
        return problem
    return replace(problem, field=f"spec.plan.{problem.field}".rstrip("."))


def mistakes_of(job: TrainingJob, resolved: ResolvedJob) -> list[Problem]:
    """Return what is wrong with the texts of a plan. Asks no runtime, and runs no Python of the user."""
    plan = job.spec.plan
    mistakes: list[Problem] = []
    if isinstance(plan.model, Mapping) or not is_reference(plan.model or ""):
        _or_mistakes(mistakes, lambda: _view(plan, resolved))
    if plan.cluster != "nodes":
        _or_mistakes(mistakes, lambda: cluster_of(plan.cluster, resolved, nodes=_nobody))
    _or_mistakes(mistakes, lambda: objectives.parse(_goal(plan), where="spec.plan.objective"))
    given = _snake(plan.constraints)
    given.pop("global_batch", None)
    _or_mistakes(mistakes, lambda: constraints_of(given, where="spec.plan.constraints"))
    _or_mistakes(mistakes, lambda: sizes_of(job, resolved))
    return mistakes


def _nobody(_: ResolvedJob) -> Sequence[NodeView]:
    raise AssertionError("only `nodes` asks a runtime")


def question_of(job: TrainingJob, resolved: ResolvedJob, *, nodes: Nodes) -> Question:
    """Return what a job asks the planner; raises InputError with every mistake, and as `nodes` does."""
    plan = job.spec.plan
    mistakes: list[Problem] = []
    view = _or_mistakes(mistakes, lambda: _view(plan, resolved))
    found = _or_mistakes(mistakes, lambda: cluster_of(plan.cluster, resolved, nodes=nodes))
    sizes = sizes_of(job, resolved)
    objective = _or_mistakes(
        mistakes, lambda: objectives.parse(_goal(plan), where="spec.plan.objective")
    )
    given = _snake(plan.constraints)
    batch = plan.global_batch or given.pop("global_batch", None)
    given.pop("global_batch", None)
    if view is None or found is None or objective is None:
        raise InputError(problems=mistakes)
    cluster = found.view
    bounded = sizes.bound(given, applied=plan.apply, cluster_devices=cluster.devices)
    return Question(
        workload=Workload(
            view=view,
            global_batch=batch,
            precision=plan.precision or _usual_precision(cluster),
            runtime=resolved.framework,
        ),
        cluster=cluster,
        constraints=constraints_of(bounded, where="spec.plan.constraints"),
        objective=objective,
        pricing=pricing_with(chosen_constants(load_settings().planner_constants)),
        sizes=sizes,
        warnings=(*found.warnings, *sizes.warnings),
    )


def _or_mistakes(mistakes: list[Problem], read: Callable[[], Any]) -> Any:
    """Return what `read` returns; None where it refuses, with its problems added to `mistakes`."""
    try:
        return read()
    except InputError as error:
        mistakes += [of_the_job(problem, path=error.path) for problem in error.problems]
        return None


def _view(plan: Plan, resolved: ResolvedJob) -> ComputationView:
    """Return the view of the model that a plan names; raises InputError."""
    model = _snake(plan.model) if isinstance(plan.model, Mapping) else plan.model or ""
    return read_model(model, base_dir=resolved.base_dir, at=(*_HERE, "model"))


def _goal(plan: Plan) -> Any:
    goal = plan.objective
    return goal.model_dump(exclude_none=True) if isinstance(goal, Objective) else goal


def _snake(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping with its keys spelled as in files of the planner: kvHeads is kv_heads."""
    return {
        "".join(f"_{c.lower()}" if c.isupper() else c for c in key): value
        for key, value in document.items()
    }


def _usual_precision(cluster: ClusterView) -> Any:
    """Return bf16 where every device is faster in it, else fp32."""
    peaks = [group.device.peak_flops for group in cluster.groups]
    faster = all(peak.get("bf16", 0.0) > peak.get("fp32", 0.0) for peak in peaks)
    return "bf16" if faster else "fp32"


# --- the answer -------------------------------------------------------------------------------------


def _planned(plan: Plan, question: Question, answer: Answer) -> Planned:
    best = answer.plans[0].strategy
    sizes = question.sizes
    found = answer_document(answer)
    first, *others = found.pop("plans")
    replicas = sizes.replicas(best.devices) if "replicas" in plan.apply else {}
    env: dict[str, str] = {}
    advice: dict[str, str] = {}
    files: dict[str, str] = {}
    document = {
        "cluster": question.cluster.name,
        "model": question.workload.view.name,
        "objective": plan.model_dump(mode="json", by_alias=True)["objective"],
        **first,
        "applied": {"replicas": replicas, "env": [], "role": sizes.role},
        "alternatives": others,
        "rejected": found["rejected"],
        "evaluated": found["evaluated"],
        "seconds": round(found["seconds"], 3),
        "warnings": [*question.warnings, *found["warnings"]],
        "cluster_view": write_cluster(question.cluster),
    }
    if "env" in plan.apply:
        files = {
            f"{_FILE}/{FILES['PLAN_FILE']}": json.dumps(first, indent=1) + "\n",
            f"{_FILE}/{FILES['DEEPSPEED_CONFIG']}": deepspeed_config(best),
            f"{_FILE}/{FILES['TORCHTITAN_CONFIG']}": torchtitan_config(best),
        }
        env |= split_variables(best)
        advice = nccl_variables(answer.plans[0], question.cluster)
        env["MEGATRON_ARGS"] = " ".join(megatron_arguments(best))
        env |= {name: f"{_SEEN}/{file}" for name, file in FILES.items()}
    if "microBatch" in plan.apply:
        env |= batch_variables(best)
    document["applied"]["env"] = sorted({**env, **advice})
    document = {"id": _digest(document), **document}
    return Planned(
        document=document,
        replicas=replicas,
        env=env,
        advice=advice,
        files=files,
        roles=sizes.training_roles,
    )


def _digest(document: Mapping[str, Any]) -> str:
    """Return a short name of a plan, equal for equal plans however long they took to find."""
    kept = {key: value for key, value in document.items() if key != "seconds"}
    text = json.dumps(kept, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
