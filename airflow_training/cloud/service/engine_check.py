"""Asks the engine of a job, before anything is sent, whether it takes it and has room for it."""

from __future__ import annotations

import asyncio

from airflow_training.admission.launch import check_runtime, controller_id
from airflow_training.cloud.service.admission import QuotaRefused
from airflow_training.documents.resolved import ResolvedJob, RunKey
from airflow_training.runtimes.port import SupportsRoom
from airflow_training.settings import load_settings
from airflow_training.state.store import open_store
from airflow_training.supervise.runtimes import make_runtime

__all__ = ["ask_runtime"]


def ask_runtime(job: ResolvedJob, key: RunKey) -> None:
    """Raise InputError with what the engine refuses: rights, objects, quota; RuntimeUnavailable where it is away.

    Blocks. Nothing is created.
    """
    asyncio.run(_ask(job, key))


async def _ask(job: ResolvedJob, key: RunKey) -> None:
    settings, store = load_settings(), open_store()
    runtime = make_runtime(job.runtime, settings, connection=job.connection)
    await check_runtime(
        job,
        key=key,
        controller=controller_id(store, settings),
        runtime=runtime,
        there=store.run(key.uid),
    )
    if isinstance(runtime, SupportsRoom) and (short := await runtime.room_problems(job)):
        raise QuotaRefused(problems=short)
