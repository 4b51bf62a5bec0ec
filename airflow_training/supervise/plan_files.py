"""What an instance is told of a plan that was revised while the job runs: at its start, and later in the same file.

The engine's program reads it (`execution.rank_group`); who is which rank says `control.plan_revision`.
"""

from __future__ import annotations

import json
from dataclasses import replace

from airflow_training.admission.plan.file_places import plan_path
from airflow_training.control.model import Ledger
from airflow_training.control.plan_revision import place_in_plan, revision_obstacle
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.runtimes.port import InstanceSpec

__all__ = ["revised_plan", "with_revision"]


def with_revision(spec: InstanceSpec, job: ResolvedJob, ledger: Ledger) -> InstanceSpec:
    """Return an attempt with its rank under the plan's revision of now, and a plan's file that later ones may replace.

    As it is where no revision can be followed; without a rank of its own where the plan was never revised.
    """
    number, path = ledger.job.plan_revision, plan_path(job)
    if path in spec.files and not revision_obstacle(job, job, replaces_files=True):
        spec = replace(spec, replaced=frozenset({path}))
    place = place_in_plan(job, ledger, spec.ref.key)
    host, port = spec.env.get("MASTER_ADDR"), spec.env.get("MASTER_PORT")
    if not number or place is None or path not in spec.files or host is None or port is None:
        return spec
    document = json.loads(spec.files[path])
    document["revision"] = {
        "number": number,
        "rank": place.rank,
        "world": place.world,
        "host": host,
        "port": int(port),
    }
    ranks = {"RANK": str(place.rank), "WORLD_SIZE": str(place.world)}
    text = json.dumps(document, indent=1) + "\n"
    return replace(spec, env={**spec.env, **ranks}, files={**spec.files, path: text})


def revised_plan(spec: InstanceSpec, job: ResolvedJob) -> dict[str, str]:
    """Return path -> content of the plan's file of an attempt as `with_revision` made it."""
    path = plan_path(job)
    return {path: spec.files[path]} if path in spec.files else {}
