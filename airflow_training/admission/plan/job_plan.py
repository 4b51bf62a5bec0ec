"""What the run of a job gets of a plan: replicas, variables, files, and a document for the store. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from airflow_training.admission.plan.engine import engine_document
from airflow_training.admission.plan.file_places import (
    FILE_OF_VARIABLE,
    PLAN_FOLDER,
    plan_folder,
)
from airflow_training.admission.plan.sizes import Sizes
from airflow_training.documents.parsing import TrainingJob
from airflow_training.documents.plan import Plan
from airflow_training.documents.resolved import FileTemplate, ResolvedJob, ResolvedRole
from airflow_training.documents.resolved_blocks import PlanCapacity, ResolvedPlan
from airflow_training.errors import Problem
from airflow_training.frameworks.pods import container_env, environment_problems, training_container
from airflow_training.planning.answers.advice import nccl_variables
from airflow_training.planning.answers.launchers import (
    MEGATRON_VARIABLES,
    batch_variables,
    deepspeed_config,
    megatron_arguments,
    megatron_variables,
    split_variables,
    torchtitan_config,
)
from airflow_training.planning.answers.report import answer_document
from airflow_training.planning.sources.clusters import write_cluster
from airflow_training.planning.sources.models import is_reference
from airflow_training.planning.view.cluster import ClusterView
from airflow_training.planning.view.computation import ComputationView
from airflow_training.planning.view.plan import Estimate, SearchResult
from airflow_training.planning.view.serial import pack_view
from airflow_training.runtimes.registry import adapter_of

__all__ = ["JobPlan", "make_job_plan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """The planner's answer for a job, and what of it the run gets."""

    plan: ResolvedPlan
    replicas: Mapping[str, int]
    """Of the roles that change."""
    env: Mapping[str, str]
    """Those that name a file hold its name alone."""
    advice: Mapping[str, str]
    """Variables that yield to the user's own."""
    megatron: Mapping[str, str]
    """Such variables that only commands with `MEGATRON_ARGS` get."""
    files: Mapping[str, str]
    """Name -> content."""
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
        """Return the resolved job with the plan, its variables and its files, instead of an older one's."""
        files_dir = adapter_of(resolved.runtime).files_dir
        written = plan_folder(resolved)
        seen = f"{files_dir or '{{ instance_dir }}'}/{PLAN_FOLDER}"
        named = {
            name: f"{seen}/{FILE_OF_VARIABLE[name]}"
            for name in FILE_OF_VARIABLE.keys() & self.env.keys()
        }
        old = MEGATRON_VARIABLES | (resolved.plan.applied_env if resolved.plan else frozenset())
        files = tuple(
            FileTemplate(path=f"{written}/{name}", content=text)
            for name, text in self.files.items()
        )

        def equip(role: ResolvedRole) -> ResolvedRole:
            env = {name: value for name, value in role.env.items() if name not in old}
            others = (file for file in role.files if not file.path.startswith(f"{written}/"))
            return replace(
                role,
                env={**env, **self.env, **named, **self._advice_for(role)},
                files=(*others, *files),
            )

        roles = tuple(equip(role) if role.name in self.roles else role for role in resolved.roles)
        return replace(resolved, roles=roles, plan=self.plan)

    def _advice_for(self, role: ResolvedRole) -> dict[str, str]:
        container = training_container(role.template, None, name=role.container)
        theirs = {entry.get("name") for entry in container_env(container)}
        words = [*container.get("command", ()), *container.get("args", ())]
        told = any("MEGATRON_ARGS" in str(word) for word in words)
        advice = {**self.advice, **(self.megatron if told else {})}
        return {name: value for name, value in advice.items() if name not in theirs}


def make_job_plan(
    answer: SearchResult,
    *,
    plan: Plan,
    model: ComputationView,
    layers: int,
    cluster: ClusterView,
    sizes: Sizes,
    measurements: Mapping[str, Any],
    capacity: PlanCapacity,
    warnings: Sequence[str],
) -> JobPlan:
    """Turn the planner's answer into the plan of the job that asked with `plan`.

    `layers`: of the model, as `stage_layers` counts them.
    """
    best = answer.plans[0]
    replicas = sizes.replicas(best.strategy.devices) if "replicas" in plan.apply else {}
    found = answer_document(answer)
    first, *others = found["plans"]
    first = {**first, **engine_document(plan)}
    env: dict[str, str] = {}
    advice: dict[str, str] = {}
    megatron: dict[str, str] = {}
    files: dict[str, str] = {}
    if "env" in plan.apply:
        env |= _split(best, layers)
        files = _files(best, first, layers)
        megatron = megatron_variables(best.strategy)
        advice = nccl_variables(best, cluster)
    if "microBatch" in plan.apply:
        env |= batch_variables(best.strategy)
    document = {
        "model": model.name,
        "cluster": cluster.name,
        "capacity": capacity,
        "objective": plan.model_dump(mode="json", by_alias=True)["objective"],
        **first,
        "applied": {
            "replicas": replicas,
            "env": sorted({**env, **advice}),
            "role": sizes.role,
        },
        "alternatives": others,
        "rejected": found["rejected"],
        "evaluated": found["evaluated"],
        "seconds": round(found["seconds"], 3),
        "measurements": dict(measurements),
        "warnings": [*warnings, *found["warnings"]],
        "cluster_view": write_cluster(cluster),
    }
    # the loop plans again without calling anybody's Python
    is_python = isinstance(plan.model, str) and is_reference(plan.model)
    traced = {"traced": pack_view(model)} if is_python else {}
    return JobPlan(
        plan=ResolvedPlan.from_document({"id": _digest(document), **document, **traced}),
        replicas=replicas,
        env=env,
        advice=advice,
        megatron=megatron,
        files=files,
        roles=sizes.training_roles,
    )


def _split(best: Estimate, layers: int) -> dict[str, str]:
    return {
        **split_variables(best.strategy),
        "MEGATRON_ARGS": " ".join(megatron_arguments(best.strategy, layers)),
        **FILE_OF_VARIABLE,
    }


def _files(best: Estimate, document: Mapping[str, Any], layers: int) -> dict[str, str]:
    contents = {
        "PLAN_FILE": json.dumps(document, indent=1) + "\n",
        "DEEPSPEED_CONFIG": deepspeed_config(best.strategy),
        "TORCHTITAN_CONFIG": torchtitan_config(best.strategy, layers),
    }
    return {FILE_OF_VARIABLE[name]: text for name, text in contents.items()}


def _digest(document: Mapping[str, Any]) -> str:
    """Return a short name of a plan, equal for equal plans however long they took to find."""
    kept = {key: value for key, value in document.items() if key != "seconds"}
    text = json.dumps(kept, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
