"""Finding what carries our controller id on a cluster although its run is over or unknown."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_training.documents.resolved import RunRef
from airflow_training.documents.times import parse_time
from airflow_training.runtimes.adapter import SweepQuery
from airflow_training.runtimes.kubernetes import names
from airflow_training.runtimes.kubernetes.api import Api
from airflow_training.runtimes.kubernetes.facts import NEVER_REMOVED, RunFacts
from airflow_training.runtimes.kubernetes.kinds import CONFIG_MAPS, PODS
from airflow_training.runtimes.kubernetes.pod_attempts import is_ahead, kept_until
from airflow_training.runtimes.kubernetes.pod_view import PodView

__all__ = ["OrphanObjects", "find_orphans"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanObjects:
    """Objects of a run that no known run accounts for; `Runtime.remove(run)` ends them."""

    run: RunRef
    instances: tuple[str, ...]
    hosts: tuple[str, ...]


async def find_orphans(api: Api, sought: SweepQuery) -> list[OrphanObjects]:
    """Return runs of a deployment in a namespace that have objects there and should have none.

    The ended pods that known runs keep are left alone, and their record while there is such a pod.
    """
    namespace, now = sought.namespace, time.time()
    selector = f"{names.CONTROLLER}={sought.controller},{names.RUN}"
    records, _ = await api.list(CONFIG_MAPS, namespace, selector=selector)
    pods, _ = await api.list(PODS, namespace, selector=f"{selector},{names.ROLE}")
    with_pods = {_run_of(pod).uid for pod in pods}
    runs: dict[str, RunRef] = {}
    of_run: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    spares, _ = await api.list(PODS, namespace, selector=f"{selector},{names.SPARE}")
    for found in (*records, *pods, *spares):
        run = _run_of(found)
        if run.uid in sought.living or _created_at(found) > sought.older_than:
            continue
        if run.uid in sought.known and run.uid in with_pods and _is_settled(found, now=now):
            continue
        if found["metadata"]["labels"].keys() & {names.ROLE, names.SPARE}:
            of_run[run.uid].append(found)
        if run.uid not in runs or run.generation > runs[run.uid].generation:
            runs[run.uid] = run
    return [
        OrphanObjects(
            run=run,
            instances=tuple(pod["metadata"]["name"] for pod in of_run[uid]) or (run.prefix,),
            hosts=tuple(
                dict.fromkeys(
                    (pod.get("spec") or {}).get("nodeName") or "no node" for pod in of_run[uid]
                )
            )
            or (f"namespace {namespace}",),
        )
        for uid, run in runs.items()
    ]


def _is_settled(found: Mapping[str, Any], *, now: float) -> bool:
    """Return whether an object is an ended pod that is kept, or the record that goes with such."""
    if names.KEPT in found["metadata"]["labels"]:
        until = kept_until(
            PodView.of(found)
        )  # of one that stayed for a look inside, nobody has heard since
        return until is None or is_ahead(until, now=now)
    try:
        return RunFacts.from_document(found).removed != NEVER_REMOVED
    except ValueError:  # a pod, or one of the run's other ConfigMaps
        return "data" in found or "binaryData" in found


def _run_of(found: Mapping[str, Any]) -> RunRef:
    metadata = found["metadata"]
    labels = metadata["labels"]
    return RunRef(
        uid=labels[names.RUN],
        job=labels.get(names.JOB, ""),
        namespace=metadata["namespace"],
        controller=labels[names.CONTROLLER],
        generation=int((metadata.get("annotations") or {}).get(names.GENERATION, 0)),
    )


def _created_at(found: Mapping[str, Any]) -> float:
    return parse_time(found["metadata"]["creationTimestamp"]).timestamp()
