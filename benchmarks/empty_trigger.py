"""The least that starts in Airflow's triggerer: a task whose trigger tells when it ran, and ends."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

from airflow.sdk import BaseOperator
from airflow.triggers.base import BaseTrigger, StartTriggerArgs, TaskSuccessEvent, TriggerEvent

__all__ = ["EmptyTrigger", "StartsAtOnce"]


class EmptyTrigger(BaseTrigger):
    """Fires at once; its XCom is the time of its first statement."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and no arguments."""
        return f"{__name__}.EmptyTrigger", {}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield the end of the task."""
        yield TaskSuccessEvent(xcoms={"return_value": time.time()})


class StartsAtOnce(BaseOperator):
    """Needs no worker at all."""

    start_from_trigger = True
    start_trigger_args = StartTriggerArgs(
        trigger_cls=f"{__name__}.EmptyTrigger", trigger_kwargs={}, next_method="", timeout=None
    )
