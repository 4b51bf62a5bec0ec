"""How a cluster is reached: from inside it, or as a kubeconfig says.

Airflow's own way (a connection id, read by the Kubernetes provider's hook) is handed in by the
rooms that may import Airflow.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from airflow_training.errors import RuntimeUnavailable

if TYPE_CHECKING:
    from kubernetes_asyncio.client import ApiClient

__all__ = ["Connect", "connect_from_here"]

Connect = Callable[[str], "Awaitable[ApiClient]"]
"""Connection name -> a client of the event loop that asks; raises RuntimeUnavailable."""


async def connect_from_here(connection: str) -> ApiClient:
    """Return a client for the pod we run in, else for a context of the kubeconfig.

    `connection` names the context; empty means the current one. Raises RuntimeUnavailable.
    """
    from kubernetes_asyncio import client, config

    if not connection:
        inside = client.Configuration()
        try:
            config.load_incluster_config(client_configuration=inside)  # type: ignore[no-untyped-call]  # theirs
        except config.ConfigException:
            pass  # not in a pod
        else:
            return client.ApiClient(configuration=inside)
    try:
        return await config.new_client_from_config(context=connection or None)
    except (config.ConfigException, OSError) as error:
        what = f"the kubeconfig context {connection!r}" if connection else "a cluster"
        raise RuntimeUnavailable(
            f"cannot connect to {what}: {error}\n"
            "  hint: set KUBECONFIG, or name a context of it in spec.runtime.connection"
        ) from error
