"""Declarative training jobs for Apache Airflow. Names are loaded on first use: parsing stays cheap."""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    raise AttributeError(name)
