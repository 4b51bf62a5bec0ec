"""The run's record on the cluster: one ConfigMap, changed only from the state it was read in.

It is the fence: it says which lease generation may create, and whether the run was removed.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

from airflow_training.documents.resolved import RunRef
from airflow_training.errors import InputError, LeaseLost, RuntimeUnavailable
from airflow_training.runtimes.kubernetes import names
from airflow_training.runtimes.kubernetes.api import Api
from airflow_training.runtimes.kubernetes.api_errors import AlreadyExists, Conflict, NotFound
from airflow_training.runtimes.kubernetes.facts import NEVER_REMOVED, RunFacts
from airflow_training.runtimes.kubernetes.kinds import CONFIG_MAPS

__all__ = ["Records", "check_owner", "stale_reason"]

_TRIES = 10
_PAUSE_SECONDS = 0.05


class Records:
    """Reads and writes the records of one cluster."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def read(self, run: RunRef) -> dict[str, Any] | None:
        """Return the run's ConfigMap; None where there is none, or it is being deleted."""
        try:
            record = await self._api.get(CONFIG_MAPS, run.namespace, names.record_name(run))
        except NotFound:
            return None
        return None if record["metadata"].get("deletionTimestamp") else record

    async def own(self, run: RunRef, facts: RunFacts) -> dict[str, Any]:
        """Write the record for the run's generation; raises LeaseLost where it may not.

        Only this makes a record. A holder that was stalled right here may make one for a run that
        was removed meanwhile: it finds out before it creates, and a sweep takes the record away.
        """

        def take(known: RunFacts) -> RunFacts:
            _refuse_stale(known, run)
            return facts

        for _ in range(_TRIES):
            record = await self._change(run, take)
            if record is not None:
                return record
            try:
                return await self._api.create(CONFIG_MAPS, run.namespace, facts.document(run))
            except AlreadyExists:
                await asyncio.sleep(_PAUSE_SECONDS)
        raise _restless(run)

    async def claim(self, run: RunRef) -> dict[str, Any] | None:
        """Return the record, brought to the run's generation; None where there is none.

        Raises LeaseLost where a newer generation has it, or has removed the run.
        """

        def take(known: RunFacts) -> RunFacts:
            _refuse_stale(known, run)
            return dataclasses.replace(known, generation=run.generation)

        return await self._change(run, take)

    async def bury(self, run: RunRef) -> RunFacts | None:
        """Write down that nothing may be created any more; None where there is no record."""
        record = await self._change(run, lambda known: known.bury(run.generation, now=time.time()))
        return None if record is None else RunFacts.from_document(record)

    async def _change(
        self, run: RunRef, change: Callable[[RunFacts], RunFacts]
    ) -> dict[str, Any] | None:
        """Return the record after the change; None where there is none, which stays so."""
        for _ in range(_TRIES):
            record = await self.read(run)
            if record is None:
                return None
            check_owner(record, run)
            known = RunFacts.from_document(record)
            wanted = change(known)
            if wanted == known:
                return record
            document = wanted.document(run)
            document["metadata"]["resourceVersion"] = record["metadata"]["resourceVersion"]
            try:
                return await self._api.replace(CONFIG_MAPS, run.namespace, document)
            except (Conflict, NotFound):
                await asyncio.sleep(_PAUSE_SECONDS)
        raise _restless(run)


def _refuse_stale(known: RunFacts, run: RunRef) -> None:
    why = stale_reason(known, run.generation)
    if why:
        raise LeaseLost(f"run {run.uid}: {why}")


def _restless(run: RunRef) -> RuntimeUnavailable:
    return RuntimeUnavailable(f"run {run.uid}: its record changes all the time")


def stale_reason(facts: RunFacts, generation: int) -> str:
    """Return why a holder of `generation` may not act; empty where it may."""
    if facts.removed != NEVER_REMOVED and facts.removed >= generation:
        return f"it was removed under generation {facts.removed}"
    if facts.generation > generation:
        return f"generation {facts.generation} owns it, not {generation}"
    return ""


def check_owner(found: Mapping[str, Any], run: RunRef) -> None:
    """Raise InputError for an object of the same name that is not this run's."""
    labels = found["metadata"].get("labels") or {}
    if (labels.get(names.CONTROLLER), labels.get(names.RUN)) == (run.controller, run.uid):
        return
    whose = f"run {labels[names.RUN]}" if names.RUN in labels else "somebody else"
    raise InputError.of(
        code="duplicate",
        field="metadata.name",
        value=run.job,
        message=f"{found.get('kind', 'an object')} {found['metadata']['name']} in namespace"
        f" {run.namespace} belongs to {whose}: it is not touched",
        hint="run it again under another run id",
    )
