"""What Airflow knows of the updates of an asset, as a task on a worker sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import Asset

from airflow_training.airflow_compat import InletEventsAccessor

__all__ = ["AssetEvents"]


class AssetEvents:
    """Called with a URI, returns what the events of that asset carry, the newest first."""

    def __init__(self, context: Mapping[str, Any]) -> None:
        """`context`: of the task. Events that started its DAG run come before all others."""
        self._context = context

    def __call__(self, uri: str) -> Sequence[Mapping[str, Any]]:
        normal = Asset(uri).uri
        happened = self._context.get("triggering_asset_events") or {}
        mine = [
            event.extra or {}
            for asset, events in happened.items()
            if getattr(asset, "uri", "") == normal
            for event in events
        ]
        if mine:
            return mine[::-1]
        newest = InletEventsAccessor(asset_uri=normal).ascending(ascending=False).limit(1)
        return [event.extra or {} for event in newest]
