"""The network that a run trains, as a document of its own."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from airflow_training.documents.loading import dump_yaml

__all__ = ["forked_network"]


def forked_network(document: Mapping[str, Any], *, name: str = "") -> str:
    """Return the text of a network that travelled with a run, by default under its own name."""
    forked = copy.deepcopy(dict(document))
    if name:
        forked["metadata"] = {**forked.get("metadata", {}), "name": name}
    return dump_yaml(forked)
