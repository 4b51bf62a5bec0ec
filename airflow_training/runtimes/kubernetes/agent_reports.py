"""What agents left at the callback URL about the attempts in their pods."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from airflow_training.documents.resolved import RunRef
from airflow_training.runtimes.adapter import Reports
from airflow_training.runtimes.kubernetes import names
from airflow_training.runtimes.kubernetes.pod_attempts import (
    AgentReport,
    newest_agent_report,
    number_of,
)
from airflow_training.runtimes.kubernetes.pod_view import PodView

__all__ = ["AgentReports"]


class AgentReports:
    """The newest reports, where instances have somewhere to leave them."""

    def __init__(self, reports: Reports | None) -> None:
        """`reports` None: they have nowhere, so nothing can stay in a pod."""
        self._reports = reports

    @property
    def are_read(self) -> bool:
        """Return whether agents are heard at all."""
        return self._reports is not None

    async def of(
        self,
        run_uid: str,
        pods: Iterable[PodView],
        known: Mapping[str, AgentReport] = MappingProxyType({}),
    ) -> Mapping[str, AgentReport]:
        """Return pod uid -> what its agent said last of the attempt in it. `known`: by then."""
        stays = {pod.uid: pod for pod in pods if names.IN_PLACE in pod.annotations}
        if self._reports is None or not stays:
            return {}
        keys = {uid: pod.ref.key for uid, pod in stays.items()}
        awaited = {
            keys[uid]
            for uid, pod in stays.items()
            if number_of(pod) > (known[uid].number if uid in known else 0)
        }
        records = await asyncio.to_thread(self._reports, run_uid, awaited)
        return {
            uid: newest_agent_report(records.get(keys[uid], ()), uid, after=known.get(uid))
            for uid in stays
        }

    async def says_it_waits(self, run: RunRef, pod: PodView) -> bool:
        """Return whether the agent of a pod waits, the attempt of its labels having failed."""
        report = (await self.of(run.uid, [pod])).get(pod.uid)
        return report is not None and report.waits and report.number == number_of(pod)
