"""A service of this machine: a process that is started first, so that it imports while the client captures."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from typing import Any

from airflow_training.cloud.protocol import problems_from_json
from airflow_training.errors import InputError, RuntimeUnavailable

__all__ = ["LocalService"]

_EXIT_REFUSED = 2
"""Of a service whose settings are wrong: it has said what."""


class LocalService:
    """The service of the target `here`, or of one without a service: a process that ends with this one.

    What it starts goes on.
    """

    def __init__(self, target: str = "") -> None:
        """`target`: a name of `targets`, whose settings say where runs go; empty: this machine."""
        self.key = secrets.token_urlsafe(32)
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "airflow_training.cloud.service.serving",
                *filter(None, [target]),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        self._input.write(f"{self.key}\n")
        self._input.flush()

    def url(self) -> str:
        """Where it serves, once it does; raises RuntimeUnavailable, InputError for settings that are wrong."""
        line = self._process.stdout.readline() if self._process.stdout else ""
        said: dict[str, Any] = {}
        try:
            said = json.loads(line)
            return f"http://127.0.0.1:{said['port']}"
        except (ValueError, KeyError):
            self.close()
            code = self._process.returncode
            if code == _EXIT_REFUSED:
                raise InputError(problems=problems_from_json(said)) from None
            raise RuntimeUnavailable(
                f"the service of this machine has ended with exit code {code}; what it needs:"
                " pip install 'airflow-training[ui]'"
            ) from None

    def close(self) -> None:
        """Let it end; nothing happens where it has."""
        if self._process.returncode is not None:
            return
        self._input.close()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    @property
    def _input(self) -> Any:
        return self._process.stdin
