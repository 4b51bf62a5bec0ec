"""A service of this machine: one that stays from an earlier command, else a process of its own.

It is started first, so that it imports while the client captures.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from typing import Any

from airflow_training.cloud import LOCAL, MODE_VARIABLE
from airflow_training.cloud.refusals import problems_from_json
from airflow_training.cloud.service_record import (
    find_service,
    service_log,
    starting_conditions,
)
from airflow_training.cloud.targets import HERE_NAME, Target
from airflow_training.errors import InputError, RuntimeUnavailable
from airflow_training.settings import load_settings

__all__ = ["LocalService", "start_local"]

_EXIT_REFUSED = 2
"""Of a service whose settings are wrong: it has said what."""


class LocalService:
    """The service of the target `here`, or of one without a service, for one client. What it starts goes on.

    It stays for the next client for `[training] cloud_idle_seconds`; with 0, or where the next one would start it
    under other conditions, it ends with this one.
    """

    def __init__(self, target: str = "") -> None:
        """`target`: a name of `targets`, whose settings say where runs go; empty: this machine.

        A service for a target ends with its client: nobody knows whether its settings are still those.
        """
        self._target = target
        self._begin()

    def _begin(self) -> None:
        """Find one, or start one."""
        idle_seconds = 0 if self._target else load_settings().cloud_idle_seconds
        self._conditions = starting_conditions() if idle_seconds > 0 else ""
        found = find_service(self._conditions) if self._conditions else None
        self._port = found.port if found is not None else 0
        self._process: subprocess.Popen[str] | None = None
        self._stays = False
        if found is not None:
            self.key = found.key
            return
        self.key = os.urandom(32).hex()
        order = {
            "key": self.key,
            "target": self._target,
            "conditions": self._conditions,
            "idle_seconds": idle_seconds,
        }
        self._process = _start(json.dumps(order), conditions=self._conditions)

    def revive(self) -> bool:
        """Start another one where this one was ended, by whoever did that; False: it is there."""
        if self._process is not None:
            is_there = self._process.poll() is None
        else:
            is_there = find_service(self._conditions) is not None
        if not is_there:
            self.close()
            self._begin()
        return not is_there

    def url(self) -> str:
        """Where it serves, once it does; raises RuntimeUnavailable, InputError for settings that are wrong."""
        self._port = self._port or self._started_port()
        return f"http://127.0.0.1:{self._port}"

    def close(self) -> None:
        """Let it end, or stay for the next client; nothing happens where it has ended.

        One whose port nobody has asked for yet is not waited for: it still starts, and stays as it was told to.
        """
        process = self._process
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        if not self._port and not self._conditions:
            process.terminate()  # it has begun nothing, and nobody will ask it
            process.wait()
        elif self._port and not self._stays:
            process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def _started_port(self) -> int:
        process = self._process
        line = process.stdout.readline() if process is not None and process.stdout else ""
        said: dict[str, Any] = {}
        try:
            said = json.loads(line)
            self._stays = said["stays"]
            return int(said["port"])
        except (ValueError, KeyError):
            code = None
            if process is not None:
                process.communicate()  # ends its input, and waits until it has ended
                code = process.returncode
            if code == _EXIT_REFUSED:
                raise InputError(problems=problems_from_json(said)) from None
            raise RuntimeUnavailable(
                f"the service of this machine has ended with exit code {code}; what it needs:"
                " pip install 'airflow-training[ui]'"
            ) from None


def start_local(target: Target) -> LocalService | None:
    """Start the service of this machine that a target needs which has none of its own; None for one that has."""
    if target.name != HERE_NAME and not target.is_direct:
        return None
    return LocalService(target.name if target.is_direct else "")


def _start(order: str, *, conditions: str) -> subprocess.Popen[str]:
    """Start a service; what it says beside its port goes to a file where it may outlive this terminal."""
    said = None
    with contextlib.suppress(OSError):  # the service says better what is wrong with the folder
        said = service_log(conditions) if conditions else None
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "airflow_training.cloud.service"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            env={
                **os.environ,
                MODE_VARIABLE: LOCAL,
            },  # it opens files for itself, and sends nothing
            start_new_session=True,
            text=True,
        )
    finally:
        if said is not None:
            said.close()
    if process.stdin is not None:
        process.stdin.write(f"{order}\n")
        process.stdin.flush()
    return process
