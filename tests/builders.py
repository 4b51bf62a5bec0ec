"""Builders for jobs, ledgers and observations: a test names only what its case is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_training.control.actions import (
    Action,
    AwaitPeers,
    Create,
    Delete,
    Dismiss,
    Keep,
    Release,
    RestartProcess,
    RevisePlan,
    StopProcess,
)
from airflow_training.control.attempts import AttemptId, AttemptKey
from airflow_training.control.causes import RootCause
from airflow_training.control.decide import decide
from airflow_training.control.first_ledger import new_ledger
from airflow_training.control.model import (
    ActivePhase,
    AttemptEnd,
    Decision,
    Event,
    FinalPhase,
    InstanceEntry,
    Ledger,
    PendingPhase,
    Readiness,
    Request,
    RequestKind,
)
from airflow_training.control.observations import (
    InstanceDiagnosis,
    Observation,
    Observations,
    RefusedAttempt,
)
from airflow_training.control.reports import RejectedCheckpoint
from airflow_training.control.subtasks import Subtasks
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import (
    FailureRule,
    ResolvedDependency,
    ResolvedFailurePolicy,
    ResolvedJob,
    ResolvedRole,
    ResolvedSuccessPolicy,
    RestartRules,
    Scheduling,
)
from airflow_training.documents.resolved_blocks import (
    CheckpointCommit,
    ResolvedCheckpoint,
    ResolvedData,
)
from airflow_training.runtimes.kubernetes.reasons import REASONS
from airflow_training.runtimes.registry import keeps_size

__all__ = ["Bench", "after", "entry", "job", "restorable", "role", "rule", "seen", "snapshot"]


def after(name: str, status: Any = "AddressKnown", **fields: Any) -> ResolvedDependency:
    """Return a dependency on the role `name`."""
    return ResolvedDependency(role=name, status=status, **fields)


def role(
    name: str = "worker", replicas: int = 1, *needs: ResolvedDependency | str, **fields: Any
) -> ResolvedRole:
    """Return a role; a dependency given as a name means AddressKnown of it."""
    depends_on = tuple(after(n) if isinstance(n, str) else n for n in needs)
    return ResolvedRole(name=name, replicas=replicas, depends_on=depends_on, **fields)


def rule(action: Any, name: str = "my-rule", **fields: Any) -> FailureRule:
    """Return a failure rule."""
    return FailureRule(name=name, action=action, **fields)


def job(*roles: ResolvedRole, **fields: Any) -> ResolvedJob:
    """Return a job of these roles, one worker by default.

    Short names for nested fields: `success` and `failure` (operators), `targets`, `rules`; fields
    of `restart` and of `scheduling` by their own names; `checkpoint` and `data` as in a document. There is no backoff unless asked for.
    """
    short = {"success": "operator", "targets": "target_roles"}
    success = {short[key]: fields.pop(key) for key in list(fields) if key in short}
    failure = {
        own: fields.pop(key)
        for key, own in (
            ("failure", "operator"),
            ("failure_targets", "target_roles"),
            ("rules", "rules"),
        )
        if key in fields
    }
    restart = {key: fields.pop(key) for key in RestartRules.__dataclass_fields__ if key in fields}
    restart.setdefault("backoff_initial_seconds", 0.0)
    if isinstance(fields.get("checkpoint"), dict):
        fields["checkpoint"] = ResolvedCheckpoint.from_document(fields["checkpoint"])
    if isinstance(fields.get("data"), dict):
        fields["data"] = ResolvedData.from_document(fields["data"])
    scheduling = {key: fields.pop(key) for key in Scheduling.__dataclass_fields__ if key in fields}
    scheduling.setdefault("keeps_size", keeps_size(scheduling.get("gang", "none")))
    return ResolvedJob(
        name=fields.pop("name", "digits"),
        roles=roles or (role(),),
        success_policy=ResolvedSuccessPolicy(**success),
        failure_policy=ResolvedFailurePolicy(**failure),
        restart=RestartRules(**restart),
        scheduling=Scheduling(**scheduling),
        **fields,
    )


def nested(fields: dict[str, Any]) -> dict[str, Any]:
    """Return fields of an entry, in which those of its phase and its attempt's id are one value each.

    `desired` or `final` say which phase, where no field of another one does.
    """
    fields = with_attempt_id(fields)
    desired, final = fields.pop("desired", None), fields.pop("final", None)
    readiness = {n: fields.pop(n) for n in ("address_live", "port_open", "ready") if n in fields}
    end = {n: fields.pop(n) for n in ("exit_code", "signal", "failure_class") if n in fields}
    own = {n: fields.pop(n) for n in ("desired_since", "released", "replace_at") if n in fields}
    if end or final:
        fields["phase"] = FinalPhase(end=AttemptEnd(**end))
    elif desired or readiness or "released" in own or "desired_since" in own:
        fields["phase"] = ActivePhase(readiness=Readiness(**readiness), **own)
    elif own:
        fields["phase"] = PendingPhase(**own)
    return fields


def with_attempt_id(fields: dict[str, Any]) -> dict[str, Any]:
    """Return fields in which those of an attempt's id, by their own names, are one value."""
    names = ("epoch", "job_attempt", "attempt", "generation")
    own = {name: fields[name] for name in names if name in fields}
    rest = {name: value for name, value in fields.items() if name not in names}
    return {**rest, "attempt_id": AttemptId(**own)} if own else rest


