"""The run's record on the cluster: one ConfigMap, changed only from the state it was read in.

It is the fence: it says which lease generation may create, and whether the run was removed.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping
from typing import Any

from airflow_training.errors import InputError, LeaseLost, Problem, RuntimeUnavailable
from airflow_training.runtimes.kubernetes import names
from airflow_training.runtimes.kubernetes.api import AlreadyExists, Api, Conflict, NotFound
from airflow_training.runtimes.kubernetes.facts import NEVER_REMOVED, RunFacts
from airflow_training.runtimes.kubernetes.kinds import CONFIG_MAPS
from airflow_training.spec.resolved import RunRef

__all__ = ["Records", "check_owner", "stale"]

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
        """Write the record for the run's generation; raises LeaseLost where it may not."""
        for _ in range(_TRIES):
            record = await self.read(run)
            try:
                if record is None:
                    return await self._api.create(CONFIG_MAPS, run.namespace, facts.document(run))
                check_owner(record, run)
                known = RunFacts.from_document(record)
                why = stale(known, run.generation)
                if why:
                    raise LeaseLost(f"run {run.uid}: {why}")
                document = facts.document(run)
                document["metadata"]["resourceVersion"] = record["metadata"]["resourceVersion"]
                return await self._api.replace(CONFIG_MAPS, run.namespace, document)
            except (AlreadyExists, Conflict, NotFound) as error:
                if isinstance(error, NotFound) and record is None:
                    raise  # the namespace is not there
                await asyncio.sleep(_PAUSE_SECONDS)
        raise RuntimeUnavailable(f"run {run.uid}: its record changes all the time")

    async def bury(self, run: RunRef) -> RunFacts | None:
        """Write down that nothing may be created any more; None where there is no record."""
        for _ in range(_TRIES):
            record = await self.read(run)
            if record is None:
                return None
            check_owner(record, run)
            facts = RunFacts.from_document(record)
            buried = max(facts.generation, facts.removed, run.generation)
            if facts.removed == buried:
                return facts
            facts = dataclasses.replace(facts, removed=buried)
            document = facts.document(run)
            document["metadata"]["resourceVersion"] = record["metadata"]["resourceVersion"]
            try:
                await self._api.replace(CONFIG_MAPS, run.namespace, document)
            except (Conflict, NotFound):
                continue
            return facts
        raise RuntimeUnavailable(f"run {run.uid}: its record changes all the time")


def stale(facts: RunFacts, generation: int) -> str:
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
    problem = Problem(
        code="duplicate",
        field="metadata.name",
        value=run.job,
        message=f"{found.get('kind', 'an object')} {found['metadata']['name']} in namespace"
        f" {run.namespace} belongs to {whose}: it is not touched",
        hint="run it again under another run id",
    )
    raise InputError(problems=[problem])
