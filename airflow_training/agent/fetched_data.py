"""Ask who fetches data on demand whether the command got all of it: an exit code of 0 does not say so."""

from __future__ import annotations

import json
import time

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["data_failure"]

_VARIABLE = "TRAINING_DATA_SOCKET"
"""As `interception.protocol` has it, which is not packed with the agent."""
_PATIENCE_SECONDS = 10.0
"""Who was killed is started again meanwhile."""
_PAUSE_SECONDS = 0.2


def data_failure(
    environment: Mapping[str, str], *, patience_seconds: float = _PATIENCE_SECONDS
) -> tuple[str, str] | None:
    """Return reason and message of what was read before it was there, or did not come.

    None where all is well, where the command has no data on demand, and where nobody answers in time: whoever
    fetches looks again at the end of the run.
    """
    address = environment.get(_VARIABLE, "")
    end = time.monotonic() + patience_seconds
    while address:
        left = end - time.monotonic()
        if left <= 0:
            return None
        try:
            answer = _ask(address, seconds=left)
        except (OSError, ValueError):
            time.sleep(min(_PAUSE_SECONDS, left))
            continue
        if answer.get("error"):
            return str(answer["error"]), str(answer.get("message", ""))
        return None
    return None


def _ask(address: str, *, seconds: float) -> Mapping[str, object]:
    import socket  # most commands have no data on demand

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(seconds)
        connection.connect(address)
        connection.sendall(b'{"failure": true}\n')
        with connection.makefile("rb") as lines:
            return dict(json.loads(lines.readline()))
