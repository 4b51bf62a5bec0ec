"""GPUs handed out to instances: none to two living instances of the same local directory.

A claim is a file per device that names the attempt it was made for. Nobody has to give it back: it
is void as soon as nothing of that attempt lives, so a crash of anybody leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow_training.agent.files import AttemptFolder, read_json, write_json
from airflow_training.runtimes.clock import steady_now
from airflow_training.runtimes.folders.attempt_state import AgentLiveness
from airflow_training.runtimes.folders.paths import is_locked, locked
from airflow_training.runtimes.local.liveness import read_attempt_state
from airflow_training.runtimes.local.node import visible_gpus
from airflow_training.runtimes.local.recovery import settle_attempt

__all__ = ["GpuBook"]

_START_SECONDS = 60.0
"""How long after a claim agents may still come, though their creator was killed."""


class GpuBook:
    """The claims below one local directory."""

    def __init__(self, local_dir: Path) -> None:
        self._folder = local_dir / ".gpus"

    def free(self) -> int:
        """Return how many of the devices we may use are nobody's."""
        return sum(not _holds(self._claim(device)) for device in visible_gpus())

    def claim(self, folder: AttemptFolder, *, uid: str, count: int) -> Sequence[str] | None:
        """Return `count` devices for an attempt; None, and no claim, where fewer are free.

        The caller holds the instance's create lock and has seen that nothing of it lives, so what
        an earlier attempt had is the attempt's to take, and is taken first.
        """
        if not count:
            return ()
        devices = visible_gpus()
        with locked(self._folder / "lock"):
            ours, free = [], []
            for device in devices:
                claim = self._claim(device)
                if claim is not None and Path(claim["folder"]).parent == folder.instance:
                    ours.append(device)
                elif not _holds(claim):
                    free.append(device)
            chosen = (ours + free)[:count]
            if len(chosen) < count:
                return None
            for device in chosen:
                claim = {"folder": str(folder.path), "uid": uid, "at": steady_now()}
                write_json(self._file(device), claim)
        return sorted(chosen, key=devices.index)

    def release(self, devices: Iterable[str], *, uid: str) -> None:
        """Give back what was claimed for an attempt that nobody will start."""
        for device in devices:
            with locked(self._folder / "lock"):
                if (self._claim(device) or {}).get("uid") == uid:
                    self._file(device).unlink()

    def _file(self, device: str) -> Path:
        return self._folder / f"{device}.json"

    def _claim(self, device: str) -> Mapping[str, Any] | None:
        return read_json(self._file(device))


def _holds(claim: Mapping[str, Any] | None) -> bool:
    """Return whether the attempt of a claim lives or may yet come to life."""
    if claim is None:
        return False
    folder = AttemptFolder(Path(claim["folder"]))
    standing = read_attempt_state(folder)
    if standing is None or standing.uid != claim["uid"] or standing.life is AgentLiveness.MISSING:
        # not ordered yet, or no agent has come yet
        young = 0 <= steady_now() - claim["at"] < _START_SECONDS
        return folder.instance.exists() and (young or is_locked(folder.create_lock))
    return not settle_attempt(folder, standing).over
