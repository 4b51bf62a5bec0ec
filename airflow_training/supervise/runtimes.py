"""Which adapter a runtime's name and connection mean. Knows no run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from airflow_training.errors import InputError, Problem
from airflow_training.settings import Settings, load_settings

if TYPE_CHECKING:
    from airflow_training.runtimes.kubernetes import KubernetesRuntime
    from airflow_training.runtimes.kubernetes.connection import Connect
    from airflow_training.runtimes.port import Runtime

__all__ = ["make_runtime", "open_runtime"]


def make_runtime(
    name: str,
    settings: Settings,
    *,
    connection: str = "",
    connect: Connect | None = None,
    simulate: Path | None = None,
) -> Runtime:
    """Return the adapter called `name`; raises InputError (`not_supported`).

    `connection`: of a cluster, the settings' one by default; `connect`: how it is made, by
    kubeconfig by default. `simulate`: a fault script; with it the instances are simulated,
    whatever the name.
    """
    if simulate is not None or name == "memory":
        from airflow_training.runtimes.memory import MemoryRuntime

        return MemoryRuntime.from_file(simulate) if simulate is not None else MemoryRuntime()
    if name == "local":
        from airflow_training.runtimes.local import LocalRuntime

        return LocalRuntime.from_settings(settings)
    if name == "kubernetes":
        return _kubernetes(settings, connection=connection, connect=connect)
    problem = Problem(
        code="not_supported",
        field="spec.runtime.name",
        value=name,
        message=f"this version cannot run jobs on {name!r}",
        allowed=["local", "kubernetes"],
        hint="--runtime local",
    )
    raise InputError(problems=[problem])


def _kubernetes(
    settings: Settings, *, connection: str, connect: Connect | None
) -> KubernetesRuntime:
    from airflow_training.runtimes.kubernetes import KubernetesRuntime
    from airflow_training.runtimes.kubernetes.connection import connect_from_here
    from airflow_training.state.store import open_store
    from airflow_training.supervise.callbacks import callback_token
    from airflow_training.supervise.pod_reports import PodReports

    try:
        import kubernetes_asyncio  # noqa: F401 - only whether it is there
    except ImportError:
        problem = Problem(
            code="not_supported",
            field="spec.runtime.name",
            value="kubernetes",
            message="the client of Kubernetes is not installed here",
            hint="pip install 'airflow-training[kubernetes]'",
        )
        raise InputError(problems=[problem]) from None
    return KubernetesRuntime.from_settings(
        settings,
        connect=connect or connect_from_here,
        connection=connection or settings.kubernetes_connection,
        callback_token=callback_token if settings.callback_url else None,
        reports=PodReports(open_store()).of if settings.callback_url else None,
    )


_opened: dict[tuple[str, str, Settings], Runtime] = {}


def open_runtime(
    name: str,
    *,
    connection: str = "",
    connect: Connect | None = None,
    in_airflow: bool = False,
) -> Runtime:
    """Return this process's adapter: one for all runs of a connection, so that watches are shared.

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
    key = (name, connection, settings)
    if key not in _opened:
        _opened[key] = make_runtime(name, settings, connection=connection, connect=connect)
    return _opened[key]
