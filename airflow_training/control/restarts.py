"""Whether a failure gets another try, at whose cost, how much is restarted with it, and when."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Literal

from airflow_training.control import reasons
from airflow_training.control.diagnosed import fingerprint, origin_of
from airflow_training.control.failure_order import explained
from airflow_training.control.failures import (
    Failure,
    exit_code_says,
    is_listed,
    list_of_code,
    matching_rule,
    restarts_a_class,
)
from airflow_training.control.lost_nodes import outage_of
from airflow_training.control.memory import can_grow
from airflow_training.control.model import MOVED, InstanceEntry, JobEntry, RestartRecord
from airflow_training.control.recovery import counts_as_restart
from airflow_training.control.retry_prospect import prospect_of
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import (
    FailureRule,
    ResolvedJob,
    ResolvedRole,
    RestartRules,
    RestartScope,
)
from airflow_training.documents.text import counted

__all__ = [
    "Budget",
    "CompleteJob",
    "FailInstance",
    "FailJob",
    "RestartDecision",
    "Verdict",
    "backoff_seconds",
    "judge",
    "record_of",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailInstance:
    """This instance failed for good; what that means for its role is the policies' business."""

    reason: str
    message: str
    rule: str
    limit: str = ""
    """What left no other try, where `message` is about more than that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartDecision:
    scope: RestartScope | Literal["FreshJob"]
    counted: bool
    rule: str
    """Name of the failure rule, or of the policy that applied."""
    fewer: bool = False
    """With one instance fewer of the role."""
    last: bool = False
    """One more try is all that the failure is worth."""
    origin: RestartRecord | None = None
    """The restart of another instance that this one is a consequence of: nobody is charged again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailJob:
    reason: str
    message: str
    rule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteJob:
    message: str
    rule: str


Verdict = FailInstance | RestartDecision | FailJob | CompleteJob


class Budget:
    """What has been spent so far: read once per decision, then kept up to date by `charge`."""

    def __init__(self, spec: ResolvedJob, job: JobEntry) -> None:
        self._spec, self._job = spec, job
        self.fresh_jobs = job.fresh_jobs
        self.records: list[RestartRecord] = []
        """Of this epoch."""
        self._counted_at: list[float] = []
        """Of this epoch, since the last fresh job: what the window slides over."""
        self._spent = 0
        """Of these, those that no newer checkpoint has forgiven: what `maxRestarts` is about."""
        self._spent_by_role: Counter[str] = Counter()
        """The same of each role."""
        self._of_instance: Counter[InstanceKey] = Counter()
        self._of_groups = 0
        for record in job.restarts:
            if record.epoch == job.epoch:
                self.charge(record)

    def charge(self, record: RestartRecord) -> None:
        """Count one more restart."""
        self.records.append(record)
        counts = counts_as_restart(self._spec, self._job, record)
        if _is_free(record):
            return
        if record.scope == "Instance":
            self._of_instance[record.key] += counts
        else:
            self._of_groups += counts
        if record.scope == "FreshJob":
            self._counted_at.clear()
            self._spent = 0
            self._spent_by_role.clear()
        elif record.counted:
            self._counted_at.append(record.at)
            self._spent += counts
            self._spent_by_role[record.role] += counts

    @property
    def spent(self) -> int:
        """Return how many of `maxRestarts` are used up."""
        return self._spent

    def spent_by(self, role: str) -> int:
        """Return how many of `maxRestarts` failures of a role's instances have used up."""
        return self._spent_by_role[role]

    def exceeded(self, rules: RestartRules, *, now: float) -> str:
        """Return which ceiling leaves no room for one more restart; empty when none."""
        if self._spent >= rules.max_restarts:
            return f"maxRestarts {rules.max_restarts}"
        if rules.window_seconds is not None and rules.window_max_restarts is not None:
            recent = sum(at > now - rules.window_seconds for at in self._counted_at)
            if recent >= rules.window_max_restarts:
                return f"window ({rules.window_max_restarts} in {rules.window_seconds:g} s)"
        return ""

    def backoff_seconds(
        self, rules: RestartRules, failure: Failure, restart: RestartDecision
    ) -> float:
        """Return how long to wait: exponential in the restarts of the same thing so far."""
        before = self._of_groups
        if restart.scope == "Instance":
            before = self._of_instance[failure.key]
        return backoff_seconds(rules, before)


def _is_free(record: RestartRecord) -> bool:
    """Return whether the place was taken, or left: what follows does not wait the longer for that."""
    return not record.counted and (record.failure_class == "preemption" or record.rule == MOVED)


