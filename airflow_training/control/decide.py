"""The decision: ledger and observations in, new ledger and actions out. Pure.

Only the order of the steps is written here; each step lives in a module of its own. Nothing that
did not change is copied, so that a pass without news costs one look at every instance.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from airflow_training.control import reasons
from airflow_training.control.actions import (
    Action,
    AwaitPeers,
    Create,
    Delete,
    Dismiss,
    Finish,
    Keep,
    Release,
    RestartProcess,
    RevisePlan,
    StopProcess,
)
from airflow_training.control.attempts import AttemptKey
from airflow_training.control.creation import start_missing
from airflow_training.control.diagnosed import apply_late_diagnoses
from airflow_training.control.draft import Draft
from airflow_training.control.elastic import exclude_unreachable, review_joining, wake_at_deadline
from airflow_training.control.ending import delete_marked, drain, finish
from airflow_training.control.failures import Failure
from airflow_training.control.in_place import advance_in_place, release_waiting
from airflow_training.control.measured import tell_measured
from airflow_training.control.model import (
    TERMINAL_JOB_STATES,
    Decision,
    InstanceEntry,
    Ledger,
    Request,
)
from airflow_training.control.observations import InstanceDiagnosis, Observations, RefusedAttempt
from airflow_training.control.observing import apply_observations
from airflow_training.control.outages import note_silence, skip_outage
from airflow_training.control.outcomes import apply_failures, record_ends
from airflow_training.control.peers import await_peers
from airflow_training.control.place_release import release_held_places, wake_to_release_places
from airflow_training.control.plan_revision import tell_revision
from airflow_training.control.preemption import queue_preempted
from airflow_training.control.reason_facts import OWN_REASONS, Reasons
from airflow_training.control.recovery import record_checkpoints, record_rejected
from airflow_training.control.reports import RejectedCheckpoint
from airflow_training.control.requests import apply_requests
from airflow_training.control.root_cause import cause_of_reason
from airflow_training.control.running_time import (
    advance_running_time,
    check_deadline,
    check_passed_deadline,
    deadline_at,
    record_lifetimes,
)
from airflow_training.control.statuses import update_statuses
from airflow_training.control.stop_condition import (
    await_finish,
    check_stop_condition,
    order_finish,
)
from airflow_training.control.unbegun import take_back_unbegun
from airflow_training.control.unfit_nodes import leave_unfit_nodes
from airflow_training.control.waits import tell_waits
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.documents.resolved_blocks import CheckpointCommit

__all__ = ["decide", "has_begun"]


def decide(
    job: ResolvedJob,
    ledger: Ledger,
    requests: Sequence[Request],
    observations: Observations | None,
    now: float,
    *,
    generation: int = 0,
    diagnoses: Sequence[InstanceDiagnosis] = (),
    undiagnosed: Collection[AttemptKey] = (),
    committed: Sequence[CheckpointCommit] = (),
    rejected: Sequence[tuple[InstanceKey, RejectedCheckpoint]] = (),
    known_reasons: Reasons = OWN_REASONS,
    refused: Sequence[RefusedAttempt] = (),
    unprepared: str = "",
    time_of_day: float | None = None,
    last_words: Mapping[AttemptKey, str] | None = None,
    unanswered: str = "",
) -> Decision:
    """Decide what to persist, then do, then tell. `observations` None: no snapshot yet.

    `diagnoses`: why attempts failed, of those that are observed as failed now or that were before.

    `undiagnosed`: attempts of which that will be known in a moment: what is restarted for them waits.

    `committed`: checkpoints below the root that the ledger follows, also known ones.

    `rejected`: checkpoints that were not restored, each with the instance that said so, also known ones.

    `known_reasons`: what the reasons say that instances of this runtime end with.

    `refused`: attempts that the runtime does not make for now, and why.

    `unprepared`: why what all instances need can never be made.

    `time_of_day`: what the clock of the machine says meanwhile, only to be told.

    `last_words`: the last lines of attempts that have failed, as far as they are known, only to be told.

    `unanswered`: before the first snapshot, why the runtime does not answer whoever prepares the run.

    `generation` is the caller's lease: objects of a newer one are never touched. Each object is
    expected to be listed soon after it was created (`transitions.SETTLE_SECONDS`), and from then until
    it is gone; what it does may be told late, twice or out of order.
    """
    draft = Draft(
        job,
        ledger,
        now=now,
        generation=generation,
        diagnoses=diagnoses,
        undiagnosed=undiagnosed,
        known_reasons=known_reasons,
        refused=refused,
        time_of_day=time_of_day,
        last_words=last_words,
    )
    record_checkpoints(draft, committed)
    record_rejected(draft, rejected)
    failures: Sequence[Failure] = ()
    if observations is not None:
        skip_outage(draft, observations)
        tell_measured(draft, observations)
        failures = apply_observations(draft, observations)
    elif unanswered:
        note_silence(draft, unanswered)
    advance_running_time(draft)
    record_lifetimes(draft, failures)
    apply_requests(draft, requests)
    if _continues(draft):
        check_passed_deadline(draft, failures)
    if not _continues(draft):
        record_ends(draft, failures)
    if diagnoses and _continues(draft):
        apply_late_diagnoses(draft)
    if unprepared and _continues(draft) and not has_begun(draft.instances):
        _end_unprepared(draft, unprepared)
    if _continues(draft) and draft.job.stop is not None:
        failures = await_finish(draft, failures)
    if _continues(draft):
        apply_failures(draft, review_joining(draft, observations, failures))
    if _goes_on(draft):
        exclude_unreachable(draft, observations)
    if _goes_on(draft) and (moves := leave_unfit_nodes(draft)):
        apply_failures(draft, moves)
    if _goes_on(draft) and observations is not None:
        check_stop_condition(draft, observations)
    if _continues(draft):
        check_deadline(draft)
    if _goes_on(draft) and observations is not None and observations.reachable:
        release_held_places(draft)
    if _goes_on(draft):
        advance_in_place(draft)
        start_missing(draft, observations)
        if observations is not None and observations.reachable:
            wake_to_release_places(draft)
            tell_waits(draft)
            await_peers(draft)
            tell_revision(draft)
        wake_at_deadline(draft)
    if _continues(draft) and draft.job.stop is not None:
        order_finish(draft)
    take_back_unbegun(draft)
    queue_preempted(draft, observations)
    if not _continues(draft):
        draft.actions.clear()
        drain(draft, observations)
    update_statuses(draft, reachable=not unanswered and _reaches(observations))
    advance_running_time(draft)
    draft.wake(deadline_at(draft))
    delete_marked(draft)
    release_waiting(draft)
    return Decision(
        new_ledger=draft.ledger(),
        actions=_in_order(draft),
        events=tuple(draft.events),
        wake_at=draft.wake_at,
        done=draft.job.drained,
    )


def has_begun(instances: Mapping[InstanceKey, InstanceEntry]) -> bool:
    """Return whether something of the job is there: it goes on, whatever could not be made again."""
    return any(entry.uid and not entry.final for entry in instances.values())


def _end_unprepared(draft: Draft, message: str) -> None:
    cause = cause_of_reason(
        reason=reasons.CANNOT_BE_PREPARED, message=message, at=draft.now, known=draft.known_reasons
    )
    finish(draft, "Failed", reason=reasons.CANNOT_BE_PREPARED, message=message, root_cause=cause)


def _reaches(observations: Observations | None) -> bool:
    return observations is None or observations.reachable


def _continues(draft: Draft) -> bool:
    return draft.job.state not in TERMINAL_JOB_STATES


def _goes_on(draft: Draft) -> bool:
    """Return whether the job is still to train: from when it is to finish, nothing of it is made or moved."""
    return _continues(draft) and draft.job.stop is None


def _in_order(draft: Draft) -> tuple[Action, ...]:
    """Return what is to be done: first what ends, then what was held, what begins, who goes on otherwise, and who waits, by rank."""
    if len(draft.actions) < 2:
        return tuple(draft.actions)
    order = {role.name: number for number, role in enumerate(draft.spec.roles)}
    kinds = (
        Delete,
        StopProcess,
        Finish,
        Dismiss,
        Keep,
        Release,
        RestartProcess,
        Create,
        RevisePlan,
        AwaitPeers,
    )

    def place(action: Action) -> tuple[int, int, int, str]:
        kind = kinds.index(type(action))
        uid = "" if isinstance(action, Create) else action.uid
        return kind, order.get(action.role, len(order)), action.index, uid

    return tuple(sorted(draft.actions, key=place))
