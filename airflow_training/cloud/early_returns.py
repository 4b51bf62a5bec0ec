"""Brings models back while their run goes on, each as soon as it is whole; the newest wins."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from airflow_training.cloud.client import CloudClient
from airflow_training.cloud.journal import returning_lock
from airflow_training.cloud.locks import take_lock
from airflow_training.cloud.protocol import returns_early
from airflow_training.cloud.returning import ModelReturn
from airflow_training.errors import TrainingError

__all__ = ["returning_early"]

_LOOK_SECONDS = 3.0
_END_SECONDS = 600.0
"""How long a file that is on its way when the run ends may take."""


@contextmanager
def returning_early(
    client: CloudClient, model: ModelReturn, *, told: Callable[[str], None]
) -> Iterator[None]:
    """Bring back what is whole for as long as the block runs, where the run was submitted so.

    One process of this machine does that for a run; the others only follow it. What cannot be brought now is
    tried again; what is then still missing comes when the run has ended.
    """
    if not returns_early(model.run.returns):
        yield
        return
    ends = threading.Event()

    def live() -> None:
        with returning_lock(model.run.run_id).open("a") as file:
            if not take_lock(file):
                return
            said = ""
            while not ends.wait(_LOOK_SECONDS):
                problem = _problem_of_look(client, model, told)
                if problem and problem != said:
                    told(f"no model comes back for now: {problem}")
                said = problem or said

    thread = threading.Thread(target=live, name="early returns", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        with suppress(KeyboardInterrupt):
            thread.join(_END_SECONDS)


def _problem_of_look(client: CloudClient, model: ModelReturn, told: Callable[[str], None]) -> str:
    try:
        model.bring_new(client, told=told)
    except (TrainingError, OSError) as error:
        return str(error)
    return ""