def backoff_seconds(rules: RestartRules, before: int) -> float:
    """Return how long to wait for the next attempt after so many that failed `before`."""
    delay = rules.backoff_initial_seconds
    for _ in range(before):
        if delay >= rules.backoff_max_seconds or rules.backoff_factor == 1:
            break
        delay *= rules.backoff_factor
    return min(delay, rules.backoff_max_seconds)


def judge(
    spec: ResolvedJob,
    *,
    entry: InstanceEntry,
    budget: Budget,
    failure: Failure,
    now: float,
    can_spare: bool = False,
) -> Verdict:
    """Verdict on one failure: the first matching rule, else the role's restart policy.

    `can_spare`: the job may go on without this instance rather than end, or begin afresh.
    """
    role = spec.role(failure.role)
    if can_spare and failure.reason == reasons.UNSCHEDULABLE:
        return _WITH_FEWER
    verdict = _judge(spec, role, entry=entry, budget=budget, failure=failure, now=now)
    return _WITH_FEWER if can_spare and _attempts_exhausted(verdict) else verdict


_WITH_FEWER = RestartDecision(scope="Job", counted=True, rule="minReplicas", fewer=True)


def _attempts_exhausted(verdict: Verdict) -> bool:
    match verdict:
        case FailInstance(reason=reason) | FailJob(reason=reason):
            return reason in (reasons.BACKOFF_LIMIT_EXCEEDED, reasons.MAX_RESTARTS_EXCEEDED)
        case RestartDecision(scope=scope):
            return scope == "FreshJob"
        case CompleteJob():
            return False


def _judge(
    spec: ResolvedJob,
    role: ResolvedRole,
    *,
    entry: InstanceEntry,
    budget: Budget,
    failure: Failure,
    now: float,
) -> Verdict:
    if failure.reason == reasons.COMPLETED:
        # exit 0 under Always: not finished, and nobody's fault
        return RestartDecision(scope="Instance", counted=False, rule="restartPolicy: Always")
    if failure.reason == reasons.NODE_UNFIT:  # nothing has failed yet
        return RestartDecision(scope=spec.restart.scope, counted=False, rule=MOVED)
    rule = matching_rule(spec.failure_policy.rules, failure)
    if rule is not None and not restarts_a_class(rule):
        return _by_rule(spec, rule, entry=entry, budget=budget, failure=failure, now=now)
    prospect = prospect_of(
        failure,
        budget.records,
        last_try=entry.last_try,
        code_is_listed=is_listed(spec.restart.exit_codes, role, failure.as_noticed().exit_code),
        more_memory=can_grow(spec, entry, reason=failure.reason, told=failure.diagnosed),
    )
    if prospect.answer == "never":
        return FailInstance(
            reason=prospect.reason,
            message=prospect.message,
            rule=prospect.rule,
            limit=prospect.limit,
        )
    verdict = _by_policies(spec, role, rule, entry=entry, budget=budget, failure=failure, now=now)
    if isinstance(verdict, RestartDecision) and prospect.answer == "perhaps":
        return replace(verdict, last=True)
    return verdict


def _by_policies(
    spec: ResolvedJob,
    role: ResolvedRole,
    rule: FailureRule | None,
    *,
    entry: InstanceEntry,
    budget: Budget,
    failure: Failure,
    now: float,
) -> Verdict:
    if rule is not None:
        return _by_rule(spec, rule, entry=entry, budget=budget, failure=failure, now=now)
    policy = f"restartPolicy: {role.restart_policy}"
    if role.restart_policy == "Never":
        return FailInstance(reason=reasons.INSTANCE_FAILED, message=failure.describe(), rule=policy)
    if (
        role.restart_policy == "ExitCode"
        and exit_code_says(spec.restart.exit_codes, failure) == "permanent"
    ):
        table = spec.restart.exit_codes
        why = f"permanent in the table {table.name}"
        if not list_of_code(table, failure):
            why = f"permanent: of class {failure.as_noticed().failure_class}, and not in the table {table.name}"
        return FailInstance(
            reason=reasons.EXIT_CODE_PERMANENT,
            message=f"{failure.describe()} is {why}",
            rule=policy,
            limit=f"that is {why}",
        )
    return _within_limits(
        spec, spec.restart.scope, policy, entry=entry, budget=budget, failure=failure, now=now
    )


def _named(rule: FailureRule) -> str:
    """Return a rule as a person says it; one without a name of its own is `rule 0` already."""
    return rule.name if rule.name.startswith("rule ") else f"rule {rule.name}"


