"""How a cluster is reached: as a kubeconfig says, or from inside it.

Airflow's own way (a connection id, read by the Kubernetes provider's hook) is handed in by the
rooms that may import Airflow.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from airflow_training.errors import RuntimeUnavailable

if TYPE_CHECKING:
    from kubernetes_asyncio.client import ApiClient, Configuration

__all__ = ["CONNECTIONS", "Connect", "configuration_from_here", "connect_from_here"]

CONNECTIONS = 640
"""At once, of one client; logs have a client of their own, and are fewer (`collecting.STREAMS`)."""

Connect = Callable[[str], "Awaitable[ApiClient]"]
"""Connection name -> a client of the event loop that asks; raises RuntimeUnavailable."""


async def connect_from_here(connection: str) -> ApiClient:
    """Return a client as `configuration_from_here` says."""
    from kubernetes_asyncio.client import ApiClient

    return ApiClient(configuration=await configuration_from_here(connection))


async def configuration_from_here(connection: str) -> Configuration:
    """Return how to reach a context of the kubeconfig; "": the cluster that is at hand.

    That is the current context of `$KUBECONFIG` where that is set, else the cluster of the pod we
    run in, else the kubeconfig of the home folder. Raises RuntimeUnavailable.
    """
    from kubernetes_asyncio import client, config

    configuration = client.Configuration()
    configuration.connection_pool_maxsize = CONNECTIONS
    if not connection and not os.environ.get("KUBECONFIG"):
        try:
            config.load_incluster_config(client_configuration=configuration)
        except config.ConfigException:
            pass  # not in a pod
        else:
            return configuration
    try:
        await config.load_kube_config(
            context=connection or None, client_configuration=configuration
        )
    except (config.ConfigException, OSError) as error:
        what = f"the kubeconfig context {connection!r}" if connection else "a cluster"
        raise RuntimeUnavailable(
            f"cannot connect to {what}: {error}\n"
            "  hint: set KUBECONFIG, or name a context of it in spec.runtime.connection"
        ) from error
    return configuration
