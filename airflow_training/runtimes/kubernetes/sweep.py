"""Finding what carries our controller id on a cluster although its run is over or unknown."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow_training.runtimes.kubernetes import names
from airflow_training.runtimes.kubernetes.api import Api
from airflow_training.runtimes.kubernetes.facts import NEVER_REMOVED, RunFacts
from airflow_training.runtimes.kubernetes.kinds import CONFIG_MAPS, PODS
from airflow_training.spec.resolved import RunRef

__all__ = ["Orphan", "find_orphans"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """Objects of a run that no known run accounts for; `Runtime.remove(run)` ends them."""

    run: RunRef
    instances: tuple[str, ...]
    hosts: tuple[str, ...]


async def find_orphans(
    api: Api,
    namespace: str,
    *,
    controller: str,
    living: Collection[str],
    known: Collection[str],
    older_than: float,
) -> list[Orphan]:
    """Return runs of `controller` in a namespace that have objects there and should have none.

    `living`: uids of runs that are not over; `known`: of all runs: the ended pods that those keep
    are left alone. `older_than`: epoch seconds; what is younger may belong to a run that begins
    now.
    """
    selector = f"{names.CONTROLLER}={controller},{names.RUN}"
    records, _ = await api.list(CONFIG_MAPS, namespace, selector=selector)
    pods, _ = await api.list(PODS, namespace, selector=f"{selector},{names.ROLE}")
    runs: dict[str, RunRef] = {}
    of_run: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for found in (*records, *pods):
        run = _run_of(found)
        if run.uid in living or _created_at(found) > older_than:
            continue
        if run.uid in known and _is_settled(found):
            continue
        if names.ROLE in found["metadata"]["labels"]:
            of_run[run.uid].append(found)
        if run.uid not in runs or run.generation > runs[run.uid].generation:
            runs[run.uid] = run
    return [
        Orphan(
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


def _is_settled(found: Mapping[str, Any]) -> bool:
    """Return whether an object is an ended pod that is kept, or the record that goes with such."""
    if names.KEPT in found["metadata"]["labels"]:
        return True
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
    text = found["metadata"]["creationTimestamp"].replace("Z", "+00:00")
    return datetime.fromisoformat(text).timestamp()
