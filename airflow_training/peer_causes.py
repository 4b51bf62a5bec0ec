"""Causes of failure, by id, that an instance has when another one is lost: what diagnosis and decisions both know. Data."""

from __future__ import annotations

__all__ = ["LOST_PEERS", "OVER_PEERS"]

_ALWAYS = frozenset(
    {
        "connection-refused-master",
        "jax-coordinator-timeout",
        "nccl-timeout",
        "peer-connection-lost",
        "rendezvous-timeout",
    }
)
LOST_PEERS = _ALWAYS | {"tensorflow-unavailable", "xgboost-tracker"}
"""What alone in a log says that a program ended over its peers."""
OVER_PEERS = LOST_PEERS | {"nccl-unhandled-system-error"}
"""What a rank says of its connections where another rank tells more: alone NCCL's error may be of its own network."""
