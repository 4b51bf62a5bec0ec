"""Reservations, starts, kills, restarts and ends in any order, against a model that adds up by hand."""

from __future__ import annotations

import random
from dataclasses import dataclass
from decimal import Decimal

import pytest

from airflow_training.accounts import operations
from airflow_training.accounts.limits import standings
from airflow_training.accounts.refusals import AccountRefused
from airflow_training.state.store import Store
from tests.accounts.samples import HOUR, Training, add_account, reserve_for, set_limit
from tests.state.samples import Clock

LIMIT = 12


@dataclass
class ModelRun:
    """What one submission holds and has used, in hours of its one GPU."""

    hours: int
    number: str
    training: Training | None = None
    used: float = 0.0
    began: float | None = None
    runs: bool = False
    over: bool = False

    def advance(self, hours: float) -> None:
        if self.runs:
            self.used += hours

    def held(self, now: float) -> float:
        ended = self.began is not None and now >= self.began + self.hours * HOUR
        return 0.0 if self.over or ended else max(0.0, self.hours - self.used)


class Play:
    """One random history, played on a store and on the model."""

    def __init__(self, store: Store, clock: Clock, seed: int) -> None:
        self.store, self.clock, self.dice = store, clock, random.Random(seed)
        self.runs: list[ModelRun] = []
        self.granted = self.refused = 0

    @property
    def committed(self) -> float:
        return sum(each.used + each.held(self.clock.now) for each in self.runs)

    def step(self) -> None:
        moves = [self.submit, self.wait]
        moves += [self.begin, self.interrupt, self.finish, self.give_up, self.settle]
        self.dice.choice(moves)()

    def submit(self) -> None:
        hours = self.dice.randint(1, 5)
        fits = self.committed + hours <= LIMIT
        name = f"run-{self.granted + self.refused}"
        if not fits:
            with pytest.raises(AccountRefused):
                reserve_for(self.store, name, hours=str(hours))
            self.refused += 1
            return
        held = reserve_for(self.store, name, hours=str(hours))
        self.granted += 1
        self.runs.append(ModelRun(hours=hours, number=held.id))

    def wait(self) -> None:
        hours = self.dice.choice([0.25, 0.5, 1.0])
        # whoever goes on beyond its hours is not what this is about: `test_enforcement`
        for each in self.runs:
            left = each.hours - (self.clock.now - (each.began or 0.0)) / HOUR
            if each.runs and hours > min(left, each.hours - each.used):
                self.end(each)
        self.clock.advance(hours * HOUR)
        for each in self.runs:
            each.advance(hours)

    def some(self, *, runs: bool, begun: bool | None = None) -> ModelRun | None:
        found = [
            each
            for each in self.runs
            if each.runs is runs and not each.over
            if begun is None or (each.training is not None) is begun
        ]
        return self.dice.choice(found) if found else None

    def begin(self) -> None:
        run = self.some(runs=False)
        if run is None or (run.began is not None and not run.held(self.clock.now)):
            return
        if run.training is None:
            run.training = Training(self.store, f"training-{run.number}")
            self.store.reservations.attach(run.number, run.training.uid)
            run.training.start()
            run.began = self.clock.now
        else:
            run.training.restart()
        run.runs = True

    def interrupt(self) -> None:
        """Kill or pause it; some time later it begins again."""
        run = self.some(runs=True)
        if run is not None and run.training is not None:
            run.training.finish()
            run.runs = False

    def finish(self) -> None:
        run = self.some(runs=True)
        if run is not None:
            self.end(run)

    def end(self, run: ModelRun) -> None:
        assert run.training is not None
        run.training.finish(state="succeeded")
        run.training.end()
        run.runs, run.over = False, True

    def give_up(self) -> None:
        run = self.some(runs=False, begun=False)
        if run is not None:
            self.store.reservations.release(run.number)
            run.over = True

    def settle(self) -> None:
        for _ in range(self.dice.randint(1, 2)):
            operations.settle(self.store)

    def check(self) -> None:
        (standing,) = standings(self.store.reservations.facts("alice"))
        used = sum(each.used for each in self.runs)
        assert abs(float(standing.used) - used) < 1 / HOUR
        assert abs(float(standing.used + standing.reserved) - self.committed) < 1 / HOUR
        assert standing.used + standing.reserved <= LIMIT + Decimal("0.001")


def play(store: Store, clock: Clock, seed: int, *, steps: int) -> Play:
    add_account(store)
    set_limit(store, str(LIMIT))
    history = Play(store, clock, seed)
    for _ in range(steps):
        history.step()
        history.check()
    return history


@pytest.mark.parametrize("seed", range(3))
def test_no_order_of_events_brings_an_account_beyond_its_limit(store, clock, seed):
    history = play(store, clock, seed, steps=60)
    assert history.granted


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 200))
def test_no_long_order_of_events_brings_an_account_beyond_its_limit(store, clock, seed):
    assert play(store, clock, seed, steps=300).refused
