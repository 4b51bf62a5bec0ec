"""Why instances of a run failed, for its decisions: asked of a `Diagnoser` that the first failure makes.

Runs in which nothing fails never import what reads logs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_training.control.model import Decision
from airflow_training.control.observations import Observations
from airflow_training.control.root_cause import with_diagnosis, with_root_cause
from airflow_training.supervise.followers.follower import Evidence, FollowedRun, Follower

if TYPE_CHECKING:
    from airflow_training.supervise.followers.diagnosing import Diagnoser

__all__ = ["FailureFollower"]


class FailureFollower(Follower):
    """Diagnoses of attempts that failed, and of the job when it ends."""

    def __init__(self, run: FollowedRun) -> None:
        self._run = run
        self._diagnoser: Diagnoser | None = None

    async def evidence(self, seen: Observations | None) -> Evidence:
        """Return why attempts failed: of those that did just now as far as a moment allows."""
        if seen is not None and any(each.state == "failed" for each in seen.instances):
            _, ledger = self._run.state()
            await self._make_diagnoser().ask(ledger, seen.instances, self._run.progress)
        if self._diagnoser is None:
            return Evidence()
        return Evidence(diagnoses=self._diagnoser.answers, undiagnosed=self._diagnoser.pending)

    def on_persisted(self, evidence: Evidence) -> None:
        if self._diagnoser is not None:
            _, ledger = self._run.state()
            self._diagnoser.forget(evidence.diagnoses, ledger)

    async def explain(self, decision: Decision, *, now: float) -> Decision:
        """Return the last decision of a failed job with what its logs say."""
        ledger = decision.new_ledger
        known = ledger.job.root_cause
        if ledger.job.state != "Failed" or known is None:
            return decision
        found = await self._make_diagnoser().root_cause(ledger)
        if found is None:
            return decision
        reasons = self._run.runtime.capabilities.reasons
        return with_root_cause(decision, with_diagnosis(known, found, reasons=reasons), now=now)

    def _make_diagnoser(self) -> Diagnoser:
        if self._diagnoser is None:
            from airflow_training.supervise.followers.diagnosing import Diagnoser

            job, _ = self._run.state()
            self._diagnoser = Diagnoser(
                runtime=self._run.runtime, run=self._run.ref, job=job, on_answer=self._run.wake
            )
        return self._diagnoser

    async def close(self) -> None:
        if self._diagnoser is not None:
            await self._diagnoser.close()
