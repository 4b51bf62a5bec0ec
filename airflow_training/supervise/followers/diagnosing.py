"""Why instances of a run failed: asked when one fails, in a thread beside the loop, and at the end.

What reads and understands logs is imported with the first failure: runs that succeed never pay.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from airflow_training.control.attempts import AttemptKey
from airflow_training.control.causes import DiagnosedCause
from airflow_training.control.failures import CANNOT_START_CODES
from airflow_training.control.lost_peers import explained_by, lost_peers, was_killed
from airflow_training.control.model import TERMINAL_JOB_STATES, InstanceEntry, JobEntry, Ledger
from airflow_training.control.observations import InstanceDiagnosis, Observation
from airflow_training.control.reason_facts import Reasons
from airflow_training.control.reasons import STOPPED, STOPPED_AFTER_SUCCESS
from airflow_training.control.reports import ProgressReport
from airflow_training.control.root_cause import proven_cause
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import ResolvedJob, RunRef
from airflow_training.logs.model import InstanceFact
from airflow_training.runtimes.port import InstanceRef, Runtime
from airflow_training.supervise.followers.explaining import LOST_LOSS, EndOfLog, explain
from airflow_training.supervise.followers.first_lost import find_first_lost
from airflow_training.supervise.followers.last_words import last_line
from airflow_training.supervise.followers.log_ends import LogEnd, read_end

__all__ = ["Diagnoser", "facts_of", "facts_with_ranks"]

log = logging.getLogger(__name__)

_PATIENCE_SECONDS = 0.1
"""How long a decision waits for a diagnosis; one that comes later is taken in later."""
_LONGEST_SECONDS = 15.0
"""How long what is restarted waits for it: the first one of a process loads signatures. It goes on meanwhile."""
_PEERS_SECONDS = 5.0
"""How long the logs of those beside one may take that only lost others."""
_TAIL_BYTES = 64 << 10
_STEP_SECONDS = 10.0
"""How long the end of a job waits for the next log to be read: it does for as long as logs come, however slowly."""
_LAST_SECONDS = 300.0
"""How long it waits for what was read to be understood, which ends by itself: a busy machine takes its time."""
_END_TAIL_BYTES = 1 << 20
_MOST_LOGS = 64
"""At the end; those of instances that failed first."""


class Diagnoser:
    """The diagnoses of one run, under one holder of its lease."""

    def __init__(
        self, *, runtime: Runtime, run: RunRef, job: ResolvedJob, on_answer: Callable[[], None]
    ) -> None:
        """`on_answer` is called on the event loop when there is an answer, or none will come."""
        self._runtime = runtime
        self._run = run
        self._job = job
        self._on_answer = on_answer
        self._asked: dict[AttemptKey, asyncio.Task[None]] = {}
        self._awaited: set[AttemptKey] = set()
        self._answers: dict[AttemptKey, InstanceDiagnosis] = {}
        self.last_words: dict[AttemptKey, str] = {}
        """The last lines of attempts that were looked at, "" of those that printed nothing."""

    async def ask(
        self,
        ledger: Ledger,
        seen: Collection[Observation],
        progress: Mapping[InstanceKey, ProgressReport],
    ) -> None:
        """Look into the logs of attempts that failed just now, and wait a moment for the answers."""
        fresh, last = [], []
        for each in seen:
            if self._is_new(ledger, each):
                said = each.progress or progress.get(each.key)
                task = asyncio.ensure_future(self._diagnose(each, said, ledger))
                self._asked[each.attempt_key] = task
                if _ended_itself(each):
                    self._awaited.add(each.attempt_key)
                fresh.append(task)
                if each.exit_code in CANNOT_START_CODES and not each.message:
                    last.append(
                        task
                    )  # no restart follows, so the words of its shell are waited for
        if last:
            await asyncio.wait(last, timeout=_LONGEST_SECONDS)
        if fresh:
            await asyncio.wait(fresh, timeout=_PATIENCE_SECONDS)

    def _is_new(self, ledger: Ledger, seen: Observation) -> bool:
        entry = ledger.instances.get(seen.key)
        return (
            seen.state == "failed"
            and entry is not None
            and entry.desired
            and entry.attempt_id == seen.attempt_id
            and seen.attempt_key not in self._asked
        )

    @property
    def answers(self) -> Sequence[InstanceDiagnosis]:
        """Diagnoses that are finished and not yet collected."""
        return tuple(self._answers.values())

    @property
    def pending(self) -> Collection[AttemptKey]:
        """Return attempts whose restart waits: they ended by themselves, and it will be known why."""
        return frozenset(self._awaited)

    def forget(self, answers: Collection[InstanceDiagnosis], ledger: Ledger) -> None:
        """Forget answers that a decision knew which is in the store, as `ledger`.

        Not those of attempts that it has not judged yet: they wait for what is found out of others.
        """
        for each in answers:
            entry = ledger.instances.get(each.key)
            waits = entry is not None and entry.desired and entry.attempt_id == each.attempt_id
            if not waits:
                self._answers.pop(each.attempt_key, None)

    async def _diagnose(
        self, seen: Observation, progress: ProgressReport | None, ledger: Ledger
    ) -> None:
        finding = asyncio.ensure_future(self._find_out(seen, progress, ledger))
        try:
            await asyncio.wait([finding], timeout=_LONGEST_SECONDS)
            if not finding.done():
                log.warning(
                    "run %s: why %s failed was not found in its log within %g s; its restart waits no longer",
                    self._run.uid,
                    seen.key,
                    _LONGEST_SECONDS,
                )
                self._awaited.discard(seen.attempt_key)
                self._on_answer()
            await finding
        except Exception:
            log.warning(
                "run %s: %s was not diagnosed",
                self._run.uid,
                seen.key,
                exc_info=True,
            )
        finally:
            finding.cancel()
            self._awaited.discard(seen.attempt_key)
            self._on_answer()

    async def _find_out(
        self, seen: Observation, progress: ProgressReport | None, ledger: Ledger
    ) -> None:
        """Find out why one attempt failed; without a log there is nothing to find out."""
        ref = InstanceRef(run=self._run, key=seen.key, attempt_id=seen.attempt_id, uid=seen.uid)
        end = await read_end(self._runtime, ref, limit=_TAIL_BYTES)
        self.last_words[seen.attempt_key] = last_line(end.data)
        if not end.data:
            return
        fact = _fact(seen)
        found = await self._explain([(ref, self._rank(ref), end)], [fact])
        if found is None or found.file is None:
            return  # what the runtime saw alone, decisions know better
        answer = InstanceDiagnosis(
            key=seen.key,
            attempt_id=seen.attempt_id,
            cause=found,
            step=None if progress is None else progress.step,
            reason=seen.reason,
            exit_code=seen.exit_code,
            signal=seen.signal,
            finished_at=seen.finished_at,
        )
        if lost_peers(answer) and self._job.restart.scope != "Instance":
            origin = await self._origin(seen, ref, end, ledger)
            answer = dataclasses.replace(answer, origin=origin)
        self._answers[seen.attempt_key] = answer

    async def _origin(
        self, seen: Observation, ref: InstanceRef, end: LogEnd, ledger: Ledger
    ) -> InstanceDiagnosis | None:
        """Return what happened first in another instance that ran beside one that only lost others."""
        beside = [
            each
            for each in ledger.instances.values()
            if each.desired and each.was_running and each.key != seen.key
        ]
        try:
            logs = await asyncio.wait_for(self._tails_of(beside[:_MOST_LOGS]), _PEERS_SECONDS)
        except asyncio.TimeoutError:
            return None
        found = await self._explain([(ref, self._rank(ref), end), *logs], [_fact(seen)])
        if found is None or found.key is None:
            return None
        entry = ledger.instances[found.key]
        cause = dataclasses.replace(found, offset=None)
        origin = InstanceDiagnosis(key=entry.key, attempt_id=entry.attempt_id, cause=cause)
        return origin if explained_by(origin) == "itself" and entry.key != seen.key else None

    async def _tails_of(self, entries: Sequence[InstanceEntry]) -> list[EndOfLog]:
        """Return the last lines of logs that are still being written, at one request each."""
        refs = [_ref(self._run, each) for each in entries]
        tails = await asyncio.gather(
            *(self._runtime.tail_log(ref, limit=_TAIL_BYTES) for ref in refs)
        )
        ends = [LogEnd(data=tail, offset=None) for tail in tails]
        return self._that_say_something(refs, ends)

    def _that_say_something(
        self, refs: Sequence[InstanceRef], ends: Sequence[LogEnd]
    ) -> list[EndOfLog]:
        return [
            (ref, self._rank(ref), end) for ref, end in zip(refs, ends, strict=True) if end.data
        ]

    async def root_cause(self, ledger: Ledger) -> DiagnosedCause | None:
        """Return why a job failed, and whose log proves it; None: no log tells.

        It is over at the last log that comes. Those that do not come are left out: the others tell what they know.
        """
        entries = [each for each in ledger.instances.values() if _has_run(each)]
        entries.sort(key=lambda each: (each.end.failure_class is None, each.finished_at or 0.0))
        refs = [_ref(self._run, each) for each in entries[:_MOST_LOGS]]
        facts = facts_of(ledger, self._runtime.capabilities.reasons)
        try:
            logs = await self._ends_of(refs, limit=_END_TAIL_BYTES)
            if not (logs or facts):
                return None
            found = await self._explain_patiently(logs, facts)
        except asyncio.TimeoutError:
            log.warning(
                "run %s: its logs were not understood within %g s; they are kept: logs diagnose reads them again",
                self._run.uid,
                _LAST_SECONDS,
            )
            return None
        except Exception:
            log.warning("run %s: the end was not diagnosed", self._run.uid, exc_info=True)
            return None
        if found is None or found.id != LOST_LOSS:
            return found
        with contextlib.suppress(Exception):  # that it was lost is known all the same
            return await asyncio.wait_for(self._with_first_step(found, logs), _STEP_SECONDS)
        return found

    async def _explain_patiently(
        self, logs: Sequence[EndOfLog], facts: Sequence[InstanceFact]
    ) -> DiagnosedCause | None:
        """Explain, and say what a run that has ended still waits for; raises TimeoutError."""
        explaining = asyncio.ensure_future(self._explain(logs, facts))
        try:
            await asyncio.wait([explaining], timeout=_LONGEST_SECONDS)
            if not explaining.done():
                log.warning(
                    "run %s: nothing of it is alive; why it failed is looked for in its logs, for %g s at most",
                    self._run.uid,
                    _LAST_SECONDS,
                )
            return await asyncio.wait_for(explaining, _LAST_SECONDS)
        finally:
            explaining.cancel()

    async def _with_first_step(
        self, found: DiagnosedCause, logs: Sequence[EndOfLog]
    ) -> DiagnosedCause:
        """Return a lost loss with its first step where that may stand before the end of a long log."""
        long = [
            ref for ref, _, end in logs if ref.key == found.key and end.offset and not end.opaque
        ]
        if not long or found.offset is None:
            return found
        (ref,) = long
        metric, _, _ = found.evidence.partition(" is ")
        first = await find_first_lost(
            self._runtime,
            ref,
            metric=metric,
            before=found.offset,
            patterns=self._job.log_patterns,
        )
        if first is None:
            return found
        return dataclasses.replace(found, evidence=first.evidence, offset=first.offset)

    async def _ends_of(self, refs: Sequence[InstanceRef], *, limit: int) -> list[EndOfLog]:
        """Return the ends of logs that can be read, until none has come for a while."""
        reading = {
            asyncio.ensure_future(read_end(self._runtime, ref, limit=limit)): ref for ref in refs
        }
        left = set(reading)
        try:
            while left:
                done, left = await asyncio.wait(
                    left, timeout=_STEP_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    break
        finally:
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
        lost = {ref.key: task for task, ref in reading.items() if task in left or task.exception()}
        for key, task in lost.items():
            why = f"not within {_STEP_SECONDS:g} s" if task in left else str(task.exception())
            log.warning(
                "run %s: the log of %s could not be read for its end: %s", self._run.uid, key, why
            )
        whole = [(ref, task) for task, ref in reading.items() if ref.key not in lost]
        return self._that_say_something([ref for ref, _ in whole], [t.result() for _, t in whole])

    async def _explain(
        self, logs: Sequence[EndOfLog], facts: Sequence[InstanceFact]
    ) -> DiagnosedCause | None:
        told = facts_with_ranks(facts, self._job)
        return await asyncio.to_thread(explain, logs, told, self._job.log_patterns)

    def _rank(self, ref: InstanceRef) -> int | None:
        return self._job.role(ref.role).rank_of(ref.index)

    async def close(self) -> None:
        """Stop looking."""
        for task in self._asked.values():
            task.cancel()
        await asyncio.gather(*self._asked.values(), return_exceptions=True)


def facts_of(ledger: Ledger, reasons: Reasons) -> Sequence[InstanceFact]:
    """Return how the instances of a run ended by themselves, and why others of it do not begin.

    Of a job that failed without one of them (a deadline, no place), how the job ended.
    `reasons`: what those of the runtime say.
    """
    entries = ledger.instances.values()
    ended = [each for each in entries if _ended_by_itself(each)]
    job = ledger.job
    if job.state in TERMINAL_JOB_STATES:
        if job.state == "Failed" and not any(each.end.failure_class for each in ended):
            return [_fact_of_job(job)]
        facts = [_fact(each) for each in ended]
        if job.state != "Failed":
            facts += [_stopped(each) for each in entries if each not in ended and _has_run(each)]
        return facts
    waits = [
        each
        for each in entries
        if each.state in ("pending", "unknown") and proven_cause(each.reason, reasons)
    ]
    return [_fact(each) for each in (*(each for each in ended if each.end.failure_class), *waits)]


def facts_with_ranks(facts: Sequence[InstanceFact], job: ResolvedJob) -> list[InstanceFact]:
    """Return facts with the ranks that the roles of a job give their instances."""
    roles = {role.name: role for role in job.roles}
    return [
        fact
        if fact.role not in roles
        else dataclasses.replace(fact, process_rank=roles[fact.role].rank_of(fact.index))
        for fact in facts
    ]


def _fact_of_job(job: JobEntry) -> InstanceFact:
    """Return why a job failed in which no instance ended by itself: its root cause where one is known."""
    root = job.root_cause
    if root is None:
        return InstanceFact(role="", index=0, reason=job.reason, message=job.message, whole=True)
    return InstanceFact(
        role=root.role or "",
        index=root.index or 0,
        reason=root.reason or job.reason,
        message=root.message or job.message,
        whole=root.index is None,
    )


def _ended_itself(seen: Observation) -> bool:
    """Return whether a program ended by itself, be it with an abort: then its log may forbid a restart."""
    ended = seen.signal is not None or bool(seen.exit_code)
    return ended and not was_killed(signal=seen.signal, exit_code=seen.exit_code)


def _has_run(entry: InstanceEntry) -> bool:
    ended = entry.end.exit_code is not None or entry.end.signal is not None
    return bool(entry.uid or entry.attempt) or ended


def _ended_by_itself(entry: InstanceEntry) -> bool:
    succeeded = entry.state == "succeeded" and entry.reason != STOPPED_AFTER_SUCCESS
    return entry.final and (succeeded or entry.end.failure_class is not None)


def _fact(entry: InstanceEntry | Observation) -> InstanceFact:
    end = entry.end if isinstance(entry, InstanceEntry) else entry
    return InstanceFact(
        role=entry.role,
        index=entry.index,
        exit_code=end.exit_code,
        signal=None if end.signal is None else str(end.signal),
        reason=entry.reason,
        message=entry.message,
        finished_at=entry.finished_at,
    )


def _stopped(entry: InstanceEntry) -> InstanceFact:
    return InstanceFact(role=entry.role, index=entry.index, reason=STOPPED)


def _ref(run: RunRef, entry: InstanceEntry) -> InstanceRef:
    return InstanceRef(run=run, key=entry.key, attempt_id=entry.attempt_id, uid=entry.uid)
