"""Find runs of ours that still live although nobody should be running them any more."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from airflow_training.agent.files import read_json
from airflow_training.documents.resolved import RunRef
from airflow_training.runtimes.folders.attempt_state import AgentLiveness
from airflow_training.runtimes.folders.paths import RunFolder
from airflow_training.runtimes.local.scan import current

__all__ = ["OrphanProcesses", "find_orphans"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanProcesses:
    """A run with living instances that no known run accounts for; `Runtime.remove(run)` ends it."""

    run: RunRef
    instances: tuple[str, ...]
    """`<role>-<index>`."""
    pids: tuple[int, ...]
    """Of the agents."""
    hosts: tuple[str, ...]


def find_orphans(
    local_dir: Path, *, controller: str, known_uids: Collection[str]
) -> list[OrphanProcesses]:
    """Return the runs of `controller` that live and are not in `known_uids` (the runs not over)."""
    found: list[OrphanProcesses] = []
    if not local_dir.is_dir():
        return found
    for folder in sorted(local_dir.iterdir()):
        about = read_json(folder / "run.json")
        if about is None or about["controller"] != controller or folder.name in known_uids:
            continue
        orphan = _living(RunFolder(local_dir, folder.name), about)
        if orphan is not None:
            found.append(orphan)
    return found


def _living(run: RunFolder, about: dict[str, str]) -> OrphanProcesses | None:
    names, pids, hosts = [], [], set()
    for key in run.instances():
        found = current(run, *key)
        if found is not None and not found[1].over and found[1].life is not AgentLiveness.STAYING:
            names.append(str(key))
            pids.append(int(found[1].agent["pid"]))
            hosts.add(str(found[1].agent["host"]))
    if not names:
        return None
    ref = RunRef(
        uid=run.path.name,
        job=about["job"],
        namespace=about["namespace"],
        controller=about["controller"],
        generation=run.generation,
    )
    return OrphanProcesses(
        run=ref, instances=tuple(names), pids=tuple(pids), hosts=tuple(sorted(hosts))
    )
