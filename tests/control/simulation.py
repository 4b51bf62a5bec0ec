"""A world that lies and a caller that dies: `decide` against a simulated runtime, guarantees checked.

The world holds the truth. The caller sees it late, twice, out of order or not at all, and may be
killed between any two steps; then another one goes on from what was persisted. Two promises of the
runtime port are kept: an object is listed at most SETTLE_SECONDS after it was made, and from then on
until it is gone.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_training.control import reasons
from airflow_training.control.actions import (
    Create,
    Delete,
    Dismiss,
    Release,
    RestartProcess,
    StopProcess,
)
from airflow_training.control.decide import decide
from airflow_training.control.first_ledger import new_ledger
from airflow_training.control.model import TERMINAL_JOB_STATES, Event, Ledger, Request, RequestKind
from airflow_training.control.observations import Observation, Observations
from airflow_training.control.reports import RejectedCheckpoint
from airflow_training.control.transitions import SETTLE_SECONDS
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.documents.resolved_blocks import CheckpointCommit
from airflow_training.runtimes.kubernetes.reasons import REASONS

ENDED = ("succeeded", "failed")
CHARGES = frozenset(
    {
        reasons.INSTANCE_RESTARTED,
        reasons.ROLE_RESTARTED,
        reasons.JOB_RESTARTED,
        reasons.FRESH_JOB,
    }
)
DEATHS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("user", {"exit_code": 1, "reason": "Error"}),
    ("infrastructure", {"signal": 9, "reason": "Error"}),
    ("resource", {"exit_code": 137, "reason": "OOMKilled"}),
    ("preemption", {"exit_code": 143, "reason": "Error", "disrupted": True}),
    ("unknown", {"exit_code": 255, "reason": "Error"}),
)


class GuaranteeBrokenError(AssertionError):
    """The simulated run did what must never happen."""


@dataclass
class World:
    """The runtime's truth, and the news on their way to whoever watches."""

    objects: dict[str, Observation] = field(default_factory=dict)
    news: list[tuple[str, Observation | None]] = field(default_factory=list)
    told: list[tuple[str, Observation | None]] = field(default_factory=list)
    classes: dict[tuple[str, int, int], set[str]] = field(default_factory=dict)
    """(role, index, attempt) -> what a charge for it may be; absent: it never failed."""
    going: set[str] = field(default_factory=set)
    stopping: set[str] = field(default_factory=set)
    """What was told to end its process, and to stay."""
    made_at: dict[str, float] = field(default_factory=dict)
    count: int = 0

    def put(self, seen: Observation) -> None:
        """Change the truth and send the news."""
        self.objects[seen.uid] = seen
        self.news.append((seen.uid, seen))

    def remove(self, uid: str) -> None:
        self.objects.pop(uid, None)
        self.going.discard(uid)
        self.news.append((uid, None))

    def blame(self, seen: Observation, failure_class: str) -> None:
        key = (seen.role, seen.index, seen.attempt)
        self.classes.setdefault(key, set()).add(failure_class)

    def alive(self) -> list[Observation]:
        return [o for o in self.objects.values() if o.state not in ENDED or o.in_place]


