"""`Supervisor`: runs one job to its end on one runtime, fenced by the store's lease."""

from __future__ import annotations

from collections.abc import Callable

from airflow_training.control.model import Event, JobState
from airflow_training.runtimes.port import Runtime
from airflow_training.state.store import Store


class Supervisor:
    """Lease, observe, decide, persist, act, until the job is done and drained."""

    def __init__(
        self,
        *,
        store: Store,
        runtime: Runtime,
        run_uid: str,
        owner: str,
        on_event: Callable[[Event], None] | None = None,
        max_running_jobs: int = 0,
    ) -> None:
        """`owner`: `<host>/<boot id>/<pid>/<start time>/<nonce>`, so a dead holder can be proven."""
        raise NotImplementedError

    async def run(self) -> JobState:
        """Wait in the queue, hold the lease, drive the job; return its terminal state.

        Raises LeaseLost when another holder took over, RuntimeUnavailable never (it retries).
        Cancelling it stops the loop only: the training goes on and can be adopted.
        """
        raise NotImplementedError

    def poke(self) -> None:
        """Look at the store's requests now (an in-process signal; the store is the truth)."""
        raise NotImplementedError
