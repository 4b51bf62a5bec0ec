"""A JobSet (`jobset.x-k8s.io/v1alpha2`): each of its replicated jobs becomes a role, or a role a job.

What a JobSet counts are Jobs. A Job of one pod is an instance; a Job of several pods is a role, as they fail and succeed
together, so a replicated job with several of these becomes several roles, `NAME-0`, `NAME-1`, ...
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from airflow_training.documents.paths import Loc
from airflow_training.interchange.accounts import SourceField
from airflow_training.interchange.batch_job import (
    BACKOFF,
    COMPLETION_INDEX,
    CONTAINER,
    JobSize,
    end_of_template,
    first_port,
    pod_failure_rules,
    size_of,
)
from airflow_training.interchange.metadata import (
    job_document,
    managed_by,
    queue_of_labels,
    suspended,
)
from airflow_training.interchange.pod_templates import HostNames, PodRules, translate_template

__all__ = ["translate_jobset"]

FOR_EVER = 31_536_000
"""A JobSet waits for its dependencies without an end; a year is as good."""
_RESTART: Loc = ("spec", "restart")
_LABEL = "jobset.sigs.k8s.io/"
_MAX_ROLES = 1000


@dataclass(frozen=True, slots=True)
class _Jobs:
    """One replicated job."""

    source: SourceField
    name: str
    replicas: int
    size: JobSize
    first: int
    """The place of its first role in our document."""

    @property
    def spec(self) -> SourceField:
        return self.source.at("template", "spec")

    @property
    def single(self) -> bool:
        """Return whether each of its Jobs is one pod, and so an instance."""
        return self.size.instances == 1

    @property
    def roles(self) -> list[str]:
        if self.single or self.replicas == 1:
            return [self.name]
        return [f"{self.name}-{i}" for i in range(self.replicas)]

    @property
    def limit(self) -> int:
        return self.spec["backoffLimit"].whole(6)


def translate_jobset(source: SourceField) -> dict[str, Any]:
    """Return our document for a JobSet."""
    spec = source["spec"].block()
    jobs = list(_replicated(spec["replicatedJobs"]))
    if not jobs:
        source.accounts.mistake(spec["replicatedJobs"].loc, "missing", "a JobSet needs a job")
    restart = _restart(spec["failurePolicy"].block(), jobs)
    after = _start_order(spec["startupPolicy"].block(), jobs)
    roles = [
        role for each in jobs for role in _roles(each, jobs, source, after, scope=restart["scope"])
    ]
    success = _success(spec["successPolicy"].block(), jobs, roles)
    rules = _rules(spec["failurePolicy"]["rules"], jobs, restart)
    _network(spec["network"].block(), source["metadata"]["name"].text())
    spec["coordinator"].refuse("no instance carries the annotation with its address")
    spec["volumeClaimPolicies"].refuse(
        "volumes are not made with a run: name a claim that is there"
    )
    managed_by(spec["managedBy"], own="jobset.sigs.k8s.io/jobset-controller")
    ttl = spec["ttlSecondsAfterFinished"]
    ttl.translate(
        ("spec", "ttlSecondsAfterFinished"),
        "the pods go as they did; the run stays in the history, with its logs",
    )
    queue = queue_of_labels(source)
    return job_document(
        source,
        {
            "framework": "custom",
            "roles": roles,
            "restart": restart,
            **({"successPolicy": success} if success else {}),
            **({"failurePolicy": {"rules": rules}} if rules else {}),
            **({"schedulingPolicy": queue} if queue else {}),
            **_deadline(jobs),
            **({"ttlSecondsAfterFinished": ttl.whole(0)} if ttl else {}),
            **suspended(spec["suspend"]),
        },
    )


def _replicated(source: SourceField) -> Iterator[_Jobs]:
    first = 0
    for each in source.items():
        name = each["name"].text()
        if not name:
            source.accounts.mistake(each.loc, "missing", "a replicated job needs a name")
        replicas = each["replicas"].whole(1)
        size = size_of(
            each.at("template", "spec").block(), ("spec", "roles", first), always_indexed=True
        )
        jobs = _Jobs(each, name, replicas, size, first)
        if len(jobs.roles) > _MAX_ROLES:
            message = f"{len(jobs.roles)} Jobs of several pods are more roles than a job may have"
            source.accounts.mistake(each["replicas"].loc, "out_of_range", message)
            continue
        yield jobs
        first += len(jobs.roles)


# --- roles --------------------------------------------------------------------------------------


def _roles(
    each: _Jobs,
    jobs: Sequence[_Jobs],
    source: SourceField,
    after: dict[str, list[dict[str, Any]]],
    *,
    scope: str,
) -> Iterator[dict[str, Any]]:
    to: Loc = ("spec", "roles", each.first)
    each.source.anchor(to)
    each.source["name"].keep((*to, "name"))
    count, replicas = each.size.instances, each.source["replicas"]
    if len(each.roles) > 1:
        why = f"{each.replicas} Jobs of {count} pods: a role each, as its pods end together"
        replicas.settle("translated", 1, to=("spec", "roles"), why=why)
        each.source["name"].translate((*to, "name"), "the number of the Job stands behind it")
    else:
        why = "a Job of one pod is an instance" if each.single else "one Job: its pods are the role"
        replicas.settle("translated", 1, to=(*to, "replicas"), why=why)
    group = each.source["groupName"]
    if group.text("default") != "default":
        group.refuse("no pod is labelled with its group")
    else:
        group.drop("only names what labels say")
    depends = [*after.get(each.name, ()), *_depends(each, jobs)]
    metadata = each.source.at("template", "metadata").block()
    for key in metadata.names():
        metadata[key].refuse("there are no Jobs that could have labels, annotations or names")
    end_of_template(each.spec, to)
    limit = _limit_of(each, jobs, scope=scope)
    for number, name in enumerate(each.roles):
        place: Loc = ("spec", "roles", each.first + number)
        yield {
            "name": name,
            "replicas": each.replicas if each.single else count,
            "restartPolicy": "OnFailure",
            **limit,
            **({"dependsOn": depends} if depends else {}),
            "template": translate_template(
                each.spec["template"],
                (*place, "template"),
                _pod_rules(each, jobs, source, number),
            ),
        }
    # said of the first role last, so that the report names that one
    if len(each.roles) > 1:
        translate_template(
            each.spec["template"], (*to, "template"), _pod_rules(each, jobs, source, 0)
        )


def _pod_rules(each: _Jobs, jobs: Sequence[_Jobs], source: SourceField, number: int) -> PodRules:
    job = source["metadata"]["name"].text("\0")
    before = sum(other.replicas for other in jobs if other.first < each.first)
    of_pod = "0" if each.single else "$(TRAINING_INDEX)"
    of_job = "$(TRAINING_INDEX)" if each.single and each.replicas > 1 else str(number)
    named = {
        COMPLETION_INDEX: of_pod,
        f"{_LABEL}global-replicas": str(sum(other.replicas for other in jobs)),
        f"{_LABEL}job-index": of_job,
        f"{_LABEL}jobset-name": job,
        f"{_LABEL}replicatedjob-name": each.name,
        f"{_LABEL}replicatedjob-replicas": str(each.replicas),
        f"{_LABEL}restart-attempt": "$(TRAINING_JOB_ATTEMPT)",
    }
    if not before or of_job != "$(TRAINING_INDEX)":
        global_index = of_job if not before else str(before + number)
        named[f"{_LABEL}job-global-index"] = global_index
    names = "|".join(re.escape(other.name) for other in jobs)
    ports: dict[str, int] = {}
    for other in jobs:
        port = first_port(other.spec["template"], "")
        ports |= {role: port[""] for role in other.roles if port}

    def instance(match: re.Match[str]) -> tuple[str, int] | None:
        other = next(one for one in jobs if one.name == match["jobs"])
        job_index, pod = int(match["job"]), int(match["pod"])
        if job_index >= other.replicas or pod >= other.size.instances:
            return None
        if other.single:
            return other.name, job_index
        return other.roles[job_index], pod

    return PodRules(
        ours=CONTAINER,
        env={"JOB_COMPLETION_INDEX": of_pod} if each.size.indexed else {},
        named=named,
        hosts=HostNames(
            re.compile(
                rf"(?<![\w-])(?P<host>{re.escape(job)}-(?P<jobs>{names})-(?P<job>\d+)-(?P<pod>\d+)"
                r"(?:\.[a-z][\w.-]*)?)(?![\w-])(?::(?P<port>\d+))?"
            ),
            instance,
        ),
        ports=ports,
    )


# --- order --------------------------------------------------------------------------------------


def _start_order(policy: SourceField, jobs: Sequence[_Jobs]) -> dict[str, list[dict[str, Any]]]:
    """Return what each replicated job waits for because of the order in which they are listed."""
    order = policy["startupPolicyOrder"]
    if order.one_of(("AnyOrder", "InOrder"), "AnyOrder") == "AnyOrder":
        order.drop("roles without dependsOn start in any order")
        return {}
    order.translate(
        ("spec", "roles", 0, "dependsOn"), "each role waits until the one before is Ready"
    )
    return {later.name: _waits(earlier, "Ready") for earlier, later in pairwise(jobs)}


def _depends(each: _Jobs, jobs: Sequence[_Jobs]) -> Iterator[dict[str, Any]]:
    to: Loc = ("spec", "roles", each.first, "dependsOn")
    for dependency in each.source["dependsOn"].items():
        name = dependency["name"].text()
        status = dependency["status"].one_of(("Ready", "Complete"), "Ready")
        earlier = next((one for one in jobs if one.name == name), None)
        if earlier is None:
            allowed = [one.name for one in jobs]
            message = f"no replicated job is called {name!r}"
            each.source.accounts.mistake(
                dependency["name"].loc, "unknown_role", message, allowed=allowed
            )
            continue
        dependency.translate(to, "waits for ever there; a year here, from when the other runs")
        yield from _waits(earlier, status)


def _waits(earlier: _Jobs, status: str) -> list[dict[str, Any]]:
    return [{"role": role, "status": status, "timeoutSeconds": FOR_EVER} for role in earlier.roles]


def _network(source: SourceField, name: str) -> None:
    if not source["enableDNSHostnames"].flag(default=True):
        source["enableDNSHostnames"].refuse("every instance has a host name here")
    else:
        source["enableDNSHostnames"].drop("every instance has a host name")
    if source["subdomain"].text(name) != name:
        source["subdomain"].refuse("a pod's host is named by its run, role and index")
    else:
        source["subdomain"].drop("hosts that the document names are accounted for where they stand")
    if source["publishNotReadyAddresses"].flag(default=True):
        source["publishNotReadyAddresses"].drop("addresses are published before pods are ready")
    else:
        source["publishNotReadyAddresses"].refuse("addresses are published before pods are ready")


# --- failures and success -----------------------------------------------------------------------


def _alone(jobs: Sequence[_Jobs]) -> bool:
    """Return whether the set is one Job, whose limit can be the run's."""
    return len(jobs) == 1 and jobs[0].replicas == 1


