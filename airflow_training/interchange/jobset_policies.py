"""What a JobSet restarts, when it has failed and when it has succeeded, as policies of ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from airflow_training.documents.paths import Loc
from airflow_training.interchange.accounts import SourceField
from airflow_training.interchange.batch_job import BACKOFF, pod_failure_rules
from airflow_training.interchange.replicated_jobs import ReplicatedJob, is_one_job

__all__ = ["deadline_of", "limit_of", "restart_of", "rules_of", "success_of"]

_RESTART: Loc = ("spec", "restart")


def restart_of(policy: SourceField, jobs: Sequence[ReplicatedJob]) -> dict[str, Any]:
    """Which pods restart together: within a Job first, then the set as a whole."""
    strategy = policy["restartStrategy"]
    if strategy.one_of(("Recreate", "BlockingRecreate", "InPlaceRestart"), "Recreate") == (
        "InPlaceRestart"
    ):
        strategy.refuse("needs an agent of JobSet in the pods; here new pods are made")
    else:
        strategy.drop("new pods are made once those before are gone")
    limit = policy["maxRestarts"]
    restarts = limit.whole(0)
    backoff = dict(BACKOFF)
    if not restarts:
        total = sum(each.limit * each.replicas for each in jobs)
        limit.settle(
            "translated",
            0,
            to=(*_RESTART, "maxRestarts"),
            why="the limits of the Jobs decide alone",
        )
        return {"scope": "Instance", "maxRestarts": total, "then": "Fail", "backoff": backoff}
    if is_one_job(jobs) and jobs[0].limit:
        limit.translate(
            (*_RESTART, "maxFreshJobs"), "when the Job's limit is used up, all begins anew"
        )
        return {
            "scope": "Instance",
            "maxRestarts": jobs[0].limit,
            "then": "FreshJob",
            "maxFreshJobs": restarts,
            "backoff": backoff,
        }
    limit.translate((*_RESTART, "maxRestarts"), "the set is restarted as a whole")
    # a set is made anew at once
    return {
        "scope": "Job",
        "maxRestarts": restarts,
        "then": "Fail",
        "backoff": {"initialSeconds": 0, "factor": 1, "maxSeconds": 0},
    }


def limit_of(each: ReplicatedJob, jobs: Sequence[ReplicatedJob], *, scope: str) -> dict[str, Any]:
    """Return the ceilings of a role, from `backoffLimit` of its Job."""
    source = each.spec["backoffLimit"]
    place: Loc = ("spec", "roles", each.first)
    if scope == "Job":
        restarts = each.source.accounts.root.at("spec", "failurePolicy", "maxRestarts").whole(0)
        if each.limit:
            source.settle(
                "refused",
                6,
                why="pods would be tried again one by one before the set is restarted as a whole; here the"
                " first failure restarts it: backoffLimit: 0 says so",
            )
        else:
            source.translate(
                (*place, "backoffLimit"), "every failure is one of the set, whose limit decides"
            )
        return {"backoffLimit": restarts}
    if is_one_job(jobs):
        why = "the pods of the Job together; the limit of an instance is higher and never decides"
        source.settle("translated", 6, to=(*_RESTART, "maxRestarts"), why=why)
        return {"backoffLimit": each.limit + 1}
    if each.single:
        why = "a Job of one pod is an instance"
        source.settle("translated", 6, to=(*place, "backoffLimit"), why=why)
        return {"backoffLimit": each.limit}
    why = "a Job counts the failures of all its pods together"
    source.settle("translated", 6, to=(*place, "maxRestarts"), why=why)
    return {"backoffLimit": each.limit + 1, "maxRestarts": each.limit}


def deadline_of(jobs: Sequence[ReplicatedJob]) -> dict[str, Any]:
    """Return the deadline of a set that is one Job; others have one for each Job."""
    for each in jobs:
        seconds = each.spec["activeDeadlineSeconds"]
        if seconds and is_one_job(jobs):
            seconds.translate(
                ("spec", "activeDeadlineSeconds"),
                "counts only while an instance runs: no queue, no place, no image, no back-off",
            )
            return {"activeDeadlineSeconds": seconds.whole(1, least=1)}
        seconds.refuse("was the deadline of each Job; here there is one for all roles together")
    return {}


_ACTIONS = {
    "FailJobSet": "FailJob",
    "RestartJobSet": "RestartJob",
    "RestartJobSetAndIgnoreMaxRestarts": "RestartJobAndIgnoreMaxRestarts",
    "RestartJob": "RestartRole",
    "RestartJobAndIgnoreMaxRestarts": "",
}
_OF_POD, _OF_LIMIT = "PodFailurePolicy", "BackoffLimitExceeded"
"""Why a Job fails: one of its pods by a rule, or its limit is used up."""


@dataclass(slots=True)
class _Rule:
    """A rule of the set: about Jobs that failed."""

    source: SourceField
    name: str
    action: str
    targets: Sequence[str]
    reasons: Sequence[str]
    used: bool = False
    refused: bool = False

    def covers(self, jobs: ReplicatedJob, reason: str) -> bool:
        return (not self.targets or jobs.name in self.targets) and (
            not self.reasons or reason in self.reasons
        )

    def refuse(self, why: str) -> None:
        """Say so for good, whatever it means for other Jobs."""
        self.refused = True
        self.source.refuse(why)


def rules_of(
    source: SourceField, jobs: Sequence[ReplicatedJob], restart: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return our rules, which judge failures of instances, not Jobs that failed by them.

    For each Job: its own rules about pods, in their order, each with what the set does about a Job
    that failed so; then what the set does about any other failure.
    """
    of_set = [_read_rule(number, rule) for number, rule in enumerate(source.items())]
    found: list[dict[str, Any]] = []
    for each in jobs:
        policy = each.spec["podFailurePolicy"].block()
        for of_pod in pod_failure_rules(policy, each.spec["template"]):
            to: Loc = ("spec", "failurePolicy", "rules", len(found))
            action = {"Ignore": "Ignore", "Count": "RestartInstance"}.get(of_pod.action, "")
            if of_pod.action == "FailIndex" or (action and restart["scope"] == "Job"):
                why = "a pod of the Job was judged by itself; here the set is restarted as a whole"
                of_pod.source.refuse(why)
                continue
            told: dict[str, Any] = {"action": action}
            if not action:
                told = _answer(each, _OF_POD, of_set, restart, to)
            if told:
                of_pod.source.translate(to, "its conditions, with what becomes of the set")
                found.append({**told, **of_pod.conditions, "targetRoles": each.roles})
        to = ("spec", "failurePolicy", "rules", len(found))
        told = _answer(each, _OF_LIMIT, of_set, restart, to)
        if told.get("name"):
            found.append({**told, "targetRoles": each.roles})
    for rule in of_set:
        if not rule.used and not rule.refused:
            rule.source.drop("a rule before it, or none of its Jobs, comes to it")
    for i, each_rule in enumerate(found):
        name = each_rule.pop("name", "")
        same = any(other.get("name") == name for other in found[:i])
        found[i] = {"name": f"{name}-{i}" if same else name, **each_rule} if name else each_rule
    return found


