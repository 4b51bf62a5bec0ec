"""The cluster that a job is planned for: a document, a file, what the job asks for, or the machines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from airflow_training.errors import InputError, Problem
from airflow_training.planning.cluster import ClusterView
from airflow_training.planning.sources.documents import parse_cluster
from airflow_training.planning.sources.models import read_document
from airflow_training.spec.models import TrainingJob
from airflow_training.spec.problems import did_you_mean
from airflow_training.spec.resolved import ResolvedJob

if TYPE_CHECKING:
    from airflow_training.runtimes.port import Runtime

__all__ = ["cluster_of"]

_AT = ("spec", "plan", "cluster")
_WORDS = ("nodes", "request")


def cluster_of(
    wanted: str | Mapping[str, Any],
    job: TrainingJob,
    resolved: ResolvedJob,
    *,
    runtime: Callable[[ResolvedJob], Runtime],
) -> ClusterView:
    """Return the cluster that `spec.plan.cluster` means; raises InputError, RuntimeUnavailable."""
    if isinstance(wanted, Mapping):
        return parse_cluster(wanted, at=_AT)
    if wanted == "nodes":
        seen = asyncio.run(runtime(resolved).cluster_view())
        return parse_cluster(_document(seen.nodes, job, resolved), at=_AT)
    if wanted == "request":
        return _requested(job, resolved)
    if "." not in wanted and "/" not in wanted:
        raise InputError(
            problems=[
                Problem(
                    code="not_allowed",
                    field="spec.plan.cluster",
                    value=wanted,
                    message="is neither nodes, request nor a file",
                    allowed=[*_WORDS, "a .yaml or .json file", "a cluster document"],
                    hint=did_you_mean(wanted, _WORDS),
                )
            ]
        )
    return parse_cluster(read_document(wanted, base_dir=resolved.base_dir, at=_AT), at=_AT)
