"""Runs the loop of one run inside a triggerer, apart from the trigger that asked for it.

A trigger is cancelled when a task is cleared, marked or moved; whether the loop ends with it is
decided afterwards, so it lives in a task of its own. All fencing is the loop's own (its lease).
"""

from __future__ import annotations

import asyncio
import contextvars
import logging

from airflow_training.control.model import JobState
from airflow_training.errors import InputError, LeaseLost
from airflow_training.settings import load_settings
from airflow_training.state.store import Store
from airflow_training.supervise.loop import Supervisor
from airflow_training.supervise.owners import new_owner
from airflow_training.triggers.access import runtime_of

__all__ = ["Host"]

log = logging.getLogger(__name__)

_kept: set[asyncio.Task[JobState]] = set()
"""Loops that go on without their trigger; asyncio itself holds tasks only weakly."""
_RETRY_SECONDS = 5.0
_MOST_FAILURES = 20
"""In a row; then the task fails and Airflow's own retries take over."""


class Host:
    """The loop of one run in this process."""

    def __init__(self, store: Store, uid: str) -> None:
        self._store = store
        self._uid = uid
        # an empty context: lines of the loop belong to the triggerer's log, not to the log of
        # whichever task started it
        self.task: asyncio.Task[JobState] = contextvars.Context().run(
            asyncio.get_running_loop().create_task, self._run(), name=f"training {uid}"
        )

    def stop(self) -> None:
        """End the loop and give the lease up; the training goes on."""
        if self.task not in _kept:
            self.task.cancel()

    def keep(self) -> None:
        """Let the loop go on without its trigger until the run is at its end."""
        _kept.add(self.task)
        self.task.add_done_callback(_kept.discard)

    async def _drive(self) -> JobState:
        job = await asyncio.to_thread(self._store.job, self._uid)
        settings = load_settings()
        supervisor = Supervisor(
            store=self._store,
            runtime=runtime_of(job),
            run_uid=self._uid,
            owner=new_owner(),
            max_running_jobs=settings.max_running_jobs,
            read_logs=settings.read_logs,
        )
        return await supervisor.run()

    async def _run(self) -> JobState:
        failures = 0
        while True:
            try:
                return await self._drive()
            except LeaseLost as lost:
                # another triggerer drives the run now; stand by until it ends or dies
                log.info("lease lost, standing by: %s", lost)
            except (InputError, LookupError):
                raise
            except Exception:
                failures += 1
                if failures >= _MOST_FAILURES:
                    raise
                log.exception("the loop of run %s failed; starting it again", self._uid)
            await asyncio.sleep(_RETRY_SECONDS)
