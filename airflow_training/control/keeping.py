"""Which instance stays for a look inside once its job has failed, and what becomes of it. Pure.

It is the one that failed first: its agent waits, as it would for another attempt, and is then told to
stay. Where no agent waits any more (the container was killed, the node is gone), that is said.
"""

from __future__ import annotations

from dataclasses import replace

from airflow_training.control import reasons
from airflow_training.control.actions import Keep, StopProcess
from airflow_training.control.causes import RootCause
from airflow_training.control.draft import Draft
from airflow_training.control.model import InstanceEntry, JobEntry, KeptInstance, Ledger
from airflow_training.control.observations import Observation
from airflow_training.control.recovery import save_grace
from airflow_training.control.transitions import ENDED

__all__ = [
    "choose_kept",
    "drained_text",
    "ended_early",
    "is_kept",
    "keep_failed",
    "may_be_there",
    "shell_command",
]

_ANSWER_SECONDS = 30.0
"""How long an agent may need to follow: a kubelet may be slow to pass an order on."""


def choose_kept(draft: Draft, root_cause: RootCause | None) -> KeptInstance | None:
    """Choose the instance that stays after a failure for a look inside; None where nobody asked for it."""
    seconds = draft.spec.restart.keep_failed_seconds
    if not seconds or draft.job.killed:
        return None
    entry = _first_to_fail(draft, root_cause)
    if entry is None:
        return _impossible(draft, "no instance failed first")
    kept = KeptInstance(
        state="asked",
        key=entry.key,
        attempt_id=entry.attempt_id,
        uid=entry.uid,
        until=draft.now + seconds,
        answer_by=draft.now + save_grace(draft.spec, draft.job, entry.role) + _ANSWER_SECONDS,
    )
    attempt = None if root_cause is None else root_cause.attempt
    if attempt is not None and attempt != entry.attempt:
        return _impossible(draft, f"attempt {attempt}, which failed first, is over", kept)
    return kept


def _first_to_fail(draft: Draft, cause: RootCause | None) -> InstanceEntry | None:
    if cause is None or cause.key is None:
        return None
    return draft.instances.get(cause.key)


def _impossible(draft: Draft, why: str, kept: KeptInstance | None = None) -> KeptInstance:
    """Return that nothing stays, and tell why."""
    where = f" of {_name(kept)}" if kept is not None else ""
    draft.record_event(
        reasons.NOTHING_KEPT, f"nothing{where} stays for a look inside: {why}", level="warning"
    )
    return replace(kept or KeptInstance(state="impossible"), state="impossible", why=why)


def keep_failed(draft: Draft) -> int:
    """Have the chosen instance stay; return how many are still asked to."""
    kept = draft.job.kept
    if kept is not None and kept.state == "stays" and draft.job.killed:
        until = min(draft.now, kept.until)
        draft.job = replace(draft.job, kept=replace(kept, state="ended", until=until))
    if kept is None or kept.state != "asked":
        return 0
    seen = draft.objects.get(kept.uid) if kept.uid else None
    if seen is not None and seen.kept and not draft.job.killed:
        draft.job = replace(draft.job, kept=replace(kept, state="stays"))
        draft.record_event(
            reasons.INSTANCE_KEPT,
            f"{_name(kept)} stays for a look inside, for {kept.until - draft.now:.0f} s",
            of=draft.instances.get(kept.key),
            seconds=round(kept.until - draft.now, 3),
        )
        return 0
    why = _why_not(draft, seen, answer_by=kept.answer_by)
    if why or seen is None:
        draft.job = replace(draft.job, kept=_impossible(draft, why, kept))
        return 0
    draft.wake(kept.answer_by)
    if seen.state in ENDED:
        draft.actions.append(Keep(key=seen.key, uid=seen.uid, until=kept.until))
    elif seen.state != "terminating":
        grace = save_grace(draft.spec, draft.job, seen.role)
        draft.actions.append(StopProcess(key=seen.key, uid=seen.uid, grace_seconds=grace))
    return 1


def _why_not(draft: Draft, seen: Observation | None, *, answer_by: float) -> str:
    """Return why an instance cannot stay; empty where it can, or may yet."""
    if draft.job.killed:
        return "the job was killed"
    if seen is None:
        return "it is gone"
    if seen.state == "unknown":
        return f"nothing is heard from node {seen.node or '(unknown)'}"
    if not (seen.in_place or seen.can_stay) and not (
        seen.state == "terminating" and draft.now < answer_by
    ):
        ended = f" ({seen.reason})" if seen.reason else ""
        return f"its agent has ended with it{ended}, or nobody hears of it"
    return "its agent did not answer" if draft.now >= answer_by else ""


def is_kept(draft: Draft, seen: Observation) -> bool:
    """Return whether an object stays, or is asked to: the end of the job leaves it alone."""
    kept = draft.job.kept
    return kept is not None and kept.state in ("asked", "stays") and kept.uid == seen.uid


def drained_text(job: JobEntry) -> str:
    """The event's words once no process of a job is alive."""
    if job.kept is None or job.kept.state != "stays":
        return "nothing of the job is alive"
    return f"no training process of the job is alive; {_name(job.kept)} stays for a look inside"


def may_be_there(job: JobEntry, *, now: float) -> bool:
    """Return whether an instance of a job that has failed may still be looked into."""
    return job.kept is not None and job.kept.state == "stays" and now < job.kept.until


def ended_early(ledger: Ledger, *, now: float) -> Ledger:
    """Return the ledger of a run whose kept instance was ended before its time."""
    kept = ledger.job.kept
    if kept is None or kept.state != "stays":
        return ledger
    return replace(ledger, job=replace(ledger.job, kept=replace(kept, state="ended", until=now)))


def shell_command(run_id: str, kept: KeptInstance) -> str:
    """Return the command that opens a shell in an instance that stays."""
    return f"airflow-training shell {run_id} --role {kept.role} --index {kept.index}"


def _name(kept: KeptInstance) -> str:
    return str(kept.key)
