"""Which adapter a runtime's name means. Knows no run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from airflow_training.errors import InputError, Problem
from airflow_training.settings import Settings, load_settings

if TYPE_CHECKING:
    from airflow_training.runtimes.port import Runtime

__all__ = ["RUNTIMES", "make_runtime", "open_runtime"]

RUNTIMES = ("local", "memory")


def make_runtime(name: str, settings: Settings, *, simulate: Path | None = None) -> Runtime:
    """Return the adapter called `name`; raises InputError (`not_supported`).

    `simulate`: a fault script; with it the instances are simulated, whatever the name.
    """
    if simulate is not None or name == "memory":
        from airflow_training.runtimes.memory import MemoryRuntime

        return MemoryRuntime.from_file(simulate) if simulate is not None else MemoryRuntime()
    if name == "local":
        from airflow_training.runtimes.local import LocalRuntime

        return LocalRuntime.from_settings(settings)
    problem = Problem(
        code="not_supported",
        field="spec.runtime.name",
        value=name,
        message=f"this version cannot run jobs on {name!r}",
        allowed=["local"],
        hint="--runtime local",
    )
    raise InputError(problems=[problem])


_opened: dict[tuple[str, Settings], Runtime] = {}


def open_runtime(name: str, *, in_airflow: bool = False) -> Runtime:
    """Return this process's adapter called `name`: one for all runs, so that watches are shared.

    `in_airflow`: the local runtime is refused unless `[training] allow_local`. Raises InputError.
    """
    settings = load_settings()
    if in_airflow and name == "local" and not settings.allow_local:
        problem = Problem(
            code="not_allowed",
            field="spec.runtime.name",
            value=name,
            message="the local runtime is off inside Airflow",
            hint="an administrator may set [training] allow_local = True",
        )
        raise InputError(problems=[problem])
    key = (name, settings)
    if key not in _opened:
        _opened[key] = make_runtime(name, settings)
    return _opened[key]
