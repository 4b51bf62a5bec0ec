"""When whoever drives a run can do no more: its store is gone, or a stop is not answered; and what is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from airflow_training.control.model import InstanceEntry, Request
from airflow_training.control.observations import Observation
from airflow_training.control.transitions import ENDED
from airflow_training.errors import RuntimeUnavailable, StopUnconfirmed
from airflow_training.state.store import Store

__all__ = ["unconfirmed_stop", "until_store_is_gone"]

_SILENT_SECONDS = 5.0
"""How long a runtime must be silent, after a stop was asked, before what it cannot end is left to it."""
_POLL_SECONDS = 0.5
_RECORD_SECONDS = 1.0
"""How long the store may take."""
_GONE_SECONDS = 10.0
"""How long the file of the store must be away before it is taken for lost: a mount may come back."""
_GONE_POLL_SECONDS = 1.0
_OUTAGE_POLL_SECONDS = 5.0
"""How often it is asked whether the store is away at all."""


async def until_store_is_gone(store: Store, *, seen: Callable[[], Iterable[Observation]]) -> None:
    """Return once the store's file has been gone for a while and nothing trains or may yet, as far as is `seen`."""
    away = 0.0
    while away < _GONE_SECONDS or any(each.state not in ENDED or each.lingers for each in seen()):
        lasts = store.outage.lasts
        await asyncio.sleep(_GONE_POLL_SECONDS if lasts else _OUTAGE_POLL_SECONDS)
        gone = lasts and await asyncio.to_thread(store.is_gone)
        away = away + _GONE_POLL_SECONDS if gone else 0.0


async def unconfirmed_stop(
    stop: Callable[[], Request | None],
    *,
    store: Store,
    uid: str,
    is_unanswered: Callable[[], bool],
    known: Callable[[], Iterable[Observation | InstanceEntry]],
) -> StopUnconfirmed:
    """Return, once the runtime is silent, a stop that is recorded for whoever drives the run next.

    `stop`: what is still to be recorded of it. `known`: the instances that are known of.
    """
    silent = 0.0
    while silent < _SILENT_SECONDS:
        await asyncio.sleep(_POLL_SECONDS)
        silent = silent + _POLL_SECONDS if is_unanswered() else 0.0
    alive = {each.key for each in known() if each.uid and each.state not in ENDED}
    return StopUnconfirmed(
        f"run {uid}: its runtime does not answer, and what lives there may go on",
        instances=[str(key) for key in sorted(alive)],
        recorded=await _record(stop(), store=store, uid=uid),
    )


async def _record(stop: Request | None, *, store: Store, uid: str) -> bool:
    """Ask for a stop in the store, unless it is there; return whether it is."""
    if stop is None:
        return True
    asking = asyncio.to_thread(store.add_request, uid, stop.kind, reason=stop.reason, by=stop.by)
    try:
        await asyncio.wait_for(asking, _RECORD_SECONDS)
    except (RuntimeUnavailable, asyncio.TimeoutError):
        return False
    return True
