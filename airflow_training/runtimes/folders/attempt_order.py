"""What an agent needs to run one attempt: the folders, the order in them, and the names by which others find it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from airflow_training.agent.files import AttemptFolder, read_json, write_json, write_text
from airflow_training.agent.order import Order
from airflow_training.agent.package import agent_program, remote_shell_script
from airflow_training.frameworks.pods import training_container
from airflow_training.runtimes.environment_orders import environment_order
from airflow_training.runtimes.folders.environment import command_line, environment, memory_bytes
from airflow_training.runtimes.folders.paths import RunFolder
from airflow_training.runtimes.port import InstanceSpec

__all__ = ["make_order", "write_order"]


def make_order(
    run: RunFolder,
    folder: AttemptFolder,
    spec: InstanceSpec,
    *,
    uid: str,
    host: str,
    cache: Path,
    python: str,
    inherit: Sequence[str],
    gpus: Sequence[str] = (),
) -> Order:
    """Make the folders of an attempt; return its order. Raises ValueError for what cannot be done.

    `host`: under which others reach it. `cache`: where the agent's program lies. `python`: interpreter of our own
    programs there, not of the training. `inherit`, `gpus`: as `environment` takes them.
    """
    ref = spec.ref
    for path in (*spec.files, *spec.live_files):
        if PurePath(path).is_absolute() or ".." in PurePath(path).parts:
            raise ValueError(
                f"file {path!r}: this runtime writes only inside the instance's folder;"
                " use a relative path"
            )
    container = training_container(spec.resolved.template, None, name=spec.container)
    folder.control.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.output.mkdir(exist_ok=True)
    folder.predictions.mkdir(exist_ok=True)
    folder.log.touch(mode=0o600)
    env = environment(
        spec,
        folder,
        uid=uid,
        remote_shell=remote_shell_script(cache, python=python),
        library=agent_program(cache),
        inherit=inherit,
        gpus=gpus,
    )
    beside = str((read_json(run.about) or {}).get("base_dir") or "")
    port = next(iter(spec.ports.values()), None)
    return Order(
        uid=uid,
        generation=ref.run.generation,
        role=ref.role,
        index=ref.index,
        epoch=ref.epoch,
        job_attempt=ref.job_attempt,
        attempt=ref.attempt,
        address=host if port is None else f"{host}:{port}",
        resources=dict(spec.resources),
        held=spec.held,
        files=_files(spec, spec.files),
        live_files=_files(spec, spec.live_files),
        readiness=None if spec.readiness is None else spec.readiness.to_document(),
        watch=spec.watch,
        ports=dict(spec.ports),
        memory_bytes=memory_bytes(spec),
        command=command_line(spec, env),
        env=env,
        # an absolute second part replaces the first
        working_dir=str(
            (folder.code if spec.code else Path(beside or folder.path)) / spec.working_dir
        ),
        code=None if spec.code is None else spec.code.to_order(),
        code_dir=str(folder.code),
        environment=environment_order(spec, cache, python=python),
        progress_file=str(folder.progress),
        readiness_probe=container.get("readinessProbe"),
        stall=None if spec.stall is None else spec.stall.to_order(),
        predictions_dir=str(folder.predictions),
        predictions_uri=spec.predictions_uri or str(run.predictions / folder.instance.name),
        deadline_seconds=spec.deadline_seconds,
        grace_seconds=spec.grace_seconds,
        output_dir=str(folder.output),
        output_uri=_beside(spec.output_uri, beside or str(run.files)),
        output_continuous=spec.output_continuous,
        in_place_seconds=spec.in_place_seconds,
    )


def write_order(
    run: RunFolder, folder: AttemptFolder, name: str, document: Mapping[str, Any]
) -> None:
    """Write an order where its agent finds it, and the attempt under the names of its instance."""
    write_json(folder.spec, document)
    if name:
        write_text(run.names / name, folder.instance.name)
    link = folder.instance / f".current.{uuid.uuid4().hex}"
    link.symlink_to(folder.path.name)
    link.replace(folder.instance / "current")


def _files(spec: InstanceSpec, files: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    return {
        path: {"content": content, "executable": path in spec.executables}
        for path, content in files.items()
    }


def _beside(uri: str, base: str) -> str:
    """Return an address of the document: a plain path is relative to the job file."""
    return str(Path(base) / uri) if uri and "://" not in uri else uri
