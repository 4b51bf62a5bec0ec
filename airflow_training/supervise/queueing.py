"""Waiting for a turn: what a run wants of the machine, and whether the queue lets it start."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from airflow_training.control.model import Event, Ledger
from airflow_training.runtimes.port import Runtime
from airflow_training.spec.resolved import ResolvedJob
from airflow_training.state.store import Store
from airflow_training.supervise.watcher import retry_delay

__all__ = ["Turn", "queued", "role_resources", "wanted_resources"]

_LOCAL = "local"


def role_resources(job: ResolvedJob) -> Mapping[str, Mapping[str, str]]:
    """Return role -> what one instance asks for: limits where given, else requests."""
    return {role.name: dict(resources_of(role)) for role in job.roles}
