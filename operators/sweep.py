"""`SweepOperator`: ends what no other task ends any more, as `airflow-training sweep` does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["SweepOperator"]


class SweepOperator(BaseOperator):
    """Ends abandoned runs and what they left; says of each what it was and where.

    Covers clusters through their Airflow connections, and processes of the worker's own machine.
    Returns how many things were ended; fails where something could not be.

    Put it into a DAG that runs every hour (`dags/sweep.py` is one); the command line has the same
    as `airflow-training sweep`.

    Args:
        idle_seconds: A run that nobody has driven for so many seconds is abandoned.
        only_tell: Only say what would be ended.

    Raises:
        AirflowException: something could not be ended; the log names it.

    >>> from airflow.sdk import DAG
    >>> with DAG("training_sweep", schedule="@hourly"):
    ...     SweepOperator(task_id="sweep", idle_seconds=7200, retries=1)
    <Task(SweepOperator): sweep>
    """

    ui_color = "#eeeeee"

    def __init__(
        self, *, idle_seconds: float = 3600.0, only_tell: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.idle_seconds = idle_seconds
        self.only_tell = only_tell

    def execute(self, context: Context) -> int:  # noqa: ARG002 - Airflow's signature
        """Return how many things were ended; raises AirflowException."""
        import asyncio

        from airflow_training.settings import load_settings
        from airflow_training.supervise.sweep import sweep
        from airflow_training.triggers.access import CONNECTORS, open_store

        found = asyncio.run(
            sweep(
                store=open_store(),
                settings=load_settings(),
                idle_seconds=self.idle_seconds,
                dry_run=self.only_tell,
                connect=CONNECTORS,
            )
        )
        for each in found:
            what = " ".join(filter(None, [each.job, each.run_id or each.uid]))
            done = "ended" if each.done else each.problem or "would be ended"
            self.log.info("%s: %s: %s", what or "cluster", each.why, done)
        failed = sum(1 for each in found if each.problem)
        if failed:
            raise AirflowException(
                f"{failed} of {len(found)} could not be ended; see the lines above"
            )
        return sum(1 for each in found if each.done)
