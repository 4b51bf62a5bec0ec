"""The guarantees hold in at least 100,000 steps of a runtime that lies and a caller that dies."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition
from hypothesis.stateful import rule as rule_of

from tests.builders import after, job, role, rule
from tests.control.simulation import Simulation, run_seed
from tests.strategies import jobs

JOBS = {
    "instance": job(role("a", 2), role("b", 2, after("a", "Running")), max_restarts=30),
    "tight": job(role("a", 2, backoff_limit=1), role("b", 1), max_restarts=3, then="FreshJob"),
    "whole-job": job(
        role("master", chief=True),
        role("worker", 2, "master"),
        scope="Job",
        max_restarts=12,
        backoff_initial_seconds=2.0,
        targets=("master",),
    ),
    "role-scope": job(role("a", 2), role("b", 2), scope="Role", max_restarts=20),
    "held": job(
        role("master"),
        role("worker", 3, after("master", listener="Any")),
        startup="createAllHold",
        gang="volcano",
        max_restarts=20,
    ),
    "policies": job(
        role("ps", 1, tracked=False, restart_policy="Always"),
        role("worker", 3, "ps", min_succeeded="50%", min_failed=3, restart_policy="ExitCode"),
        rules=(
            rule("RestartJobAndIgnoreMaxRestarts", on_classes=("preemption",)),
            rule("Ignore", on_classes=("resource",)),
        ),
        max_restarts=6,
        unknown_seconds=20.0,
    ),
    "elastic": job(
        role("worker", 3, min_replicas=1, max_replicas=4, chief=True), elastic=True, max_restarts=20
    ),
    "fewer": job(
        role("worker", 4, min_replicas=2, max_replicas=4, chief=True, backoff_limit=1),
        elastic=True,
        scope="Job",
        max_restarts=3,
        backoff_initial_seconds=2.0,
        unknown_seconds=20.0,
        checkpoint={"uri": "ckpt"},
    ),
    "pipeline": job(
        role("prepare"),
        role("train", 2, after("prepare", "Complete")),
        role("evaluate", 1, after("train", "Ready", require="Any"), restart_policy="Never"),
        failure="All",
        max_restarts=10,
        clean_pod_policy="All",
    ),
}
STEPS = 6_500
"""Of each of the eighteen cases: 117,000 together."""
SAMPLE = 1_000
TURNS = 230


@pytest.mark.parametrize(
    "least", [SAMPLE, pytest.param(STEPS, marks=pytest.mark.e2e)], ids=["sample", "whole"]
)
@pytest.mark.parametrize("people", [False, True], ids=["alone", "with-people"])
@pytest.mark.parametrize("name", JOBS)
def test_guarantees_hold_under_faults(name, people, least):
    """Every run ends, charges each failure once, and leaves nothing alive; see `simulation`."""
    seed = random.Random(f"{name}-{people}").randrange(1 << 30)
    steps = 0
    while steps < least:
        seed += 1
        simulation = run_seed(seed, JOBS[name], turns=TURNS, people=people)
        steps += simulation.steps


NUMBER = st.integers(0, 31)


class Guarantees(RuleBasedStateMachine):
    """The same world, but hypothesis chooses job and faults, and shrinks what it finds."""

    @initialize(spec=jobs(), activate_all=st.booleans())
    def start(self, spec, activate_all):
        self.simulation = Simulation(spec, activate_all=activate_all)

    @rule_of(seconds=st.sampled_from((0.0, 1.0, 10.0, 100.0)))
    def turn(self, seconds):
        self.simulation.now += seconds
        self.simulation.turn()

    @rule_of(steps=st.integers(0, 4))
    def turn_and_die(self, steps):
        self.simulation.turn(die_after=steps)

    @rule_of(number=NUMBER)
    def progress(self, number):
        self.simulation.progress(number)

    @rule_of(number=NUMBER)
    def succeed(self, number):
        self.simulation.succeed(number)

    @rule_of(number=NUMBER, death=NUMBER)
    def fail(self, number, death):
        self.simulation.fail(number, death)

    @rule_of(number=NUMBER)
    def vanish(self, number):
        self.simulation.vanish(number)

    @rule_of(number=NUMBER)
    def lose_node(self, number):
        self.simulation.lose_node(number)

    @rule_of(number=NUMBER)
    def find_node(self, number):
        self.simulation.find_node(number)

    @rule_of()
    def resync(self):
        self.simulation.resync()

    @rule_of(number=NUMBER)
    def deliver(self, number):
        self.simulation.deliver(number)

    @rule_of(number=NUMBER)
    def drop(self, number):
        self.simulation.drop(number)

    @rule_of(number=NUMBER)
    def repeat(self, number):
        self.simulation.repeat(number)

    @rule_of()
    def crash(self):
        self.simulation.crash()

    @rule_of(reachable=st.booleans())
    def reach(self, reachable):
        self.simulation.reachable = reachable

    @rule_of(
        kind=st.sampled_from(("activate", "pause", "resume", "scale", "stop", "reopen")),
        number=NUMBER,
    )
    def ask(self, kind, number):
        roles = self.simulation.job.roles
        replicas = number % 4 + 1 if kind == "scale" else None
        self.simulation.ask(kind, roles[number % len(roles)].name, replicas)

    @invariant()
    @precondition(lambda self: hasattr(self, "simulation"))
    def at_most_one_object_per_instance(self):
        keys = [(o.role, o.index) for o in self.simulation.world.objects.values()]
        assert len(keys) == len(set(keys))

    def teardown(self):
        if hasattr(self, "simulation"):
            self.simulation.quiet_down()


Guarantees.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
TestGuarantees = Guarantees.TestCase
