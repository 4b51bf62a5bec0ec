"""In which order failures of one moment are judged: whoever failed first in causal order is charged. Pure.

A program that lost its peers explains nothing by itself, though its end may be seen first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from airflow_training.control.diagnosed import class_of
from airflow_training.control.draft import Draft
from airflow_training.control.failures import Failure, is_listed, matching_rule
from airflow_training.control.lost_peers import explained_by, was_killed
from airflow_training.documents.resolved import RestartScope

__all__ = ["explained", "in_causal_order"]

_SCOPES: Mapping[str, RestartScope] = {
    "RestartInstance": "Instance",
    "RestartRole": "Role",
    "RestartJob": "Job",
    "RestartJobAndIgnoreMaxRestarts": "Job",
}
"""Of rules that restart something else than `restart.scope` says."""


def explained(failure: Failure) -> Literal["", "itself", "peers"]:
    """Return by what a failure is explained, as far as runtime and log tell now."""
    said = failure.known is not None or failure.failure_class == "preemption"
    if said or was_killed(signal=failure.signal, exit_code=failure.exit_code):
        return "itself"
    return explained_by(failure.diagnosed)


def in_causal_order(draft: Draft, failures: Sequence[Failure]) -> list[Failure]:
    """Return failures of one moment, those that only lost others last, and before them whom these name."""
    named = [found for each in failures if (found := _named_by(draft, each)) is not None]
    known = {each.key for each in failures}
    first = {each.key: each for each in named if each.key not in known}
    return sorted([*failures, *first.values()], key=lambda each: explained(each) == "peers")


def _named_by(draft: Draft, failure: Failure) -> Failure | None:
    """Return the failure of the instance that a diagnosis names, where all of it is restarted together."""
    told = failure.diagnosed
    if told is None or told.origin is None or explained(failure) != "peers":
        return None
    entry = draft.instances.get(told.origin.key)
    if entry is None or not entry.desired or entry.attempt_id != told.origin.attempt_id:
        return None
    first = Failure(
        key=entry.key,
        attempt_id=entry.attempt_id,
        at=failure.at,
        message=told.origin.cause.evidence,
        failure_class=class_of(told.origin, otherwise="user"),
        node=entry.node,
        diagnosed=told.origin,
        noticed=failure,
    )
    if _has_user_rule(draft, failure) and not _has_user_rule(draft, first):
        return None
    return first if _restarts_with(draft, first, failure) else None


def _has_user_rule(draft: Draft, failure: Failure) -> bool:
    """Return whether the job itself says what follows an end like this one, of whichever class it is."""
    exit_code = failure.as_noticed().exit_code
    if is_listed(draft.spec.restart.exit_codes, draft.spec.role(failure.role), exit_code):
        return True
    rule = matching_rule(draft.spec.failure_policy.rules, failure)
    return rule is not None and not rule.on_classes


def _restarts_with(draft: Draft, first: Failure, failure: Failure) -> bool:
    rule, scope = matching_rule(draft.spec.failure_policy.rules, first), draft.spec.restart.scope
    if rule is not None:
        scope = _SCOPES.get(rule.action, scope)
    return scope == "Job" or (scope == "Role" and first.role == failure.role)
