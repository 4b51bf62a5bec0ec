"""Command line of the agent: `start FOLDER...` makes one detached agent per attempt folder.

Prints one JSON line per folder, `{"folder", "result": started | busy | refused | error, "message"}`,
once that agent holds its lock and can be found, and returns. The agents live on by themselves.
`live FOLDER` is the agent of one folder in this very process, for who starts a process per instance: it
prints the same line, and returns when the instance is over.
`shell FOLDER COMMAND` runs a command beside that of an attempt. `hold` and `run` are for pods: see `pod`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from airflow_training.agent import proc
from airflow_training.agent.files import AttemptFolder, read_json
from airflow_training.agent.instance import LocalAttempt
from airflow_training.agent.order import Order, OrderError
from airflow_training.agent.waiting_agent import record_exit

__all__ = ["main"]

_LOCK_SECONDS = 2.0


def main(arguments: list[str] | None = None) -> int:
    """Run one sub-command; returns the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["start"] and len(given) > 1:
        return _start(given[1:])
    if given[:1] == ["live"] and len(given) == 2:
        _import_what_may_be_needed()
        _be_agent(given[1], os.dup(1))
    if given[:1] == ["remote-shell"]:
        from airflow_training.agent.remote_shell import remote_shell

        return remote_shell(given[1:])
    if given[:1] == ["shell"] and len(given) == 3:
        from airflow_training.agent.remote_shell import shell

        return shell(Path(given[1]), given[2])
    if given[:1] in (["hold"], ["run"]):
        from airflow_training.agent import pod

        return pod.main(given)
    sys.stderr.write(
        "usage: agent start FOLDER... | agent live FOLDER | agent remote-shell [OPTIONS] HOST COMMAND..."
        " | agent shell FOLDER COMMAND"
        " | agent hold ... | agent run ... (both inside a pod)\n"
    )
    return 2


def _import_what_may_be_needed() -> None:
    """Import what agents use late or seldom: the archive that holds it may be deleted meanwhile."""
    import airflow_training.agent.code_setup
    import airflow_training.agent.devices
    import airflow_training.agent.environment
    import airflow_training.agent.environment_setup
    import airflow_training.agent.network_trial
    import airflow_training.agent.plan_use
    import airflow_training.agent.preflight
    import airflow_training.agent.stacks
    import airflow_training.agent.upload  # noqa: F401  # imported here, used later


def _start(folders: list[str]) -> int:
    _import_what_may_be_needed()
    answers: dict[int, str] = {}
    poller = select.poll()
    for folder in folders:
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.setsid()
            # a second fork: the agent's parent is init from the start, nobody has to wait for it
            if os.fork() == 0:
                for other in (read, *answers):
                    os.close(other)
                _be_agent(folder, write)
            os._exit(0)
        os.close(write)
        os.waitpid(pid, 0)
        answers[read] = folder
        poller.register(read, select.POLLIN)
    while answers:
        for read, _ in poller.poll():
            poller.unregister(read)
            with os.fdopen(read, "rb") as pipe:
                answer = pipe.read() or b'{"result": "error", "message": "the agent died"}'
            line = {"folder": answers.pop(read), **json.loads(answer)}
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()
    return 0


def _be_agent(folder: str, answers: int) -> None:
    """Be the agent of one folder; never returns."""

    def answer(result: str, message: str = "") -> None:
        with contextlib.suppress(OSError):  # the creator may be gone by now
            os.write(answers, json.dumps({"result": result, "message": message}).encode())
        with contextlib.suppress(OSError):
            os.close(answers)

    code = 1
    control = Path(folder) / ".agent"
    try:
        os.chdir(control)
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        proc.become_subreaper()
        _live(AttemptFolder(Path(folder)), answer)
        code = 0
    except OrderError as error:
        answer("error", str(error))
    except BaseException as error:  # noqa: BLE001  # the last place where it can be told
        answer("error", repr(error))
        import traceback

        with contextlib.suppress(OSError):
            (control / "agent-error.txt").write_text(traceback.format_exc())
    finally:
        os._exit(code)


def _live(folder: AttemptFolder, answer: Callable[..., None]) -> None:
    lock = os.open(folder.lock, os.O_RDWR | os.O_CREAT, 0o600)
    if not _take(lock):
        answer("busy", "another agent of this instance lives")
        return
    document = read_json(folder.spec)
    if document is None:
        answer("error", "no order in the folder")
        return
    order = Order.of_document(document)
    # under the lock, so that a removal that came first is always seen
    refusal = folder.refusal(order.generation, order.uid)
    if refusal:
        answer("refused", refusal)
        return
    if (read_json(folder.exit) or {}).get("uid") == order.uid:
        answer("busy", "this attempt has ended already")
        return
    _live_through(folder, order, recorded=lambda: answer("started"))


def _live_through(folder: AttemptFolder, order: Order, *, recorded: Callable[[], None]) -> None:
    """Live through an attempt, and through those that begin in its place."""
    following = LocalAttempt(folder, order).run(recorded=recorded)
    while following is not None:
        before, folder = folder, following
        os.chdir(folder.control)
        order = Order.of_document(read_json(folder.spec) or {})
        following = LocalAttempt(folder, order).run(recorded=partial(record_exit, before))


def _take(lock: int) -> bool:
    """Take the lock; wait for an agent that wrote its end but has not left, or for a short look."""
    until = time.monotonic() + _LOCK_SECONDS
    while not _try(lock):
        if time.monotonic() > until:
            return False
        time.sleep(0.005)
    return True


def _try(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
