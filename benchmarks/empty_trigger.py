"""The least that runs in Airflow's triggerer: a task whose trigger tells when it ran, and ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from airflow.sdk import BaseOperator
from airflow.triggers.base import BaseTrigger, StartTriggerArgs, TaskSuccessEvent, TriggerEvent

__all__ = ["EmptyTrigger", "StartsAtOnce"]


class EmptyTrigger(BaseTrigger):
    """Fires after some seconds; its XCom is the time at which it does."""

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's own is not typed
        self.seconds = seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and its argument."""
        return f"{__name__}.EmptyTrigger", {"seconds": self.seconds}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield the end of the task."""
        await asyncio.sleep(self.seconds)
        yield TaskSuccessEvent(xcoms={"return_value": time.time()})


class StartsAtOnce(BaseOperator):
    """Needs no worker at all."""

    start_from_trigger = True

    def __init__(self, *, seconds: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.start_trigger_args = StartTriggerArgs(
            trigger_cls=f"{__name__}.EmptyTrigger",
            trigger_kwargs={"seconds": seconds},
            next_method="",
            timeout=None,
        )
