"""Ask who fetches data on demand whether the command got all of it: an exit code of 0 does not say so."""

from __future__ import annotations

import json
import time

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_training.agent.loop import Loop

__all__ = ["ask_data_failure", "data_failure"]

_VARIABLE = "TRAINING_DATA_SOCKET"
"""As `interception.protocol` has it, which is not packed with the agent."""
_PATIENCE_SECONDS = 10.0
"""Who was killed is started again meanwhile."""
_PAUSE_SECONDS = 0.2
_LONGEST = 2000


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


def ask_data_failure(
    loop: Loop, environment: Mapping[str, str], *, then: Callable[[tuple[str, str] | None], None]
) -> None:
    """Have a child ask, so that orders and signals still count meanwhile, and go on with what it was told."""
    if not environment.get(_VARIABLE):
        then(None)
        return
    loop.ask(
        lambda: [each[:_LONGEST] for each in data_failure(environment) or ()],
        then=lambda told: then((told[0], told[1]) if told else None),
    )


def _ask(address: str, *, seconds: float) -> Mapping[str, object]:
    import socket  # most commands have no data on demand

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(seconds)
        connection.connect(address)
        connection.sendall(b'{"failure": true}\n')
        with connection.makefile("rb") as lines:
            return dict(json.loads(lines.readline()))
