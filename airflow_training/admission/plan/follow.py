"""Whether the plan of a job follows its cluster, and why it does not. Pure."""

from __future__ import annotations

from airflow_training.documents.plan import Plan
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.planning.sources.models import is_reference

__all__ = ["adaptive_plan", "replan_obstacle"]


def adaptive_plan(job: ResolvedJob) -> Plan | None:
    """The plan request of a job whose plan follows the cluster; None for a job without one."""
    if job.plan is None:
        return None
    plan = Plan.model_validate(job.document["spec"]["plan"])
    return None if plan.replan == "Never" or replan_obstacle(plan, job) else plan


def replan_obstacle(plan: Plan, job: ResolvedJob) -> str:
    """Return why a plan cannot follow its cluster; empty where it can."""
    if not plan.apply:
        return "nothing of the plan is applied"
    if not isinstance(plan.cluster, str) or plan.cluster == "request":
        return "its cluster is written in the job, and does not change"
    if job.plan is not None and _is_python(plan) and not job.plan.traced:
        return (
            "its model is Python, which was traced by an older version and not kept: start it again"
        )
    if job.scheduling.keeps_size:
        return f"a {job.scheduling.gang} group keeps its size"
    return ""


def _is_python(plan: Plan) -> bool:
    return isinstance(plan.model, str) and is_reference(plan.model)
