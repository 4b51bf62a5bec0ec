"""Processes that write to one store, an operation at a time, in an order that a seed decides.

The real code runs, each process in a thread of its own; a thread that comes to an operation on the store waits
until it is its turn. Used by the tests and by the benchmark.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from airflow_training.checkpoints.errors import StaleGeneration
from airflow_training.checkpoints.group import Group
from airflow_training.checkpoints.records import Manifest
from airflow_training.checkpoints.store import Data
from airflow_training.checkpoints.survey import survey
from tests.checkpoints.groups import assert_is_state_of, save, train
from tests.checkpoints.stores import DictStore
from tests.waiting import PATIENCE


class Turns:
    """Lets one of several threads go on at a time, and for one operation."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._waiting: set[str] = set()
        self._alive: set[str] = set()
        self._chosen: str | None = None

    def start(self, name: str, work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            finally:
                with self._change:
                    self._alive.discard(name)
                    self._change.notify_all()

        self._alive.add(name)
        thread = threading.Thread(target=run, name=name)
        thread.start()
        return thread

    def wait(self, name: str) -> None:
        """As a thread: wait for the turn."""
        with self._change:
            self._waiting.add(name)
            self._change.notify_all()
            assert self._change.wait_for(lambda: self._chosen == name, PATIENCE)
            self._chosen = None
            self._waiting.discard(name)

    def run(self, choose: Callable[[list[str]], str]) -> None:
        """Give turns, each to the one of all who wait that `choose` names, until no thread is left."""
        with self._change:
            while self._alive:
                ready = self._change.wait_for(
                    lambda: self._chosen is None and self._alive <= self._waiting, PATIENCE
                )
                assert ready, f"waiting: {self._waiting}, alive: {self._alive}"
                if self._alive:
                    self._chosen = choose(sorted(self._alive))
                    self._change.notify_all()


class Shared(DictStore):
    """One process's view of a store: every operation needs a turn."""

    def __init__(self, objects: dict[str, bytes], turns: Turns, name: str, *, honest: bool) -> None:
        super().__init__(objects)
        self.written: dict[str, bytes] = {}
        """Every manifest, also those that were deleted since."""
        self._turns = turns
        self._name = name
        self._honest = honest

    def create(self, key: str, data: Data) -> None:
        self._turn(key)
        if not self._honest:
            self.objects.pop(key, None)  # the last one wins
        super().create(key, data)
        if key.startswith("manifests/"):
            self.written[key] = self.objects[key]

    def _get(self, key: str) -> bytes:
        self._turn(key)
        return super()._get(key)

    def list(self, prefix: str) -> list[tuple[str, int]]:
        self._turn(prefix)
        return super().list(prefix)

    def delete(self, key: str) -> None:
        self._turn(key)
        super().delete(key)

    def _turn(self, key: str) -> None:
        if not key.startswith("probes/"):  # several threads at once, about nothing that matters
            self._turns.wait(self._name)


@dataclass
class Outcome:
    acknowledged: list[Manifest] = field(default_factory=list)
    refused: int = 0
    went_on_from: dict[int, int] = field(default_factory=dict)
    """Generation -> the step it went on from."""


def race(seed: int) -> Outcome:
    """Let an old process save while one or two new ones take over; check what is left.

    Raises AssertionError where anything stale counts, or anything acknowledged is lost.
    """
    rng = random.Random(seed)
    objects: dict[str, bytes] = {}
    honest = rng.random() < 0.5
    turns, outcome = Turns(), Outcome()
    old = Group.open(DictStore(objects), keep=99)
    before = train(old, 10, 20)
    stores: list[Shared] = []

    def store_of(name: str) -> Shared:
        stores.append(Shared(objects, turns, name, honest=honest))
        return stores[-1]

    old.store = store_of("old")

    def go_on(group: Group) -> None:
        try:
            for step in range(group.newest_step + 10, group.newest_step + 40, 10):
                if manifest := save(group, step):
                    outcome.acknowledged.append(manifest)
        except StaleGeneration:
            outcome.refused += 1

    def take_over(name: str, order: int) -> None:
        try:
            group = Group.open(store_of(name), order=order, keep=rng.choice([2, 99]))
        except StaleGeneration:
            outcome.refused += 1
            return
        outcome.went_on_from[group.generation] = group.base.step if group.base else 0
        go_on(group)

    threads = [
        turns.start("old", lambda: go_on(old)),
        turns.start("new", lambda: take_over("new", 1)),
    ]
    if rng.random() < 0.5:
        threads.append(turns.start("third", lambda: take_over("third", rng.choice([1, 2]))))
    stretch: list[str] = []

    def choose(names: list[str]) -> str:
        """Let a thread do a stretch of operations: what matters happens while another one stands still."""
        if not stretch or stretch[-1] not in names:
            stretch[:] = [rng.choice(names)] * rng.choice([1, 1, 2, 4, 8, 16, 32])
        return stretch.pop()

    turns.run(choose)
    for thread in threads:
        thread.join()
    contents = [content for store in stores for content in store.written.values()]
    manifests = [*before, *(Manifest.from_bytes(content, what="it") for content in contents)]
    _check(objects, {m.digest: m for m in manifests}, outcome)
    return outcome


def _check(objects: dict[str, bytes], written: dict[str, Manifest], outcome: Outcome) -> None:
    counting = survey(DictStore(objects)).lineage.manifests
    final = Group.open(DictStore(objects), order=9)
    assert final.base is not None
    assert final.base.digest == counting[0].digest
    assert_is_state_of(final, final.base)
    # what counts, and all that was acknowledged, is one line that leads to the newest
    line = set()
    digest: str | None = final.base.digest
    while digest is not None:
        line.add(digest)
        digest = written[digest].parent
    assert {m.digest for m in counting} <= line
    for manifest in outcome.acknowledged:
        assert manifest.digest in line, f"acknowledged and lost: {manifest.save}"
