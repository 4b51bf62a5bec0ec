"""Orders to the agent of an attempt: files that it finds, and a knock so that it looks now."""

from __future__ import annotations

import contextlib
import json
import signal
from typing import TYPE_CHECKING

from airflow_training.agent import proc
from airflow_training.agent.control import connect
from airflow_training.agent.files import AttemptFolder, read_json, write_json
from airflow_training.agent.notify import notify
from airflow_training.runtimes.clock import steady_now
from airflow_training.runtimes.port import ReleaseAnswer

if TYPE_CHECKING:
    from typing_extensions import Unpack  # of `typing` from 3.11 on

    from airflow_training.agent.order import AgentCommand

__all__ = ["give_order", "order_delete", "order_release"]


def _wake_agent(folder: AttemptFolder) -> None:
    """Make the agent look at its folder now; it does so by itself every few seconds."""
    with contextlib.suppress(OSError), connect(folder.socket) as connection:
        connection.send(json.dumps({"op": "look"}).encode())


def give_order(folder: AttemptFolder, uid: str, do: str, **more: Unpack[AgentCommand]) -> None:
    """Leave an order for an instance that stays, where its agent finds it."""
    write_json(folder.order, {"uid": uid, "do": do, **more})
    _wake_agent(folder)


def order_delete(
    folder: AttemptFolder, uid: str, *, grace_seconds: float, dump_stacks: bool = False
) -> None:
    """Order the end of the object `uid`; a shorter grace than before replaces a longer one.

    `dump_stacks`: its agent first leaves in its log where its processes stand.
    """
    old = read_json(folder.delete) or {}
    if old.get("uid") != uid or grace_seconds < old["grace_seconds"]:
        order = {
            "uid": uid,
            "grace_seconds": grace_seconds,
            "ordered_at": steady_now(),
            "dump_stacks": dump_stacks,
        }
        try:
            write_json(folder.delete, order)
        except OSError:  # a full disk keeps nobody from ending what runs: a signal needs no room
            agent = (read_json(folder.state) or {}).get("agent") or {}
            if not agent or agent["pid_ns"] != proc.pid_namespace():
                raise
            proc.kill_exactly(agent["pid"], agent["start_time"], signal.SIGTERM)
    _wake_agent(folder)
    notify(folder.watchers, folder.instance.name)  # an ended object is gone by the order alone


def order_release(folder: AttemptFolder, uid: str, answer: ReleaseAnswer) -> None:
    """Write the answer that a held instance waits for."""
    addresses = {role: list(all_) for role, all_ in answer.addresses.items()}
    write_json(folder.release, {"uid": uid, "kind": answer.kind, "addresses": addresses})
    _wake_agent(folder)