@dataclass
class Simulation:
    """One run of one job, driven step by step by a test."""

    job: ResolvedJob
    activate_all: bool = True
    now: float = 1000.0
    steps: int = 0
    stay: bool = False
    """Instances wait after a failure, so that the next attempt can begin in them."""
    in_place: int = 0
    """How many did."""

    def __post_init__(self) -> None:
        self.world = World()
        self.stored: Ledger = new_ledger(self.job, now=self.now, activate_all=self.activate_all)
        self.requests: list[Request] = []
        self.commits: list[CheckpointCommit] = []
        self.rejected: list[tuple[InstanceKey, RejectedCheckpoint]] = []
        self.events: list[Event] = []
        self.view: dict[str, Observation] | None = None
        self.generation = 1
        self.reachable = True
        self.done = False
        self.finished: dict[InstanceKey, int] = {}
        self.ends: dict[tuple[int, str], str] = {}
        self.free_restarts = 0
        """Pauses, scalings and reopenings: attempts then move without a charge."""

    # the caller ---------------------------------------------------------------------------------
    def turn(self, *, die_after: int | None = None) -> None:
        """Decide, persist, act; `die_after` steps the caller is killed."""
        self.steps += 1
        left = iter(range(die_after)) if die_after is not None else None
        seen = None
        if self.view is not None:
            for uid, each in self.world.objects.items():
                if self.now >= self.world.made_at[uid] + SETTLE_SECONDS:
                    self.view.setdefault(uid, each)
            seen = Observations(instances=tuple(self.view.values()), reachable=self.reachable)
        arguments = (self.job, self.stored, self.requests, seen, self.now)
        decision = decide(
            *arguments,
            generation=self.generation,
            committed=self.commits,
            rejected=self.rejected,
            known_reasons=REASONS,
        )
        self._check_repeatable(decision, seen)
        if self._dies(left):
            return
        self._persist(decision.new_ledger, decision.events)
        for action in decision.actions:
            if self._dies(left):
                return
            if isinstance(action, Create):
                self._create(action)
            elif isinstance(action, Delete):
                self._delete(action)
            elif isinstance(action, StopProcess):
                self._stop(action.uid)
            elif isinstance(action, Dismiss):
                self._dismiss(action.uid)
            elif isinstance(action, RestartProcess):
                self._restart(action)
            elif isinstance(action, Release):
                self._release(action.uid)
        if decision.done:
            self._check_drained()
            self.done = True

    def crash(self) -> None:
        """Kill the caller; the next one starts from the store and a fresh snapshot."""
        self.generation += 1
        self.view = None
        self.world.news.clear()

    def _dies(self, left: Iterator[int] | None) -> bool:
        if left is None or next(left, None) is not None:
            return False
        self.crash()
        return True

    def _check_repeatable(self, decision: Any, seen: Observations | None) -> None:
        again = decide(
            self.job,
            decision.new_ledger,
            self.requests,
            seen,
            self.now,
            generation=self.generation,
            committed=self.commits,
            rejected=self.rejected,
            known_reasons=REASONS,
        )
        if again.events or again.new_ledger is not decision.new_ledger:
            raise GuaranteeBrokenError(f"deciding again changes something: {again.events}")
        if again.actions != decision.actions:
            raise GuaranteeBrokenError("deciding again does not repeat the actions")

    def _persist(self, ledger: Ledger, events: tuple[Event, ...]) -> None:
        self._check_ends(ledger)
        self._check_sizes(ledger)
        for key, entry in ledger.instances.items():
            if key in self.finished and entry.attempt != self.finished[key]:
                raise GuaranteeBrokenError(f"{key} had succeeded and runs again")
            if entry.final and entry.reason == reasons.COMPLETED:
                self.finished[key] = entry.attempt
        self.stored = ledger
        self.events += events

    def _check_ends(self, ledger: Ledger) -> None:
        now = {"job": ledger.job.state, **{n: r.state for n, r in ledger.roles.items()}}
        for name, state in now.items():
            before = self.ends.get((ledger.job.epoch, name))
            if before is not None and before != state:
                raise GuaranteeBrokenError(f"{name} was {before} and is {state}")
            if state in TERMINAL_JOB_STATES:
                self.ends[ledger.job.epoch, name] = state

    def _check_sizes(self, ledger: Ledger) -> None:
        """An elastic role has at least its least, at most all, and as many members as it says."""
        if ledger.job.state in TERMINAL_JOB_STATES:
            return
        for role in self.job.roles:
            now = ledger.roles[role.name]
            if now.reduced is None:
                continue
            team = [e for e in ledger.instances.values() if e.role == role.name and not e.retired]
            members = sum(not each.joining for each in team)
            if not (role.min_replicas or 1) <= now.replicas < now.reduced.full == len(team):
                raise GuaranteeBrokenError(
                    f"{role.name} goes on with {now.replicas}: {now.reduced}"
                )
            if members != now.replicas:
                raise GuaranteeBrokenError(f"{role.name}: {members} members of {now.replicas}")

    # effects on the world -----------------------------------------------------------------------
    def _create(self, action: Create) -> None:
        world = self.world
        key = (action.role, action.index)
        if key in self.finished:
            raise GuaranteeBrokenError(f"{key} had succeeded and is created again")
        attempt = (action.epoch, action.job_attempt, action.attempt)
        for each in world.objects.values():
            if (each.role, each.index) != key:
                continue
            if (each.epoch, each.job_attempt, each.attempt) == attempt:
                return  # adopted
            if self.view is not None and each.uid in self.view:
                raise GuaranteeBrokenError(f"{key} would live twice: {each.uid} was known")
            return  # refused: the runtime knows better
        world.count += 1
        uid = f"{action.role}-{action.index}-{action.attempt}-{world.count}"
        world.made_at[uid] = self.now
        world.put(
            Observation(
                key=action.key,
                uid=uid,
                attempt_id=replace(action.attempt_id, generation=self.generation),
                state="pending",
                held=action.held,
                scheduled=False,
                state_since=self.now,
                in_place=self.stay,
                environment=(json.dumps({"at": self.now, "on": "exit"}),) if self.stay else (),
            )
        )

    def _restart(self, action: RestartProcess) -> None:
        """Begin the attempt in the object that waits for it, at once or not at all."""
        old = self.world.objects.get(action.uid)
        if old is None or not (old.in_place and old.state in ENDED):
            return
        self.world.remove(old.uid)
        self._create(Create(key=action.key, attempt_id=action.attempt_id))
        self.in_place += 1

    def _stop(self, uid: str) -> None:
        seen = self.world.objects.get(uid)
        if seen is not None and seen.state in ("pending", "running"):
            self.world.stopping.add(uid)
            self.world.put(replace(seen, state="terminating", state_since=self.now))

    def _dismiss(self, uid: str) -> None:
        seen = self.world.objects.get(uid)
        if seen is not None and seen.state in ENDED:
            self.world.put(replace(seen, in_place=False))

    def _delete(self, action: Delete) -> None:
        seen = self.world.objects.get(action.uid)
        if seen is None:
            return
        if seen.state in ENDED:
            self.world.remove(seen.uid)
        elif seen.uid not in self.world.going:
            self.world.going.add(seen.uid)
            if seen.state != "unknown":
                self.world.put(replace(seen, state="terminating", state_since=self.now))

    def _release(self, uid: str) -> None:
        seen = self.world.objects.get(uid)
        if seen is not None and seen.held:
            self.world.put(replace(seen, held=False))

    # what happens in the world ------------------------------------------------------------------
    def pick(self, number: int, *states: str) -> Observation | None:
        """Return one object in one of these states, chosen by a number."""
        found = [o for o in self.world.objects.values() if o.state in states]
        return found[number % len(found)] if found else None

    def progress(self, number: int) -> None:
        """Let one object take its next natural step: scheduled, running, or gone."""
        uid = sorted(self.world.going)[number % len(self.world.going)] if self.world.going else ""
        seen = self.world.objects.get(uid)
        if seen is not None and seen.state != "unknown":
            self.world.remove(uid)
        elif self._stopped(number) or self._tired(number):
            pass
        elif (seen := self.pick(number, "pending")) is None:
            return
        elif not seen.scheduled:
            self.world.put(replace(seen, scheduled=True))
        elif not seen.held:
            self.world.put(
                replace(
                    seen,
                    state="running",
                    address_live=True,
                    port_open=True,
                    ready=True,
                    started_at=self.now,
                    state_since=self.now,
                )
            )

    def _stopped(self, number: int) -> bool:
        """Let something that was told to end its process do so."""
        stopping = sorted(self.world.stopping & self.world.objects.keys())
        if not stopping:
            return False
        seen = self.world.objects[stopping[number % len(stopping)]]
        self.world.stopping.discard(seen.uid)
        if seen.state == "terminating":
            self._end(seen, state="failed", signal=15, reason="Stopped")
        return True

    def _tired(self, number: int) -> bool:
        """Let something that waits now and then stop waiting by itself."""
        seen = self.pick(number, "failed")
        if number % 5 or seen is None or not seen.in_place:
            return False
        self.world.put(replace(seen, in_place=False))
        return True

    def succeed(self, number: int) -> None:
        seen = self.pick(number, "running")
        if seen is not None:
            facts = {"state": "succeeded", "exit_code": 0, "reason": "Completed"}
            self._end(seen, **facts, in_place=False)
            if self.job.role(seen.role).restart_policy == "Always":
                self.world.blame(seen, "user")

    def fail(self, number: int, death: int) -> None:
        seen = self.pick(number, "running")
        if seen is not None:
            failure_class, facts = DEATHS[death % len(DEATHS)]
            self.world.blame(seen, failure_class)
            # seen as `terminating` before it ended, it counts as deleted by somebody else
            stays = seen.in_place and facts["reason"] == "Error" and "disrupted" not in facts
            self._end(seen, state="failed", in_place=stays, **facts)

    def commit(self) -> None:
        """Let a job with checkpoints have a newer one."""
        if self.job.checkpoint is not None:
            step = 10 * (len(self.commits) + 1)
            self.commits.append(CheckpointCommit(uri="ckpt", step=step, digest="d", at=self.now))

    def vanish(self, number: int) -> None:
        """Let an object disappear, whatever it was doing."""
        seen = self.pick(number, "pending", "running", "unknown", "terminating", *ENDED)
        if seen is not None:
            self.world.blame(seen, "infrastructure")
            self.world.remove(seen.uid)

    def lose_node(self, number: int) -> None:
        seen = self.pick(number, "running", "pending")
        if seen is not None:
            self.world.blame(seen, "infrastructure")
            self.world.put(replace(seen, state="unknown", held=False, state_since=self.now))

    def find_node(self, number: int) -> None:
        """Let an object that nobody heard of speak again."""
        seen = self.pick(number, "unknown")
        if seen is not None:
            state: Any = "terminating" if seen.uid in self.world.going else "running"
            self.world.put(replace(seen, state=state, scheduled=True, state_since=self.now))

    def _end(self, seen: Observation, **facts: Any) -> None:
        self.world.going.discard(seen.uid)
        self.world.put(
            replace(
                seen,
                address_live=False,
                port_open=False,
                ready=False,
                finished_at=self.now,
                state_since=self.now,
                **facts,
            )
        )

    # what the caller hears ----------------------------------------------------------------------
    def resync(self) -> None:
        """Give a full snapshot of the truth."""
        self.view = dict(self.world.objects)
        self.world.told += self.world.news
        self.world.news.clear()

    def deliver(self, number: int) -> None:
        """Bring any one of the waiting news, not only the oldest."""
        if self.world.news:
            self._hear(self.world.news.pop(number % len(self.world.news)))

    def drop(self, number: int) -> None:
        """Lose one of the waiting news for good; only a full snapshot repairs that."""
        if self.world.news:
            self.world.told.append(self.world.news.pop(number % len(self.world.news)))

    def repeat(self, number: int) -> None:
        """Bring old news again."""
        del self.world.told[:-50]
        if self.world.told:
            self._hear(self.world.told[number % len(self.world.told)])

    def _hear(self, news: tuple[str, Observation | None]) -> None:
        self.world.told.append(news)
        if self.view is None:
            return
        uid, seen = news
        if seen is None:
            self.view.pop(uid, None)
        else:
            self.view[uid] = seen

    # what people want ---------------------------------------------------------------------------
    def ask(self, kind: RequestKind, name: str = "", replicas: int | None = None) -> None:
        if kind in ("pause", "scale", "reopen"):
            self.free_restarts += 1
        if kind == "reopen":
            self.done = False
        number = len(self.requests) + 1
        self.requests.append(
            Request(id=number, kind=kind, role=name, replicas=replicas, at=self.now)
        )

    # the end ------------------------------------------------------------------------------------
    def quiet_down(self, *, limit: int = 3000) -> None:
        """No more faults: everything that runs succeeds; the job must end and leave nothing."""
        self.reachable = True
        if self.stored.job.paused_at is not None or any(r.kind == "pause" for r in self.requests):
            self.ask("resume")
        for name in self.stored.roles:
            self.ask("activate", name)
        for _ in range(limit):
            if self.done and all(r.id <= self.stored.job.seen_request for r in self.requests):
                break
            self.done = False
            self.now += 5.0
            for number in range(len(self.world.objects)):
                self.find_node(number)
                self.progress(number)
                self.succeed(number)
            self.resync()
            self.turn()
        else:
            job = self.stored.job
            raise GuaranteeBrokenError(f"no end after {limit} turns: {job.state} {job.message}")
        self._check_drained()
        self.check_charges()

    def _check_drained(self) -> None:
        alive = self.world.alive()
        if alive:
            raise GuaranteeBrokenError(f"reported finished while alive: {[o.uid for o in alive]}")

    def check_charges(self) -> None:
        """Every restart is charged once, to one class, for something that really happened."""
        charges = [each for each in self.events if each.reason in CHARGES]
        attempts = Counter((each.role, each.index, each.attempt) for each in charges)
        twice = [key for key, number in attempts.items() if number > 1]
        if twice:
            raise GuaranteeBrokenError(f"charged twice: {twice}")
        kept = {(each.role, each.key.index, each.attempt) for each in self.stored.job.restarts}
        began_never = {
            (each.role, each.index, each.attempt)
            for each in self.events
            if each.reason == reasons.INSTANCE_FAILED
        }
        charges = [
            each
            for each in charges
            if (place := (each.role, each.index, each.attempt)) in kept or place not in began_never
        ]
        if len(charges) != len(self.stored.job.restarts):
            raise GuaranteeBrokenError("charges that were told and charges that were kept differ")
        for event, record in zip(charges, self.stored.job.restarts, strict=True):
            allowed = self.world.classes.get((event.role, event.index or 0, event.attempt or 0))
            if record.rule == "minReplicas":  # it found no place
                allowed = {*(allowed or ()), "resource"}
            if not allowed:
                raise GuaranteeBrokenError(
                    f"{event.role}-{event.index} was charged and never failed"
                )
            if record.failure_class not in allowed:
                raise GuaranteeBrokenError(f"charged to {record.failure_class}, was {allowed}")
        alone = self.job.restart.scope == "Instance" and not self.job.failure_policy.rules
        resized = any(each.reason == reasons.GOES_ON_WITH_FEWER for each in self.events)
        if alone and not resized and not self.free_restarts and not self.stored.job.fresh_jobs:
            for (name, index), entry in self.stored.instances.items():
                own = sum((e.role, e.index) == (name, index) for e in charges)
                if entry.attempt != own:
                    raise GuaranteeBrokenError(
                        f"{name}-{index} is at attempt {entry.attempt} after {own} charges"
                    )