def _by_rule(
    spec: ResolvedJob,
    rule: FailureRule,
    *,
    entry: InstanceEntry,
    budget: Budget,
    failure: Failure,
    now: float,
) -> Verdict:
    what = f"{failure.key}: {failure.describe()}"
    if rule.action == "FailJob":
        message = f"{_named(rule)} ends the job"
        return FailJob(reason=reasons.FAILED_BY_RULE, message=message, rule=rule.name)
    if rule.action == "CompleteJob":
        return CompleteJob(message=f"{_named(rule)}: {what}", rule=rule.name)
    if rule.action == "Ignore":
        return RestartDecision(scope=spec.restart.scope, counted=False, rule=rule.name)
    if rule.action == "RestartJobAndIgnoreMaxRestarts":
        return RestartDecision(scope="Job", counted=False, rule=rule.name)
    scope: RestartScope = {
        "RestartJob": "Job",
        "RestartRole": "Role",
        "RestartInstance": "Instance",
    }[rule.action]  # type: ignore[assignment]  # the values are scopes
    return _within_limits(
        spec, scope, rule.name, entry=entry, budget=budget, failure=failure, now=now
    )


def _within_limits(
    spec: ResolvedJob,
    scope: RestartScope,
    rule: str,
    *,
    entry: InstanceEntry,
    budget: Budget,
    failure: Failure,
    now: float,
) -> Verdict:
    if failure.failure_class == "preemption" or failure.waited_for:
        return RestartDecision(scope=scope, counted=False, rule=rule)
    origin = outage_of(failure, entry, budget.records)
    if origin is None and scope == "Instance" and failure.diagnosed is not None:
        origin = origin_of(
            failure.diagnosed,
            budget.records,
            started_at=entry.started_at,
            said_by_runtime=failure.known is not None,
        )
    if origin is not None:
        return RestartDecision(scope=scope, counted=False, rule=rule, origin=origin)
    own = _own_limit(spec.role(failure.role), entry=entry, budget=budget, failure=failure)
    if own is not None:
        return own
    exceeded = budget.exceeded(spec.restart, now=now)
    if not exceeded:
        return RestartDecision(scope=scope, counted=True, rule=rule)
    if spec.restart.then == "FreshJob" and budget.fresh_jobs < spec.restart.max_fresh_jobs:
        return RestartDecision(scope="FreshJob", counted=True, rule=exceeded)
    return FailJob(
        reason=reasons.MAX_RESTARTS_EXCEEDED,
        message=f"{exceeded} is used up",
        rule=exceeded.split(" ")[0],
    )


def _own_limit(
    role: ResolvedRole, *, entry: InstanceEntry, budget: Budget, failure: Failure
) -> FailInstance | None:
    """Return the smallest of the limits of the instance and its role that is used up.

    The run's comes after them: a smaller one would have ended the run before.
    """
    most, spent = role.max_restarts, budget.spent_by(role.name)
    if (
        most is not None
        and spent >= most
        and (entry.restarts < role.backoff_limit or most < role.backoff_limit)
    ):
        return FailInstance(
            reason=reasons.MAX_RESTARTS_EXCEEDED,
            message=f"{failure.describe()} after {counted(spent, 'restart')} of {role.name}"
            f" (maxRestarts {most} of the role)",
            rule="roles[].maxRestarts",
            limit=f"maxRestarts {most} of {role.name} is used up",
        )
    if entry.restarts >= role.backoff_limit:
        return FailInstance(
            reason=reasons.BACKOFF_LIMIT_EXCEEDED,
            message=f"{failure.describe()} after {counted(entry.restarts, 'restart')}"
            f" (backoffLimit {role.backoff_limit})",
            rule="backoffLimit",
            limit=f"backoffLimit {role.backoff_limit} is used up",
        )
    return None


def record_of(
    failure: Failure,
    restart: RestartDecision | None,
    *,
    entry: InstanceEntry,
    epoch: int,
    now: float,
) -> RestartRecord:
    """Return the line that charges a restart to the failure's class. None: not decided yet."""
    return RestartRecord(
        at=now,
        failure_class=failure.failure_class,
        key=failure.key,
        scope="" if restart is None else restart.scope,
        rule="" if restart is None else restart.rule,
        counted=restart is None or restart.counted,
        epoch=epoch,
        attempt=failure.attempt,
        started_at=entry.started_at,
        cause="" if failure.diagnosed is None else failure.diagnosed.cause.id,
        fingerprint="" if failure.diagnosed is None else fingerprint(failure.diagnosed),
        said_by_runtime=failure.said_by_runtime,
        explained_by=explained(failure),
        lost_node=failure.lost_node,
        silent_since=failure.silent_since,
        node=failure.node,
        of_node=failure.is_of_node,
    )
