"""Opens runtimes: hands their adapters what only the store and Airflow know. Knows no run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_training.builtin_runtimes import SIMULATED
from airflow_training.errors import InputError
from airflow_training.runtimes.adapter import RuntimeContext
from airflow_training.runtimes.registry import adapter_of, adapters
from airflow_training.settings import Settings, load_settings

if TYPE_CHECKING:
    from airflow_training.runtimes.clock import Clock
    from airflow_training.runtimes.port import Runtime

__all__ = ["Connectors", "make_runtime", "open_runtime", "place_here"]

Connectors = Mapping[str, Callable[[str], Any]]
"""Type of Airflow's connections -> what makes of one, by its name, what the adapters of that type take."""


def make_runtime(
    name: str,
    settings: Settings,
    *,
    connection: str = "",
    connect: Connectors | None = None,
    simulate: Path | None = None,
    clock: Clock | None = None,
) -> Runtime:
    """Return the runtime called `name`; raises InputError (`not_supported`).

    `connection`: of a cluster, the settings' one by default; `connect`: how those of Airflow are read, by the
    adapter's own way by default. `simulate`: a fault script; with it the instances are simulated,
    whatever the name, and live by `clock`.
    """
    adapter = adapter_of(name if simulate is None else SIMULATED)
    given = RuntimeContext(
        connection=connection,
        connect=(connect or {}).get(adapter.connection_type),
        simulate=simulate,
        clock=clock,
    )
    if settings.callback_url:
        given = _with_callbacks(given)
    return adapter.open(settings, given)


def _with_callbacks(given: RuntimeContext) -> RuntimeContext:
    import dataclasses

    from airflow_training.state.store import open_store
    from airflow_training.supervise.callback_reports import PodReports
    from airflow_training.supervise.callbacks import callback_token

    reports = PodReports(open_store()).of
    return dataclasses.replace(given, callback_token=callback_token, reports=reports)


def place_here(settings: Settings) -> str:
    """Return the place of instances that are bound to the host of this process.

    Empty where Airflow may start none.
    """
    return next(filter(None, (adapter.place(settings) for adapter in adapters())), "")


_opened: dict[tuple[str, str, Settings], Runtime] = {}


def open_runtime(
    name: str,
    *,
    connection: str = "",
    connect: Connectors | None = None,
    in_airflow: bool = False,
) -> Runtime:
    """Return this process's adapter: one for all runs of a connection, so that watches are shared.

    `in_airflow`: what the deployment does not let Airflow open is refused. Raises InputError.
    """
    settings = load_settings()
    if in_airflow:
        refused = adapter_of(name).at(connection).refused_in_airflow(settings)
        if refused is not None:
            raise InputError(problems=[refused])
    key = (name, connection, settings)
    if key not in _opened:
        _opened[key] = make_runtime(name, settings, connection=connection, connect=connect)
    return _opened[key]
