"""How tasks and triggers reach store and runtime, and which run a task instance belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_training.admission.launch import controller_id
from airflow_training.documents.resolved import ResolvedJob, RunKey
from airflow_training.errors import InputError, RuntimeUnavailable
from airflow_training.runtimes.port import Runtime
from airflow_training.settings import load_settings
from airflow_training.state.store import Store, open_store
from airflow_training.supervise.runtimes import Connectors, open_runtime

if TYPE_CHECKING:
    from kubernetes_asyncio.client import ApiClient

__all__ = ["CONNECTORS", "connect", "open_store", "read_login", "run_key", "runtime_of"]

_DEFAULT_CONNECTION = "kubernetes_default"
_WAYS = ("in_cluster", "kube_config_path", "kube_config", "cluster_context")
"""Extras of a Kubernetes connection that say how a cluster is reached."""


def runtime_of(job: ResolvedJob) -> Runtime:
    """Return this process's adapter for a job; raises InputError where it may not be used."""
    return open_runtime(job.runtime, connection=job.connection, connect=CONNECTORS, in_airflow=True)


async def connect(connection: str) -> ApiClient:
    """Return a client as an Airflow connection says, `kubernetes_default` where none is named.

    A connection that names no cluster means the one at hand, see `configuration_from_here`.
    Raises RuntimeUnavailable, InputError where Airflow's provider is not there.
    """
    try:
        from airflow.providers.cncf.kubernetes.hooks.kubernetes import AsyncKubernetesHook
    except ModuleNotFoundError:
        raise InputError.of(
            code="not_supported",
            field="spec.runtime.name",
            value="kubernetes",
            message="Airflow's provider of Kubernetes, which reads connections, is not installed here",
            hint="pip install apache-airflow-providers-cncf-kubernetes",
        ) from None
    from kubernetes_asyncio import client

    from airflow_training.runtimes.kubernetes.connection import (
        CONNECTIONS,
        configuration_from_here,
    )

    name = connection or _DEFAULT_CONNECTION
    configuration = client.Configuration()
    configuration.connection_pool_maxsize = CONNECTIONS
    hook = AsyncKubernetesHook(conn_id=name, client_configuration=configuration)
    try:
        extras = await hook.get_conn_extras()
        if any(_extra(extras, way) for way in _WAYS):
            async with hook.get_conn():  # reads the configuration; we need a client of our own
                pass
        else:
            configuration = await configuration_from_here("")
        # the provider's hook knows this field, but not where it is asynchronous
        if str(_extra(extras, "disable_verify_ssl")).lower() == "true":
            configuration.verify_ssl = False
        return client.ApiClient(configuration=configuration)
    except RuntimeUnavailable:
        raise
    except Exception as error:  # whatever a secrets backend, a file or a plugin of theirs raises
        raise RuntimeUnavailable(f"cannot connect by the connection {name!r}: {error}") from error


def _extra(extras: Mapping[str, Any], name: str) -> Any:
    """Return a field of a Kubernetes connection, also as older forms have written it."""
    return extras.get(name) or extras.get(f"extra__kubernetes__{name}")


async def read_login(connection: str) -> Mapping[str, Any]:
    """Return host, user, port and extras of an Airflow connection to a login node; raises RuntimeUnavailable."""
    from airflow.sdk import BaseHook

    try:
        found = await BaseHook.aget_connection(connection)
        extra: Mapping[str, Any] = found.extra_dejson
    except Exception as error:  # as above
        raise RuntimeUnavailable(f"cannot read the connection {connection!r}: {error}") from error
    return {
        "host": found.host or "",
        "user": found.login or "",
        "port": found.port,
        "extra": extra,
    }


CONNECTORS: Connectors = {"kubernetes": connect, "ssh": read_login}
"""How each type of Airflow's connections is read."""


def run_key(store: Store, ti: Any, *, group_id: str, map_index: int | None = None) -> RunKey:
    """Return the run that `ti`'s group drives. `map_index`: instead of the task's own.

    Every task of a group computes the same key, so that nothing needs to be handed around.
    Blocks on the store.
    """
    return RunKey(
        source=controller_id(store, load_settings()),
        dag_id=ti.dag_id,
        run_id=ti.run_id,
        group_id=group_id,
        map_index=ti.map_index if map_index is None else map_index,
    )
