"""A forked child becomes the command of an attempt. Python 3.8 and newer."""

from __future__ import annotations

import json
import os

from airflow_training.agent import proc

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow_training.agent.order import Order

__all__ = ["fork_command"]

_NOT_FOUND, _NOT_EXECUTABLE, _NOT_SET_UP = 127, 126, 125


def fork_command(
    order: Order,
    *,
    environment: Callable[[], Mapping[str, str]],
    steps: Sequence[tuple[str, Callable[[], object]]],
    leave: Callable[[], None],
) -> tuple[int, bytes]:
    """Start the command; return its pid and what kept it from starting: JSON with `code` and `message`, or nothing.

    `environment`: makes that of the command. `steps`: what is done before it, each with words for its failure.
    `leave`: the agent's loop.
    """
    read, write = os.pipe()
    agent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become_command(
            order, environment=environment, steps=steps, leave=leave, agent=agent, failures=write
        )
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        return pid, pipe.read()  # ends when exec closes the other side


def _become_command(
    order: Order,
    *,
    environment: Callable[[], Mapping[str, str]],
    steps: Sequence[tuple[str, Callable[[], object]]],
    leave: Callable[[], None],
    agent: int,
    failures: int,
) -> None:
    """Turn the forked child into the command; never returns. `failures`: where to write what went wrong."""
    command = [*order.container, *order.command]
    code, what = _NOT_SET_UP, "cannot set up the process"
    try:
        leave()
        for each, step in steps:
            what = each
            step()
        if os.getppid() != agent:  # died before the kernel was told
            os._exit(255)
        code, what = _NOT_EXECUTABLE, ""
        os.execvpe(command[0], command, environment())  # noqa: S606  # what we are for
    except BaseException as error:  # noqa: BLE001  # a child must never run on as a second agent
        if isinstance(error, FileNotFoundError):
            code = _NOT_FOUND
        reason = error.strerror if isinstance(error, OSError) else repr(error)
        text = f"{what}: {reason}"
        if not what and isinstance(error, OSError):
            text = proc.cannot_run(command[0], error)
        os.write(failures, json.dumps({"code": code, "message": text}).encode())
    finally:
        os._exit(255)
