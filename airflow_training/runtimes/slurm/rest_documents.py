"""What slurmrestd is sent and answers, in its API v0.0.38 and in v0.0.40 and newer. Pure.

v0.0.39 is neither: whoever serves it serves one of the others too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from airflow_training.runtimes.port import NodeView
from airflow_training.runtimes.slurm.allocation_options import AllocationOptions
from airflow_training.runtimes.slurm.cluster import SlurmSubmission
from airflow_training.runtimes.slurm.nodes import node_view
from airflow_training.runtimes.slurm.queue_view import QueuedJob
from airflow_training.runtimes.slurm.requests import (
    AllocationComponent,
    component_tasks,
    minutes_of_deadline,
)

__all__ = ["api_version", "errors_of", "read_nodes", "read_queue", "submission_document"]

_OLD = 38
_TRIED = 42
_FLAGS = ("COMPLETING", "CONFIGURING", "REQUEUE_HOLD", "REQUEUED", "SPECIAL_EXIT")
"""States that `squeue` tells instead of the one that they stand beside."""


def api_version(paths: Iterable[str]) -> int:
    """Return the last part of the API to speak, of the paths that are served; 0: there is none that is understood.

    Of those newer than what was tried the first, as it has changed least.
    """
    served = {int(found[1]) for path in paths if (found := re.match(r"/slurm/v0\.0\.(\d+)/", path))}
    known = [each for each in served if each == _OLD or _OLD + 1 < each <= _TRIED]
    return max(known) if known else min((each for each in served if each > _TRIED), default=0)


def errors_of(document: Mapping[str, Any]) -> str:
    """Return the errors of an answer as one text; "" for none."""
    of_jobs = [each.get("error") or {} for each in document.get("status") or ()]  # to who cancels
    said = []
    for each in [*(document.get("errors") or ()), *of_jobs]:
        words = [str(each.get(key) or "").strip() for key in ("error", "string", "description")]
        said.append(": ".join(dict.fromkeys(filter(None, words))))
    return "; ".join(filter(None, said))


# a job that is submitted ----------------------------------------------------------------------------
def submission_document(
    job: SlurmSubmission, *, version: int, environment: Mapping[str, str]
) -> dict[str, Any]:
    """Return the body of `job/submit`; `environment`: of the job's script."""
    components = [
        _component(job, component, component_tasks(job.request, number), version=version)
        for number, component in enumerate(job.request.components)
    ]
    shared = {
        "name": job.name,
        "comment": job.comment,
        "standard_output": job.output,
        "standard_input": "/dev/null",
        "current_working_directory": "/",
        "requeue": False,
    }
    if job.request.array:
        shared["array"] = f"0-{len(job.request.elements) - 1}"
    if version == _OLD:
        jobs = [
            {**shared, **each, "environment": dict(environment), "open_mode": "append"}
            for each in components
        ]
        script = {"script": job.script}
    else:
        said = [f"{name}={value}" for name, value in environment.items()]
        jobs = [
            {**shared, **each, "environment": said, "open_mode": ["APPEND"]} for each in components
        ]
        jobs[0]["script"] = job.script
        script = {}
    return {**script, **({"job": jobs[0]} if len(jobs) == 1 else {"jobs": jobs})}


def _component(
    job: SlurmSubmission, component: AllocationComponent, tasks: int, *, version: int
) -> dict[str, Any]:
    options, request = job.options, job.request
    named = {
        "partition": options.partition,
        "account": options.account,
        "qos": options.qos,
        "constraints": options.constraint,
        "reservation": options.reservation,
    }
    found: dict[str, Any] = {name: value for name, value in named.items() if value}
    found |= {"tasks": tasks, "cpus_per_task": component.cpus}
    if request.spare_nodes:
        nodes = tasks // request.tasks_per_node
        found["tasks_per_node"] = request.tasks_per_node
        found |= (
            {"nodes": nodes, "no_kill": "set"}
            if version == _OLD
            else {"minimum_nodes": nodes, "maximum_nodes": nodes, "kill_on_node_fail": False}
        )
    minutes = _minutes(job)
    if version == _OLD:
        return found | _old_options(options, component, minutes)
    if request.excluded:
        found["excluded_nodes"] = list(request.excluded)
    return found | _new_options(options, component, minutes)


def _old_options(
    options: AllocationOptions, component: AllocationComponent, minutes: int | None
) -> dict[str, Any]:
    said: dict[str, Any] = {
        "time_limit": minutes,
        "memory_per_cpu": component.memory_mb_per_cpu or None,
        "gres": options.gres or None,
        "gpus_per_task": str(component.gpus) if component.gpus else None,
        "signal": f"TERM@{options.signal_seconds}" if options.signal_seconds else None,
        "exclusive": "exclusive" if options.exclusive else None,
    }
    return {name: value for name, value in said.items() if value is not None}


