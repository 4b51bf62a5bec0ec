"""What a run has in the cluster beside its record and its pods: services, its gang, secrets, ConfigMaps.

All of it is owned by the record, named by the run, and made in a way that may be repeated.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from airflow_training.documents.resolved import RunRef
from airflow_training.runtimes.kubernetes import gangs, names, objects
from airflow_training.runtimes.kubernetes.api import Api
from airflow_training.runtimes.kubernetes.api_errors import (
    AlreadyExists,
    Forbidden,
    Invalid,
    NotFound,
)
from airflow_training.runtimes.kubernetes.facts import RunFacts
from airflow_training.runtimes.kubernetes.instances import gather_all
from airflow_training.runtimes.kubernetes.kinds import (
    CONFIG_MAPS,
    COSCHEDULING_GROUPS,
    NETWORK_POLICIES,
    SECRETS,
    SERVICES,
    VOLCANO_GROUPS,
    ResourceKind,
)
from airflow_training.runtimes.kubernetes.network_policies import policy_documents
from airflow_training.runtimes.kubernetes.record import check_owner
from airflow_training.runtimes.kubernetes.services import service_documents

__all__ = ["RunObjects"]

_GROUP_KINDS: Mapping[str, ResourceKind] = {
    "volcano": VOLCANO_GROUPS,
    "coscheduling": COSCHEDULING_GROUPS,
}


class RunObjects:
    """Makes and removes them through one server."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def make(self, run: RunRef, facts: RunFacts, *, token: str, record_uid: str) -> None:
        """Make what the run needs before its pods. `token`: of its callbacks; "": it has none."""
        made = [
            self._ensure(SERVICES, run, document)
            for document in service_documents(run, facts, record_uid=record_uid)
        ]
        group_kind = _GROUP_KINDS.get(facts.gang.kind)
        if group_kind is not None:
            made += [
                self._create_or_resize(group_kind, run, document)
                for document in gangs.pod_group_documents(facts.gang, run, record_uid=record_uid)
            ]
        # before any pod is: until it is there nothing keeps others away
        policies = {name: role.network_policy for name, role in facts.roles.items()}
        await gather_all(
            self._ensure(NETWORK_POLICIES, run, document)
            for document in policy_documents(run, policies, record_uid=record_uid)
        )
        if facts.ssh:
            # made anew each time it is called: the first one counts
            made.append(
                self._ensure(SECRETS, run, objects.ssh_secret_document(run, record_uid=record_uid))
            )
        if token:
            document = objects.callback_secret_document(run, token, record_uid=record_uid)
            made.append(self._ensure(SECRETS, run, document))
        await gather_all(made)

    async def make_config_map(self, run: RunRef, document: Mapping[str, Any]) -> None:
        """Make one unless it is there; raises InputError where the name is another's."""
        await self._ensure(CONFIG_MAPS, run, document)

    async def repair_services(self, run: RunRef, facts: RunFacts, *, record_uid: str) -> None:
        """Make services again that somebody deleted."""
        found, _ = await self._api.list(SERVICES, run.namespace, selector=names.run_selector(run))
        there = {each["metadata"]["name"] for each in found}
        await gather_all(
            self._ensure(SERVICES, run, document)
            for document in service_documents(run, facts, record_uid=record_uid)
            if document["metadata"]["name"] not in there
        )

    async def remove(self, run: RunRef, *, with_record: bool) -> None:
        """Delete services, gangs, policies and secrets, then ConfigMaps, the record last."""
        await self._delete_all(SERVICES, run)
        for kind in _GROUP_KINDS.values():
            with contextlib.suppress(NotFound, Forbidden):  # not installed, or never used
                await self._delete_all(kind, run)
        with contextlib.suppress(NotFound, Forbidden):  # only jobs with a policy have any
            await self._delete_all(NETWORK_POLICIES, run)
        with contextlib.suppress(Forbidden):  # only jobs with ssh or a callback have any
            await self._delete_all(SECRETS, run)
        await self._delete_all(CONFIG_MAPS, run, but=names.record_name(run))
        if with_record:
            await self._api.delete(CONFIG_MAPS, run.namespace, names.record_name(run))

    async def _ensure(self, kind: ResourceKind, run: RunRef, document: Mapping[str, Any]) -> None:
        """Make an object unless it is there; raises InputError where the name is another's."""
        try:
            await self._api.create(kind, run.namespace, document)
        except AlreadyExists:
            found = await self._api.get(kind, run.namespace, document["metadata"]["name"])
            check_owner(found, run)
        except (Forbidden, Invalid) as refused:
            # a policy that came later is asked before the name is: what is there needs no leave
            try:
                found = await self._api.get(kind, run.namespace, document["metadata"]["name"])
            except NotFound:
                raise refused from None
            check_owner(found, run)

    async def _create_or_resize(
        self, kind: ResourceKind, run: RunRef, document: Mapping[str, Any]
    ) -> None:
        """Make an object, or bring it to the size the job has now."""
        with contextlib.suppress(NotFound):
            found = await self._api.get(kind, run.namespace, document["metadata"]["name"])
            check_owner(found, run)
        await self._api.apply(kind, run.namespace, document)

    async def _delete_all(self, kind: ResourceKind, run: RunRef, *, but: str = "") -> None:
        found, _ = await self._api.list(kind, run.namespace, selector=names.run_selector(run))
        await gather_all(
            self._api.delete(kind, run.namespace, each["metadata"]["name"])
            for each in found
            if each["metadata"]["name"] != but
        )
