"""Why instances of a run failed, for its decisions: asked of a `Diagnoser` that the first failure makes.

Runs in which nothing fails never import what reads logs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_training.control.causes import RootCause
from airflow_training.control.failure_chain import first_failure
from airflow_training.control.model import Decision
from airflow_training.control.observations import Observations
from airflow_training.control.reasons import DIAGNOSED
from airflow_training.control.root_cause import (
    headline_of,
    is_wordless,
    with_diagnosis,
    with_root_cause,
)
from airflow_training.supervise.followers.follower import Evidence, FollowedRun, Follower
from airflow_training.supervise.retrying import retrying

if TYPE_CHECKING:
    from airflow_training.supervise.followers.diagnosing import Diagnoser

__all__ = ["FailureFollower"]

_MOST_EVENTS = 10_000


class FailureFollower(Follower):
    """Diagnoses of attempts that failed, and of the job when it ends."""

    def __init__(self, run: FollowedRun, *, read_logs: bool = False) -> None:
        """`read_logs`: where nothing explains the end of a job, what its instance printed last is told with it."""
        self._run = run
        self._read_logs = read_logs
        self._diagnoser: Diagnoser | None = None

    async def evidence(self, seen: Observations | None) -> Evidence:
        """Return why attempts failed: of those that did just now as far as a moment allows."""
        if seen is not None and any(each.state == "failed" for each in seen.instances):
            _, ledger = self._run.state()
            await self._make_diagnoser().ask(ledger, seen.instances, self._run.progress)
        if self._diagnoser is None:
            return Evidence()
        return Evidence(
            diagnoses=self._diagnoser.answers,
            undiagnosed=self._diagnoser.pending,
            last_words=self._diagnoser.last_words if self._read_logs else {},
        )

    def on_persisted(self, evidence: Evidence) -> None:
        if self._diagnoser is not None:
            _, ledger = self._run.state()
            self._diagnoser.forget(evidence.diagnoses, ledger)

    async def explain(self, decision: Decision, *, now: float) -> Decision:
        """Return the last decision of a failed job with what its logs say, and how it began."""
        if decision.new_ledger.job.state != "Failed" or not decision.new_ledger.job.root_cause:
            return decision
        return await self._with_first_failure(await self._explained(decision, now=now), now=now)

    async def _explained(self, decision: Decision, *, now: float) -> Decision:
        ledger = decision.new_ledger
        known = ledger.job.root_cause
        if known is None:
            return decision
        found = await self._make_diagnoser().root_cause(ledger)
        if found is None:
            return await self._with_last_words(decision, known, now=now)
        reasons = self._run.runtime.capabilities.reasons
        cause = with_diagnosis(known, found, reasons=reasons)
        if cause == known and is_wordless(known):
            return await self._with_last_words(decision, known, now=now)
        return with_root_cause(decision, cause, now=now)

    async def _with_first_failure(self, decision: Decision, *, now: float) -> Decision:
        """Return the last decision with the cause that an earlier attempt had first, where the others got nowhere."""
        ledger = decision.new_ledger
        last = ledger.job.root_cause
        if last is None or last.key is None:
            return decision
        said, entry = self._run.progress.get(last.key), ledger.instances.get(last.key)
        if entry is None:
            return decision
        progressed = said is not None and (said.time or 0.0) >= (entry.started_at or 0.0)
        first = first_failure(ledger.job, last, progressed=progressed)
        if first is None:
            return decision
        store, uid = self._run.store, self._run.ref.uid
        told = await retrying(store, lambda: store.events(uid, role=first.role, limit=_MOST_EVENTS))
        head = f"attempt {first.attempt}: {first.cause}: "
        for event in (each.event for each in told):
            cause = event.data.get("cause")
            same = event.index == first.index and event.message.startswith(head)
            if event.reason == DIAGNOSED and cause and same:
                root = replace(
                    RootCause.from_document(cause),
                    role=first.role,
                    index=first.index,
                    attempt=first.attempt,
                )
                return with_root_cause(decision, root, now=now, then=f"then {headline_of(last)}")
        return decision

    async def _with_last_words(
        self, decision: Decision, known: RootCause, *, now: float
    ) -> Decision:
        """Return the last decision with what the instance printed last, where its end has no words of its own."""
        if not self._read_logs or not is_wordless(known):
            return decision
        from airflow_training.supervise.followers.last_words import read_last_words

        run = self._run
        attempts = await retrying(run.store, lambda: run.store.usage.of_run(run.ref.uid))
        words = await read_last_words(run.runtime, run.ref, known, attempts)
        if not words:
            return decision
        root = replace(known, evidence=words)
        if root.key is not None:
            job, _ = run.state()
            root = replace(root, rank=job.role(root.key.role).rank_of(root.key.index))
        return with_root_cause(decision, root, now=now)

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
