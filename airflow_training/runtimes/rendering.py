"""One attempt of one instance, ready for a runtime: every template rendered, nothing left to ask.

The pieces come from `frameworks.render`; here they become an InstanceSpec. No decisions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from airflow_training.control.attempts import FIRST_ATTEMPT, AttemptId
from airflow_training.control.hardware import RequiredHardware
from airflow_training.control.model import JobEntry
from airflow_training.control.readiness import network_peers, required_hardware
from airflow_training.control.recovery import checkpoint_root, order, run_address, save_grace
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import PREFLIGHT_PORT, ResolvedJob, RunRef
from airflow_training.documents.resolved_blocks import StallRules
from airflow_training.frameworks.naming import instance_name
from airflow_training.frameworks.pods import container_env, requested_amounts, training_container
from airflow_training.frameworks.ranks import chief_role
from airflow_training.frameworks.render import InstancePlace, Rendering
from airflow_training.runtimes.port import Address, Addresses, InstanceRef, InstanceSpec
from airflow_training.runtimes.registry import adapter_of, adapter_of_job
from airflow_training.settings import load_settings

__all__ = [
    "CHECKPOINT",
    "checkpoint_address",
    "expected_addresses",
    "followed_root",
    "initial_model",
    "predictions_address",
    "render_instance",
    "runs_here",
    "sees_our_files",
    "sibling_address",
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
    attempt: AttemptId = FIRST_ATTEMPT,
    held: bool = False,
    replicas: Mapping[str, int] | None = None,
    live: Mapping[str, Sequence[str]] | None = None,
    deadline_seconds: float | None = None,
    prefix: str = "",
    run_id: str = "",
    state: JobEntry | None = None,
) -> InstanceSpec:
    """Render one attempt of one instance for the runtime.

    `addresses` are those that `Runtime.prepare` fixed. `replicas` are the sizes of the roles now,
    the document's for a role that is not named. `live` (role -> addresses) is for files that an
    instance which is not held writes at once. `deadline_seconds` goes before the job's own,
    `prefix` before the run's (`explain` leaves the hash out), `run_id` before the one among the
    job's variables. `state` is the ledger's, which says where training goes on from.

    Raises InputError for a template that cannot be rendered.
    """
    made, adapter = job.role(role), adapter_of(job.runtime)
    sizes = {each.name: (replicas or {}).get(each.name, each.replicas) for each in job.roles}
    # what is to join a role that goes on with fewer is beyond its size
    sizes[role] = max(sizes[role], index + 1)
    rendering = Rendering(
        job=job,
        place=InstancePlace(
            role=role, index=index, job_attempt=attempt.job_attempt, attempt=attempt.attempt
        ),
        run_id=run_id or _run_id(job, run),
        prefix=prefix or run.prefix,
        addresses=addresses,
        replicas=sizes,
        live=live or {},
        runtime=adapter.facts,
        output_dir=adapter.output_dir,
        code_dir=adapter.code_dir,
    )
    container = training_container(made.template, None, name=made.container)
    where = f"spec.roles.{role}"
    command = [
        rendering.user(part, where=f"{where}.command") for part in _list(container, "command")
    ]
    args = [rendering.user(part, where=f"{where}.args") for part in _list(container, "args")]
    env = rendering.environment()
    users = {
        entry["name"]: rendering.user(entry["value"], where=f"{where}.env")
        for entry in container_env(container)
        if isinstance(entry.get("value"), str)
    }
    env |= users
    grace_seconds, stall = job.grace_of(role), None
    if job.checkpoint is not None:
        state = state or JobEntry()
        grace_seconds = save_grace(job, state, role)
        told = order(
            job,
            state,
            root=_checkpoint_root(job, rendering, run, state.recovery.lineage),
            role=role,
            attempt=attempt,
            command=[*command, *args],
            image=str(container.get("image") or ""),
            env=users,
        )
        env[CHECKPOINT] = json.dumps(told, sort_keys=True)
        env.setdefault(
            "PYTHONFAULTHANDLER", "1"
        )  # what hangs can say where, with nothing installed
        stall = job.checkpoint.stall or StallRules()
    written = rendering.files()
    # without a hold there is no later moment: what is live now is what the file says
    files = written.files if held else {**written.files, **written.live}
    own = addresses[role][index]
    resources = requested_amounts(container)
    has_output = role == job.output_role and index == 0
    uploads = bool(job.output_uri) and has_output
    return InstanceSpec(
        ref=InstanceRef(
            run=run,
            key=InstanceKey(role, index),
            attempt_id=replace(attempt, generation=run.generation),
        ),
        name=instance_name(prefix or run.prefix, role, index),
        resolved=made,
        image=str(container.get("image") or ""),
        command=command,
        args=args,
        env=env,
        files=files,
        executables=written.executables,
        live_files=written.live if held else {},
        working_dir=_working_dir(job, container),
        code=job.code,
        environment=job.environment,
        ports=dict(own.ports),
        resources=resources,
        held=held,
        deadline_seconds=(
            job.active_deadline_seconds if deadline_seconds is None else deadline_seconds
        ),
        grace_seconds=grace_seconds,
        readiness=_readiness(job, resources, addresses[role], sizes[role], role, index, attempt),
        stall=stall,
        watch=job.checkpoint.watch if job.checkpoint else "",
        predictions_uri=_predictions_uri(job, rendering, run, f"{role}-{index}"),
        finishes=job.finishes and has_output,
        output_uri=rendering.output_uri() if uploads else "",
        output_continuous=uploads and job.output_continuous,
    )


def _readiness(
    job: ResolvedJob,
    resources: Mapping[str, str],
    team: Sequence[Address],
    size: int,
    role: str,
    index: int,
    attempt: AttemptId,
) -> RequiredHardware | None:
    required = required_hardware(job, resources)
    if required is None or PREFLIGHT_PORT not in team[index].ports:
        return required

    def where(i: int) -> tuple[str, str, int]:
        return f"{role}-{i}", team[i].host, team[i].ports[PREFLIGHT_PORT]

    peers = network_peers(
        job, where, size=min(size, len(team)), index=index, attempt=attempt.attempt
    )
    return replace(required, network=peers)


def expected_addresses(job: ResolvedJob, prefix: str) -> Addresses:
    """Return where each instance would be reached, without preparing anything."""
    return adapter_of(job.runtime).expected_addresses(job, prefix)


def runs_here(job: ResolvedJob) -> bool:
    """Return whether the job's instances are processes of this machine."""
    return adapter_of(job.runtime).capabilities.runs_here


