"""One attempt of one instance, ready for a runtime: every template rendered, nothing left to ask.

The pieces come from `frameworks.render`; here they become an InstanceSpec. No decisions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow_training.control.model import JobEntry
from airflow_training.control.recovery import order, root, run_address, save_grace
from airflow_training.frameworks.naming import instance_name, service_host
from airflow_training.frameworks.pods import container_env, training_container
from airflow_training.frameworks.ranks import chief_role
from airflow_training.frameworks.render import InstancePlace, Rendering
from airflow_training.runtimes.port import Address, Addresses, InstanceRef, InstanceSpec
from airflow_training.spec.resolved import ResolvedJob, RunRef

__all__ = [
    "CHECKPOINT",
    "checkpoint_address",
    "expected_addresses",
    "followed_root",
    "initial_model",
    "render_instance",
]

CHECKPOINT = "TRAINING_CHECKPOINT"
"""Variable that tells an attempt where its checkpoints are, and from which one it goes on."""


def render_instance(
    job: ResolvedJob,
    run: RunRef,
    addresses: Addresses,
    *,
    role: str,
    index: int,
    epoch: int = 0,
    job_attempt: int = 0,
    attempt: int = 0,
    held: bool = False,
    replicas: Mapping[str, int] | None = None,
    live: Mapping[str, Sequence[str]] | None = None,
    deadline_seconds: float | None = None,
    prefix: str = "",
    run_id: str = "",
    state: JobEntry | None = None,
) -> InstanceSpec:
    """Return what the runtime needs to start one attempt of one instance.

    `addresses` are those that `Runtime.prepare` fixed. `replicas` are the sizes of the roles now,
    the document's for a role that is not named. `live` (role -> addresses) is for files that an
    instance which is not held writes at once. `deadline_seconds` goes before the job's own,
    `prefix` before the run's (`explain` leaves the hash out), `run_id` before the one among the
    job's variables. `state` is the ledger's, which says where training goes on from.

    Raises InputError for a template that cannot be rendered.
    """
    made = job.role(role)
    sizes = {each.name: (replicas or {}).get(each.name, each.replicas) for each in job.roles}
    # what is to join a role that goes on with fewer is beyond its size
    sizes[role] = max(sizes[role], index + 1)
    rendering = Rendering(
        job=job,
        place=InstancePlace(role=role, index=index, job_attempt=job_attempt, attempt=attempt),
        run_id=run_id or _run_id(job, run),
        prefix=prefix or run.prefix,
        addresses=addresses,
        replicas=sizes,
        live=live or {},
    )
    container = training_container(made.template, None, name=made.container)
    where = f"spec.roles.{role}"
    command = [
        rendering.user(part, where=f"{where}.command") for part in _list(container, "command")
    ]
    args = [rendering.user(part, where=f"{where}.args") for part in _list(container, "args")]
    env = rendering.environment()
    users = [
        {**entry, "value": rendering.user(entry["value"], where=f"{where}.env")}
        if isinstance(entry.get("value"), str)
        else dict(entry)
        for entry in container_env(container)
    ]
    env |= {entry["name"]: entry["value"] for entry in users if "value" in entry}
    grace_seconds, stall = job.grace_of(role), None
    if job.checkpoint is not None:
        state = state or JobEntry()
        grace_seconds = save_grace(job, state, role)
        told = order(
            job,
            state,
            root=_checkpoint_root(job, rendering, run, state.recovery.lineage),
            role=role,
            job_attempt=job_attempt,
            attempt=attempt,
            command=[*command, *args],
            image=str(container.get("image") or ""),
            env={entry["name"]: entry["value"] for entry in users if "value" in entry},
        )
        env[CHECKPOINT] = json.dumps(told, sort_keys=True)
        env.setdefault(
            "PYTHONFAULTHANDLER", "1"
        )  # what hangs can say where, with nothing installed
        stall = dict(job.checkpoint.get("progress") or {})
    written = rendering.files()
    # without a hold there is no later moment: what is live now is what the file says
    files = written.files if held else {**written.files, **written.live}
    own = addresses[role][index]
    resources = container.get("resources") or {}
    uploads = bool(job.output_uri) and role == job.output_role and index == 0
    return InstanceSpec(
        ref=InstanceRef(
            run=run, role=role, index=index, epoch=epoch, job_attempt=job_attempt, attempt=attempt
        ),
        name=instance_name(prefix or run.prefix, role, index),
        container=made.container,
        image=str(container.get("image") or ""),
        command=command,
        args=args,
        env=env,
        files=files,
        executables=written.executables,
        live_files=written.live if held else {},
        working_dir=_working_dir(job, container),
        ports=dict(own.ports),
        resources={
            **{name: str(value) for name, value in (resources.get("requests") or {}).items()},
            **{name: str(value) for name, value in (resources.get("limits") or {}).items()},
        },
        pod=_pod(made.template, made.container, command, args, env, users, own.ports)
        if job.runtime == "kubernetes"
        else made.template,  # of which the local runtime reads the readiness probe
        held=held,
        deadline_seconds=(
            job.active_deadline_seconds if deadline_seconds is None else deadline_seconds
        ),
        grace_seconds=grace_seconds,
        stall=stall,
        watch=str((job.checkpoint or {}).get("watch") or ""),
        output_uri=rendering.output_uri() if uploads else "",
    )


def expected_addresses(job: ResolvedJob, prefix: str) -> Addresses:
    """Return where each instance would be reached, without preparing anything.

    On this machine the real ports are taken only when a run is prepared: the numbers here stand
    for them, one of its own for each instance, counted up from what the role declares.
    """
    known: dict[str, Sequence[Address]] = {}
    before = 0
    for role in job.roles:
        if job.runtime == "kubernetes":
            known[role.name] = [
                Address(
                    host=service_host(prefix, job.namespace, role.name, i), ports=dict(role.ports)
                )
                for i in range(role.replicas)
            ]
            continue
        known[role.name] = [
            Address(
                host="127.0.0.1",
                ports={name: port + before + i for name, port in role.ports.items()},
            )
            for i in range(role.replicas)
        ]
        before += role.replicas
    return known


def followed_root(job: ResolvedJob, run: RunRef, *, lineage: int) -> str:
    """Return the root of the checkpoints that the ledger follows: those of rank 0's group.

    Raises InputError for a template in the address that cannot be rendered.
    """
    return _checkpoint_root(job, _chief_rendering(job, run), run, lineage)


def checkpoint_address(job: ResolvedJob, run: RunRef) -> str:
    """Return the address below which all checkpoints of a run lie; raises as `followed_root`."""
    rendering = _chief_rendering(job, run)
    uri = _checkpoint_uri(job, rendering)
    return run_address(uri, run_id=rendering.run_id, run_uid=run.uid)


def initial_model(job: ResolvedJob, run: RunRef) -> str:
    """Return the model that training starts from, "" for none; raises as `followed_root`."""
    model = (job.data or {}).get("initialModel") or ""
    return _chief_rendering(job, run).user(model, where="spec.data.initialModel")


def _chief_rendering(job: ResolvedJob, run: RunRef) -> Rendering:
    return Rendering(
        job=job,
        place=InstancePlace(role=chief_role(job), index=0),
        run_id=_run_id(job, run),
        prefix=run.prefix,
        addresses={},
        replicas={},
    )


def _run_id(job: ResolvedJob, run: RunRef) -> str:
    return str(job.variables.get("run_id") or run.uid)


def _checkpoint_uri(job: ResolvedJob, rendering: Rendering) -> str:
    """Return where the job keeps its checkpoints: here a plain path is relative to the job file."""
    uri = rendering.checkpoint_uri()
    if job.runtime != "kubernetes" and job.base_dir and "://" not in uri:
        return str(Path(job.base_dir) / uri)
    return uri


def _checkpoint_root(job: ResolvedJob, rendering: Rendering, run: RunRef, lineage: int) -> str:
    return root(
        job,
        lineage,
        uri=_checkpoint_uri(job, rendering),
        run_id=rendering.run_id,
        run_uid=run.uid,
        role=rendering.place.role,
        index=rendering.place.index,
    )


def _list(container: Mapping[str, Any], key: str) -> Sequence[str]:
    return [str(part) for part in container.get(key) or ()]


def _working_dir(job: ResolvedJob, container: Mapping[str, Any]) -> str:
    wanted = str(container.get("workingDir") or "")
    if job.runtime != "local" or not job.base_dir:
        return wanted
    return str(Path(job.base_dir) / wanted)


def _pod(
    template: Mapping[str, Any],
    name: str,
    command: Sequence[str],
    args: Sequence[str],
    env: Mapping[str, str],
    users: Sequence[Mapping[str, Any]],
    ports: Mapping[str, int],
) -> dict[str, Any]:
    """Return the whole pod template with the training container rendered into it."""
    spec = dict(template.get("spec") or {})
    theirs = {entry["name"] for entry in users}
    rendered: dict[str, Any] = {
        # ours first: the user's values may refer to them as $(NAME)
        "env": [
            *({"name": key, "value": value} for key, value in env.items() if key not in theirs),
            *users,
        ],
    }
    if command:
        rendered["command"] = list(command)
    if args:
        rendered["args"] = list(args)
    containers = [dict(each) for each in spec.get("containers") or ()]
    own = next((each for each in containers if each.get("name") == name), None)
    if own is None:
        own = {"name": name}
        containers.insert(0, own)
    written = {port.get("name"): port for port in own.get("ports") or ()}
    rendered["ports"] = [
        written.get(key, {"name": key, "containerPort": value}) for key, value in ports.items()
    ]
    own.update(rendered)
    spec["containers"] = containers
    return {**template, "spec": spec}
