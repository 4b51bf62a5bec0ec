"""The run whose logs a command reads. Prints nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_training.builtin_runtimes import SIMULATED
from airflow_training.cli.context import open_store, runtime_of
from airflow_training.cli.output import command_line, fail

if TYPE_CHECKING:
    from airflow_training.supervise.instance_logs import RunLogs

__all__ = ["find_logs"]


def find_logs(run: str) -> RunLogs:
    """Return the run that `run` names; raises InputError for none, and for a simulated one."""
    from airflow_training.supervise.instance_logs import RunLogs

    store = open_store()
    record = store.find_run(run)
    if record.runtime == SIMULATED:
        raise fail(
            "RUN",
            "a simulated run prints nothing",
            value=run,
            hint=command_line("events", record.key.run_id),
        )
    return RunLogs(store=store, record=record, runtime=runtime_of(record, store))
