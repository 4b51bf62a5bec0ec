"""An agent whose command has failed waits for a while: the next attempt may begin in its place.

Same process, same lock, same devices; folder, log and records are the next attempt's own. Orders lie
in the folder of the attempt that is over: `restart` names the next one, `leave` says that none comes.
"""

from __future__ import annotations

from airflow_training.agent.files import AttemptFolder, read_json, write_json

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

__all__ = ["has_left", "next_attempt", "order_of", "stays"]

_LEAVES_A_HEALTHY_PLACE = frozenset({"Error", "Hang", "Stopped"})
"""Reasons after which nothing but the process has to be made anew."""


def stays(spec: Mapping[str, Any], end: Mapping[str, Any]) -> bool:
    """Return whether another attempt may begin here; `spec`, `end`: of the one that is over."""
    return spec.get("in_place_seconds", 0) > 0 and end["reason"] in _LEAVES_A_HEALTHY_PLACE


def order_of(folder: AttemptFolder, uid: str) -> Mapping[str, Any]:
    """Return the order for the attempt `uid`; empty where there is none."""
    order = read_json(folder.order) or {}
    return order if order.get("uid") == uid else {}


def next_attempt(folder: AttemptFolder, order: Mapping[str, Any]) -> AttemptFolder | None:
    """Return the attempt that a `restart` order names; None where it may not begin (any more)."""
    following = AttemptFolder(folder.instance / str(order["attempt"]))
    spec = read_json(following.spec)
    if spec is None or spec["uid"] != order["next"] or folder.refusal(int(spec["generation"])):
        return None
    return following


def has_left(folder: AttemptFolder) -> None:
    """Write down that nobody waits in this attempt's place any more."""
    end = read_json(folder.exit)
    if end is not None:
        write_json(folder.exit, {**end, "in_place": False}, durable=True)
