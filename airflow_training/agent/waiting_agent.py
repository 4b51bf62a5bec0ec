"""An agent whose command has failed waits for a while: the next attempt may begin in its place.

Same process, same lock, same devices; folder, log and records are the next attempt's own. Orders lie
in the folder of the attempt that is over: `restart` names the next one, `leave` says that none comes,
`stay` that people want to look inside.
"""

from __future__ import annotations

from airflow_training.agent.files import AttemptFolder, read_json, write_json
from airflow_training.agent.order import Order, OrderError

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

__all__ = ["next_attempt", "order_of", "record_exit", "record_stay"]


def order_of(folder: AttemptFolder, uid: str) -> Mapping[str, Any]:
    """Return the order for the attempt `uid`; empty where there is none."""
    order = read_json(folder.order) or {}
    return order if order.get("uid") == uid else {}


def next_attempt(folder: AttemptFolder, order: Mapping[str, Any]) -> AttemptFolder | None:
    """Return the attempt that a `restart` order names; None where it may not begin (any more)."""
    following = AttemptFolder(folder.instance / str(order["attempt"]))
    try:
        wanted = Order.of_document(read_json(following.spec) or {})
    except OrderError:  # of a later version: an agent of that version can still be started
        return None
    if wanted.uid != order["next"] or folder.refusal(wanted.generation, wanted.uid):
        return None
    return following


def record_exit(folder: AttemptFolder) -> None:
    """Write down that nobody waits in this attempt's place any more."""
    end = read_json(folder.exit)
    if end is not None:
        write_json(folder.exit, {**end, "in_place": False}, durable=True)


def record_stay(folder: AttemptFolder) -> None:
    """Write down that its agent stays for a look inside; once it is dead, that says nothing any more."""
    end = read_json(folder.exit)
    if end is not None:
        write_json(folder.exit, {**end, "in_place": False, "stays": True}, durable=True)