def _restart(policy: SourceField, jobs: Sequence[_Jobs]) -> dict[str, Any]:
    """Return what is restarted together: pods within a Job first, then the set as a whole."""
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
    if _alone(jobs) and jobs[0].limit:
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


def _limit_of(each: _Jobs, jobs: Sequence[_Jobs], *, scope: str) -> dict[str, Any]:
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
    if _alone(jobs):
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


def _deadline(jobs: Sequence[_Jobs]) -> dict[str, Any]:
    for each in jobs:
        seconds = each.spec["activeDeadlineSeconds"]
        if seconds and _alone(jobs):
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

    def covers(self, jobs: _Jobs, reason: str) -> bool:
        return (not self.targets or jobs.name in self.targets) and (
            not self.reasons or reason in self.reasons
        )

    def refuse(self, why: str) -> None:
        """Say so for good, whatever it means for other Jobs."""
        self.refused = True
        self.source.refuse(why)


def _rules(
    source: SourceField, jobs: Sequence[_Jobs], restart: dict[str, Any]
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
    each: _Jobs, reason: str, of_set: Sequence[_Rule], restart: dict[str, Any], to: Loc
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


def _success(
    policy: SourceField, jobs: Sequence[_Jobs], roles: Sequence[dict[str, Any]]
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