def sees_our_files(job: ResolvedJob) -> bool:
    """Return whether its instances see the files of this machine, wherever they are."""
    capabilities = adapter_of_job(job).capabilities
    return capabilities.runs_here or capabilities.shares_files


def followed_root(job: ResolvedJob, run: RunRef, *, lineage: int) -> str:
    """Return the root of the checkpoints that the ledger follows: those of rank 0's group.

    Raises InputError for a template in the address that cannot be rendered.
    """
    return _checkpoint_root(job, _chief_rendering(job, run), run, lineage)


def checkpoint_address(job: ResolvedJob, run: RunRef) -> str:
    """Return the address below which all checkpoints of a run lie; raises as `followed_root`."""
    rendering = _chief_rendering(job, run)
    uri = _checkpoint_uri(job, rendering, run)
    return run_address(uri, run_id=rendering.run_id, run_uid=run.uid)


def predictions_address(job: ResolvedJob, run: RunRef) -> str:
    """Return where folders of instances lie that hold their predictions; raises as `followed_root`.

    Beside the job's output, else beside its checkpoints; "": where the runtime keeps things itself.
    """
    return _predictions_uri(job, _chief_rendering(job, run), run, "")


def sibling_address(address: str, name: str) -> str:
    """Return where things of one name lie beside a folder; nothing is beside a bucket: there inside."""
    folder = address.rstrip("/")
    scheme, _, path = folder.rpartition("://")
    return f"{folder}/{name}" if scheme and "/" not in path else f"{folder}.{name}"


def initial_model(job: ResolvedJob, run: RunRef) -> str:
    """Return the model that training starts from, "" for none; raises as `followed_root`."""
    model = job.data.initial_model
    return _chief_rendering(job, run).user(model, where="spec.data.initialModel")


def _chief_rendering(job: ResolvedJob, run: RunRef) -> Rendering:
    return Rendering(
        job=job,
        place=InstancePlace(role=chief_role(job), index=0),
        run_id=_run_id(job, run),
        prefix=run.prefix,
        addresses={},
        replicas={},
        runtime=adapter_of(job.runtime).facts,
    )


def _run_id(job: ResolvedJob, run: RunRef) -> str:
    return str(job.variables.get("run_id") or run.uid)


def _predictions_uri(job: ResolvedJob, rendering: Rendering, run: RunRef, name: str) -> str:
    base = _from_job_file(job, rendering.output_uri(), run) or _checkpoint_uri(job, rendering, run)
    if not base:
        return ""
    return f"{sibling_address(base, 'predictions')}/{run.uid}/{name}".rstrip("/")


def _checkpoint_uri(job: ResolvedJob, rendering: Rendering, run: RunRef) -> str:
    return _from_job_file(job, rendering.checkpoint_uri(), run)


def _from_job_file(job: ResolvedJob, uri: str, run: RunRef) -> str:
    """Return an address of the document: here a plain path is relative to the job file.

    Where there is no such file, to a folder of the run: each attempt has a current folder of its own.
    """
    if not uri or "://" in uri or not sees_our_files(job):
        return uri
    base = job.base_dir or (run.uid and adapter_of_job(job).files_of_run(load_settings(), run.uid))
    return str(Path(base) / uri) if base else uri


def _checkpoint_root(job: ResolvedJob, rendering: Rendering, run: RunRef, lineage: int) -> str:
    return checkpoint_root(
        job,
        lineage,
        uri=_checkpoint_uri(job, rendering, run),
        run_id=rendering.run_id,
        run_uid=run.uid,
        role=rendering.place.role,
        index=rendering.place.index,
    )


def _list(container: Mapping[str, Any], key: str) -> Sequence[str]:
    return [str(part) for part in container.get(key) or ()]


def _working_dir(job: ResolvedJob, container: Mapping[str, Any]) -> str:
    wanted = str(container.get("workingDir") or "")
    if job.code is not None:
        return wanted  # the adapter knows where the code is
    return str(Path(job.base_dir) / wanted) if job.base_dir and sees_our_files(job) else wanted
