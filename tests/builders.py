"""Builders for jobs, ledgers and observations: a test names only what its case is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_training.control.decide import decide, new_ledger
from airflow_training.control.model import (
    Action,
    Create,
    Decision,
    Delete,
    Diagnosed,
    Dismiss,
    Event,
    InstanceEntry,
    Ledger,
    Observation,
    Observations,
    Request,
    RequestKind,
    RestartProcess,
    StopProcess,
)
from airflow_training.spec.resolved import (
    Dependency,
    FailurePolicy,
    FailureRule,
    ResolvedJob,
    ResolvedRole,
    RestartRules,
    Scheduling,
    SuccessPolicy,
)

__all__ = ["Bench", "after", "entry", "job", "role", "rule", "seen", "snapshot"]


def after(name: str, status: Any = "AddressKnown", **fields: Any) -> Dependency:
    """Return a dependency on the role `name`."""
    return Dependency(role=name, status=status, **fields)


def role(
    name: str = "worker", replicas: int = 1, *needs: Dependency | str, **fields: Any
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
    of `restart` and of `scheduling` by their own names. There is no backoff unless asked for.
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
    scheduling = {key: fields.pop(key) for key in Scheduling.__dataclass_fields__ if key in fields}
    return ResolvedJob(
        name=fields.pop("name", "digits"),
        roles=roles or (role(),),
        success_policy=SuccessPolicy(**success),
        failure_policy=FailurePolicy(**failure),
        restart=RestartRules(**restart),
        scheduling=Scheduling(**scheduling),
        **fields,
    )


def entry(name: str = "worker", index: int = 0, **fields: Any) -> InstanceEntry:
    """Return a ledger entry."""
    return InstanceEntry(role=name, index=index, **fields)


def seen(
    name: str = "worker", index: int = 0, state: Any = "running", **fields: Any
) -> Observation:
    """Return an observation; a running instance has a live address and is ready."""
    live = state == "running"
    facts: dict[str, Any] = {"address_live": live, "port_open": live, "ready": live}
    attempt = fields.get("attempt", 0)
    facts["uid"] = f"{name}-{index}-{attempt}"
    return Observation(role=name, index=index, state=state, **(facts | fields))


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
    diagnoses: list[Diagnosed] = field(default_factory=list)
    commits: list[dict[str, Any]] = field(default_factory=list)
    """References of committed checkpoints: every decision is told of all of them."""
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
            else Observations(instances=tuple(self.objects.values()), reachable=self.reachable)
        )
        arguments = (self._requests, observations, self.now)
        known: dict[str, Any] = {
            "generation": self.generation,
            "diagnoses": self.diagnoses,
            "committed": self.commits,
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
                    epoch=action.epoch,
                    job_attempt=action.job_attempt,
                    attempt=action.attempt,
                    generation=self.generation,
                    held=action.held,
                )
                self.objects.setdefault(uid, made)
            elif isinstance(action, RestartProcess):
                old = self.objects.pop(action.uid)
                uid = f"{action.role}-{action.index}-{action.attempt}"
                self.objects[uid] = replace(
                    seen(action.role, action.index, "pending", uid=uid, generation=self.generation),
                    epoch=action.epoch,
                    job_attempt=action.job_attempt,
                    attempt=action.attempt,
                    in_place=True,
                    node=old.node,
                )
            elif isinstance(action, StopProcess):
                old = self.objects[action.uid]
                self.objects[action.uid] = replace(old, state="failed", reason="Stopped")
            elif isinstance(action, Dismiss):
                self.objects[action.uid] = replace(self.objects[action.uid], in_place=False)
            else:
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
            if self.objects == before and not self.last.actions:
                return self
        raise AssertionError(f"not settled after {limit} steps: {self.last.actions}")

    # what a test says ---------------------------------------------------------------------------
    def request(self, kind: RequestKind, name: str = "", replicas: int | None = None) -> Bench:
        """Add a request."""
        number = len(self._requests) + 1
        self._requests.append(Request(id=number, kind=kind, role=name, replicas=replicas))
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
        return self.ledger.instances[name, index]

    def states(self) -> dict[str, str]:
        """Return role -> state."""
        return {name: each.state for name, each in self.ledger.roles.items()}

    @property
    def state(self) -> str:
        return self.ledger.job.state

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
