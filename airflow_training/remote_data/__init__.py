"""Data on demand: what a training opens is fetched from the machine that shares it, and nothing else.

The sharing machine: `SharedRoots`, `start_server`, `start_mailbox`. A node: `start_fetcher`, `instance_environment`.
What is guaranteed is in docs/data-on-demand.md. Names are loaded when they are used.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "DataManifest": "manifest",
    "SharedRoots": "roots",
    "http_address": "source_address",
    "instance_environment": "starting",
    "mailbox_address": "source_address",
    "share": "roots",
    "start_fetcher": "starting",
    "start_mailbox": "mailbox",
    "start_server": "server",
}

__all__ = [
    "DataManifest",
    "SharedRoots",
    "http_address",
    "instance_environment",
    "mailbox_address",
    "share",
    "start_fetcher",
    "start_mailbox",
    "start_server",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