Fault = Callable[[Simulation, random.Random], None]

FAULTS: tuple[tuple[int, Fault], ...] = (
    (30, lambda s, r: s.progress(r.randrange(64))),
    (20, lambda s, r: s.deliver(r.randrange(64))),
    (14, lambda s, r: s.resync()),
    (6, lambda s, r: s.succeed(r.randrange(64))),
    (5, lambda s, r: s.fail(r.randrange(64), r.randrange(64))),
    (2, lambda s, r: s.vanish(r.randrange(64))),
    (2, lambda s, r: s.commit()),
    (2, lambda s, r: s.lose_node(r.randrange(64))),
    (3, lambda s, r: s.find_node(r.randrange(64))),
    (4, lambda s, r: s.drop(r.randrange(64))),
    (6, lambda s, r: s.repeat(r.randrange(64))),
    (2, lambda s, r: s.crash()),
    (1, lambda s, r: setattr(s, "reachable", not s.reachable)),
)


def run_seed(seed: int, job: ResolvedJob, *, turns: int, people: bool) -> Simulation:
    """Run one seeded simulation to its end and return it; raises GuaranteeBrokenError.

    `people`: somebody also pauses, resumes, scales, stops and reopens.
    """
    dice = random.Random(seed)
    simulation = Simulation(job, activate_all=dice.random() < 0.7, stay=dice.random() < 0.5)
    weights = [weight for weight, _ in FAULTS]
    for _ in range(turns):
        simulation.now += dice.choice((0.0, 0.1, 1.0, 5.0, 30.0))
        for _, fault in dice.choices(FAULTS, weights, k=dice.randrange(1, 5)):
            fault(simulation, dice)
            simulation.steps += 1
        if dice.random() < 0.02:
            simulation.ask("activate", dice.choice(job.roles).name)
        if people and dice.random() < 0.03:
            _meddle(simulation, dice)
        simulation.turn(die_after=dice.randrange(6) if dice.random() < 0.08 else None)
        if simulation.done and dice.random() < 0.5:
            break
    simulation.quiet_down()
    return simulation


def _meddle(simulation: Simulation, dice: random.Random) -> None:
    kinds: tuple[RequestKind, ...] = ("pause", "resume", "resume", "scale", "stop", "reopen")
    kind = dice.choices(kinds, (4, 4, 4, 4, 1, 1))[0]
    role = dice.choice(simulation.job.roles).name
    simulation.ask(kind, role, dice.randrange(1, 5) if kind == "scale" else None)