def _new_options(
    options: AllocationOptions, component: AllocationComponent, minutes: int | None
) -> dict[str, Any]:
    gres = ",".join(f"gres/{each}" for each in options.gres.split(",") if each)
    warned = options.signal_seconds
    said: dict[str, Any] = {
        "time_limit": _number(minutes),
        "memory_per_cpu": _number(component.memory_mb_per_cpu or None),
        "tres_per_node": gres or None,
        "tres_per_task": f"gres/gpu:{component.gpus}" if component.gpus else None,
        "kill_warning_signal": "TERM" if warned else None,
        "kill_warning_delay": _number(warned or None),
        "shared": ["none"] if options.exclusive else None,
    }
    return {name: value for name, value in said.items() if value is not None}


def _number(value: int | None) -> dict[str, Any] | None:
    return None if value is None else {"set": True, "infinite": False, "number": value}


def _minutes(job: SlurmSubmission) -> int | None:
    if job.options.time:
        return _minutes_of(job.options.time)
    return minutes_of_deadline(job.options, job.deadline_seconds)


def _minutes_of(text: str) -> int:
    """Return the minutes of `90`, `90:00`, `12:00:00`, `1-12`, `1-12:00` or `1-12:00:00`."""
    days, dash, rest = text.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    if dash or len(parts) == 3:
        hours, minutes, seconds = (*parts, 0, 0)[:3]
    else:
        hours, (minutes, seconds) = 0, (*parts, 0)[:2]
    return (int(days or 0) * 24 + hours) * 60 + minutes + math.ceil(seconds / 60)


# what the queue has ---------------------------------------------------------------------------------
def read_queue(document: Mapping[str, Any], *, uid: int) -> dict[str, QueuedJob]:
    """Id -> job, of those of a user, as `squeue` names them."""
    return {
        id_: _queued_job(each, id_)
        for each in document["jobs"]
        if _int(each.get("user_id")) == uid
        for id_ in _ids(each)
    }


def _ids(said: Mapping[str, Any]) -> list[str]:
    """Return the id of a job or component; of an array one for each of its elements."""
    leader, array = _int(said.get("het_job_id")), _int(said.get("array_job_id"))
    if leader:
        return [f"{leader}+{_int(said.get('het_job_offset'))}"]
    if not array:
        return [str(said["job_id"])]
    task = said.get("array_task_id")
    if isinstance(task, Mapping):
        task = task["number"] if task.get("set") else None
    waiting = str(said.get("array_task_string") or "")
    return [f"{array}_{each}" for each in ([task] if task is not None else _numbers(waiting))]


def _numbers(text: str) -> list[int]:
    """Return the numbers of `0-2,5%4`; elements that wait are listed so."""
    found: list[int] = []
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text.partition("%")[0]):
        found += range(int(first), int(last or first) + 1)
    return found


def _queued_job(said: Mapping[str, Any], id_: str) -> QueuedJob:
    reason = str(said.get("state_reason") or "")
    state = _state(said["job_state"])
    # v0.0.38 has Slurm queue jobs again whatever it is told; a run goes on without
    if _int(said.get("restart_cnt")):
        state, reason = "NODE_FAIL", "queued again"
    return QueuedJob(
        id=id_,
        name=str(said.get("name") or ""),
        state=state,
        reason="" if reason == "None" else reason,
        starts_at=float(_int(said.get("start_time"))) or None,
        ends_at=float(_int(said.get("end_time"))) or None,
        nodes=str(said.get("nodes") or ""),
    )


def _state(said: Any) -> str:
    states = [said] if isinstance(said, str) else list(said)
    return str(next((each for each in _FLAGS if each in states), states[0]))


def _int(said: Any) -> int:
    """Return a number, of which newer versions also say whether it is set; 0 for none."""
    if isinstance(said, Mapping):
        said = said.get("number") if said.get("set") and not said.get("infinite") else 0
    return int(said or 0)


# nodes ------------------------------------------------------------------------------------------------
def read_nodes(document: Mapping[str, Any], *, partition: str = "") -> list[NodeView]:
    """Nodes that take jobs, in the partition where one is named."""
    found = (node_view(_node(each), partition=partition) for each in document.get("nodes") or ())
    return [each for each in found if each is not None]


def _node(said: Mapping[str, Any]) -> dict[str, str]:
    """Return what `scontrol show node` says of it."""
    states = said["state"]
    listed = [states, *said.get("state_flags", ())] if isinstance(states, str) else states
    features = said.get("active_features") or ""
    return {
        "NodeName": str(said["name"]),
        "State": "+".join(map(str, listed)).upper(),
        "Partitions": ",".join(said.get("partitions") or ()),
        "CPUTot": str(said.get("effective_cpus") or said.get("cpus") or 0),
        "RealMemory": str(said.get("real_memory") or 0),
        "Gres": str(said.get("gres") or ""),
        "GresUsed": str(said.get("gres_used") or ""),
        "ActiveFeatures": features if isinstance(features, str) else ",".join(features),
        "CPUAlloc": str(said.get("alloc_cpus") or 0),
        "AllocMem": str(said.get("alloc_memory") or 0),
    }