def entry(name: str = "worker", index: int = 0, **fields: Any) -> InstanceEntry:
    """Return a ledger entry."""
    return InstanceEntry(key=InstanceKey(name, index), **nested(fields))


def seen(
    name: str = "worker", index: int = 0, state: Any = "running", **fields: Any
) -> Observation:
    """Return an observation; a running instance has a live address and is ready."""
    live = state == "running"
    facts: dict[str, Any] = {"address_live": live, "port_open": live, "ready": live}
    attempt = fields.get("attempt", 0)
    facts["uid"] = f"{name}-{index}-{attempt}"
    facts["address"] = f"{name}-{index}"
    return Observation(
        key=InstanceKey(name, index), state=state, **(facts | with_attempt_id(fields))
    )


def snapshot(*instances: Observation, reachable: bool = True) -> Observations:
    """Return what a runtime shows."""
    return Observations(instances=instances, reachable=reachable)


@dataclass
class Bench:
    """A job with an obedient runtime: what is ordered exists at once, and a test says the rest.

    After every decision it checks that deciding again changes, tells and charges nothing.
    """

    job: ResolvedJob
    activate_all: bool = True
    now: float = 1000.0
    generation: int = 1
    objects: dict[str, Observation] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    last: Decision = field(default_factory=lambda: Decision(new_ledger=Ledger()))
    reachable: bool = True
    why: str = ""
    """Why it does not answer."""
    diagnoses: list[InstanceDiagnosis] = field(default_factory=list)
    undiagnosed: set[AttemptKey] = field(default_factory=set)
    last_words: dict[AttemptKey, str] = field(default_factory=dict)
    commits: list[CheckpointCommit] = field(default_factory=list)
    """References of committed checkpoints: every decision is told of all of them."""
    rejected: list[tuple[InstanceKey, RejectedCheckpoint]] = field(default_factory=list)
    """Checkpoints that were not restored: of them too."""
    refused: list[RefusedAttempt] = field(default_factory=list)
    """What the runtime does not make for now."""
    _requests: list[Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ledger = new_ledger(self.job, now=self.now, activate_all=self.activate_all)

    # the caller of decide -----------------------------------------------------------------------
    def decide(self, *, seconds: float = 0.0, blind: bool = False) -> Decision:
        """Let time pass, decide once, and remember what was said."""
        self.now += seconds
        observations = (
            None
            if blind
            else Observations(
                instances=tuple(self.objects.values()), reachable=self.reachable, why=self.why
            )
        )
        arguments = (self._requests, observations, self.now)
        known: dict[str, Any] = {
            "generation": self.generation,
            "diagnoses": self.diagnoses,
            "undiagnosed": self.undiagnosed,
            "committed": self.commits,
            "rejected": self.rejected,
            "refused": self.refused,
            "known_reasons": REASONS,
            "last_words": self.last_words,
        }
        decision = decide(self.job, self.ledger, *arguments, **known)
        again = decide(self.job, decision.new_ledger, *arguments, **known)
        assert again.events == (), again.events
        assert again.new_ledger is decision.new_ledger
        assert again.actions == decision.actions
        assert again.done == decision.done
        if again.wake_at is not None:  # waking too early is harmless, too late is not
            assert decision.wake_at is not None
            assert decision.wake_at <= again.wake_at
        self.ledger = decision.new_ledger
        self.events += decision.events
        self.last = decision
        return decision

    def act(self) -> None:
        """Carry out the last decision's actions."""
        for action in self.last.actions:
            if isinstance(action, Delete):
                self.objects.pop(action.uid, None)
            elif isinstance(action, Create):
                uid = f"{action.role}-{action.index}-{action.attempt}"
                made = seen(
                    action.role,
                    action.index,
                    "pending",
                    uid=uid,
                    attempt_id=replace(action.attempt_id, generation=self.generation),
                    held=action.held,
                )
                self.objects.setdefault(uid, made)
            elif isinstance(action, RestartProcess):
                old = self.objects.pop(action.uid)
                uid = f"{action.role}-{action.index}-{action.attempt}"
                self.objects[uid] = seen(
                    action.role,
                    action.index,
                    "pending",
                    uid=uid,
                    attempt_id=replace(action.attempt_id, generation=self.generation),
                    in_place=True,
                    node=old.node,
                )
            elif isinstance(action, StopProcess):
                old = self.objects[action.uid]
                self.objects[action.uid] = replace(old, state="failed", reason="Stopped")
            elif isinstance(action, Dismiss):
                self.objects[action.uid] = replace(self.objects[action.uid], in_place=False)
            elif isinstance(action, Keep):
                old = self.objects[action.uid]
                self.objects[action.uid] = replace(old, in_place=False, can_stay=False, kept=True)
            elif isinstance(action, Release):
                self.objects[action.uid] = replace(self.objects[action.uid], held=False)

    def step(self, *, seconds: float = 0.0) -> Decision:
        """Decide and act."""
        decision = self.decide(seconds=seconds)
        self.act()
        return decision

    def settle(self, *, starting: bool = True, limit: int = 30) -> Bench:
        """Decide and act until nothing is ordered any more; created instances start to run."""
        for _ in range(limit):
            before = dict(self.objects)
            self.step()
            if starting:
                self.run_pending()
            # that some wait for others is said for as long as they do, and what a plan is now to all of them
            said = (AwaitPeers, RevisePlan)
            orders = [each for each in self.last.actions if not isinstance(each, said)]
            if self.objects == before and not orders:
                return self
        raise AssertionError(f"not settled after {limit} steps: {self.last.actions}")

    # what a test says ---------------------------------------------------------------------------
    def request(self, kind: RequestKind, name: str = "", replicas: int | None = None) -> Bench:
        """Add a request."""
        number = len(self._requests) + 1
        self._requests.append(Request(id=number, kind=kind, role=name, replicas=replicas))
        return self

    def ask(self, request: Request) -> Bench:
        """Add a request as it is."""
        self._requests.append(request)
        return self

    def run_pending(self) -> None:
        """Let every scheduled instance that is not held run."""
        for uid, each in self.objects.items():
            if each.state == "pending" and not each.held and each.scheduled:
                self.objects[uid] = replace(
                    each,
                    state="running",
                    reason="",
                    address_live=True,
                    port_open=True,
                    ready=True,
                    started_at=self.now,
                )

    def later(self, seconds: float) -> Bench:
        """Let time pass."""
        self.now += seconds
        return self

    def set(self, name: str, index: int, **changes: Any) -> Bench:
        """Change what the runtime shows of an instance's newest object."""
        uid = self.uid(name, index)
        self.objects[uid] = replace(self.objects[uid], **changes)
        return self

    def end(self, name: str, index: int = 0, exit_code: int | None = 0, **changes: Any) -> Bench:
        """Let an instance end."""
        facts: dict[str, Any] = {
            "state": "succeeded" if exit_code == 0 else "failed",
            "exit_code": exit_code,
            "reason": "Completed" if exit_code == 0 else "Error",
            "finished_at": self.now,
            "address_live": False,
            "port_open": False,
            "ready": False,
        }
        return self.set(name, index, **(facts | changes))

    def lose(self, name: str, index: int = 0) -> Bench:
        """Let an instance's object disappear without a trace."""
        del self.objects[self.uid(name, index)]
        return self

    # what a test asks ---------------------------------------------------------------------------
    def uid(self, name: str, index: int = 0) -> str:
        """Return the newest object of an instance."""
        found = [o for o in self.objects.values() if (o.role, o.index) == (name, index)]
        return max(found, key=lambda o: (o.epoch, o.job_attempt, o.attempt)).uid

    def of(self, name: str = "worker", index: int = 0) -> InstanceEntry:
        """Return an instance's ledger entry."""
        return self.ledger.instances[InstanceKey(name, index)]

    def states(self) -> dict[str, str]:
        """Return role -> state."""
        return {name: each.state for name, each in self.ledger.roles.items()}

    @property
    def state(self) -> str:
        return self.ledger.job.state

    @property
    def root_cause(self) -> RootCause:
        """Return why the job failed; fails where it did not."""
        assert self.ledger.job.root_cause is not None
        return self.ledger.job.root_cause

    def actions(self, kind: type[Action]) -> list[tuple[str, int]]:
        """Return the instances for which the last decision orders this."""
        return [(a.role, a.index) for a in self.last.actions if isinstance(a, kind)]

    def said(self, reason: str) -> Sequence[Event]:
        """Return the events with this reason so far."""
        return [each for each in self.events if each.reason == reason]

    def charged(self) -> dict[str, int]:
        """Return class -> charged restarts."""
        found: dict[str, int] = {}
        for record in self.ledger.job.restarts:
            found[record.failure_class] = found.get(record.failure_class, 0) + 1
        return found


def restorable(subtasks: Subtasks) -> int | None:
    """Return the newest step that every rank has verified: the AND over all of them."""
    return subtasks.full[-1] if subtasks.full else None