def _read_rule(number: int, source: SourceField) -> _Rule:
    rule = _Rule(
        source,
        source["name"].text(f"failurePolicyRule{number}"),
        source["action"].one_of(tuple(_ACTIONS), "FailJobSet"),
        [each.text() for each in source["targetReplicatedJobs"].items()],
        [each.text() for each in source["onJobFailureReasons"].items()],
    )
    if source["onJobFailureMessagePatterns"].items():
        rule.refuse("messages of Jobs are not ours, so no pattern would find them")
    elif rule.reasons and not {_OF_POD, _OF_LIMIT}.intersection(rule.reasons):
        rule.refuse("no instance fails for such a reason of a Job")
    return rule


def _answer(
    each: ReplicatedJob, reason: str, of_set: Sequence[_Rule], restart: dict[str, Any], to: Loc
) -> dict[str, Any]:
    """Return name and action of what the set does about such a failure; empty: it cannot be told."""
    told = (rule for rule in of_set if rule.used or not rule.refused)
    rule = next((one for one in told if one.covers(each, reason)), None)
    if rule is None:
        return {"action": "RestartJob" if restart["scope"] == "Job" else "FailJob"}
    rule.used = True
    if reason == _OF_LIMIT and restart["scope"] == "Instance" and each.limit:
        rule.refuse(
            "is about a Job whose limit is used up; here a rule judges each failure before any limit"
        )
        return {}
    action = _ACTIONS[rule.action]
    if rule.action.startswith("RestartJob") and "Set" not in rule.action and each.single:
        action = "Ignore" if not action and restart["scope"] == "Instance" else action
        action = "RestartInstance" if action == "RestartRole" else action
    if not action:
        rule.refuse("a role is restarted by itself, without being counted, by no rule")
        return {}
    if not rule.refused:
        rule.source.translate(to, "judged at the failure that fails the Job")
    return {"name": rule.name, "action": action}


def success_of(
    policy: SourceField, jobs: Sequence[ReplicatedJob], roles: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Return when the set has succeeded; without a policy all its Jobs have to."""
    if not policy.names():
        return {}
    to: Loc = ("spec", "successPolicy")
    operator = policy["operator"].one_of(("All", "Any"), "All")
    policy["operator"].settle("kept", "All", to=(*to, "operator"), why="")
    names = [each.text() for each in policy["targetReplicatedJobs"].items()]
    unknown = [name for name in names if name not in {each.name for each in jobs}]
    if unknown:
        place = policy["targetReplicatedJobs"].loc
        message = f"no replicated job is called {unknown[0]!r}"
        policy.accounts.mistake(
            place, "unknown_role", message, allowed=[each.name for each in jobs]
        )
    chosen = [each for each in jobs if not names or each.name in names]
    policy["targetReplicatedJobs"].translate((*to, "targetRoles"), "the roles of these jobs")
    if operator == "Any":
        for each in chosen:
            if each.single and each.replicas > 1:
                roles[each.first]["minSucceeded"] = "Any"
                place = ("spec", "roles", each.first, "minSucceeded")
                why = "any Job is enough, and each of its instances is one"
                policy["operator"].translate(place, why)
    return {"operator": operator, "targetRoles": [role for each in chosen for role in each.roles]}
