"""Real processes that save and are killed, again and again, in one store. Used by the tests and by the benchmark.

    python -m tests.checkpoints.kills ROOT --world 2 --kills 40

It forks the processes of each life from itself, which has no threads, so a life costs milliseconds. Half of them
end at a random moment, half at a chosen operation on the store: before it, after it, or in the middle of a write.
Prints one JSON document.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from airflow_training.checkpoints.agreement import StoreAgreement
from airflow_training.checkpoints.group import Group
from airflow_training.checkpoints.store import Data, LocalStore, ObjectStore, _pieces, open_store
from tests.checkpoints.groups import assert_is_state_of, save

INTERVAL = 3
"""Steps between two saves."""
OPERATIONS = 40
"""About as many as a start takes, or two saves do."""
LONGEST_SECONDS = 0.1
"""How long a life lasts, or goes on after its start."""


@dataclass
class Result:
    kills: int = 0
    at_protocol_steps: int = 0
    restores: int = 0
    torn: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    """Starts that went on from an older step than one that was acknowledged."""
    most_repeated: int = 0
    """Steps that a start had to run again."""
    last_step: int = 0
    last_saved: int = 0


@dataclass(frozen=True)
class Death:
    """When a process is killed: at its nth operation on the store."""

    at: int
    where: str
    """before, inside or after it"""
    after_start: bool
    """Count from the moment on when it had found where to go on."""


class Deadly:
    """A store whose process is killed at its nth operation."""

    def __init__(self, store: ObjectStore, death: Death) -> None:
        self._store = store
        self._death = death
        self._count = itertools.count(1)  # the probe counts in several threads
        self._counts = not death.after_start
        self.uri = store.uri
        self.workers = 1

    def started(self) -> None:
        self._counts = True

    def _operation(self, work: Callable[[], object], content: bytes = b"") -> object:
        if not self._counts or next(self._count) != self._death.at:
            return work()
        if self._death.where == "inside" and isinstance(self._store, LocalStore):
            folder = Path(self.uri, ".unfinished")
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "half").write_bytes(content[: len(content) // 2])
        if self._death.where == "after":
            with contextlib.suppress(Exception):
                work()
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable")

    def create(self, key: str, data: Data) -> None:
        content = b"".join(_pieces(data))
        self._operation(lambda: self._store.create(key, content), content)

    def __getattr__(self, name: str) -> object:
        method = getattr(self._store, name)
        return lambda *arguments: self._operation(lambda: method(*arguments))


def live(root: str, *, life: int, rank: int, world: int, tell: int, store: ObjectStore) -> None:
    """Be one rank of a training: go on from where the last life was, save, never end."""

    def say(what: str, step: int) -> None:
        os.write(tell, f"{what} {step}\n".encode())

    incarnation = f"0.0.{life}"
    agreement = StoreAgreement(root, rank=rank, world=world, incarnation=incarnation, seconds=20)
    group = Group.open(
        store,
        rank=rank,
        world=world,
        incarnation=incarnation,
        order=life,
        agreement=agreement if world > 1 else None,
        keep=3,
    )
    step = 0
    if group.base is not None:
        assert_is_state_of(group, group.base)
        step = group.base.step
    say("restored", step)
    if isinstance(store, Deadly):
        store.started()
    while True:
        step += 1
        say("step", step)
        if step % INTERVAL == 0 and save(group, step) is not None:
            say("saved", step)


def _start(root: str, *, life: int, rank: int, world: int, death: Death | None) -> tuple[int, int]:
    """Return pid and the end of the pipe on which the process tells what it does."""
    listen, tell = os.pipe()
    pid = os.fork()
    if pid:
        os.close(tell)
        return pid, listen
    try:
        store = open_store(root)
        if death:
            store = Deadly(store, death)  # type: ignore[assignment]  # all methods are there
        live(root, life=life, rank=rank, world=world, tell=tell, store=store)
    except BaseException:  # noqa: BLE001  # whatever it is, the parent has to know
        os.write(tell, f"torn {json.dumps(traceback.format_exc())}\n".encode())
    os._exit(1)


def _ended(pid: int) -> bool:
    """Return whether a child has ended; it stays to be waited for."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _end(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _words(listen: int) -> list[tuple[str, str]]:
    with os.fdopen(listen, encoding="utf-8") as file:
        lines = [line.partition(" ") for line in file.read().splitlines()]
    return [(what, value) for what, _, value in lines]


def run(root: str, *, world: int, kills: int, seed: int = 0) -> Result:
    """Return what came of so many lives, each ended by a kill."""
    rng = random.Random(seed)
    result = Result()
    for life in range(kills):
        victim, after_start = rng.randrange(world), rng.random() < 0.6
        death = None
        if life % 2:
            at, where = life // 2 % OPERATIONS + 1, rng.choice(["before", "inside", "after"])
            death = Death(at, where, after_start)
            result.at_protocol_steps += 1
        children = [
            _start(root, life=life, rank=r, world=world, death=death if r == victim else None)
            for r in range(world)
        ]
        pids = [pid for pid, _ in children]
        if death is not None:
            while not _ended(pids[victim]):
                time.sleep(0.001)
        else:
            if after_start:  # the first word is that it goes on
                select.select([children[victim][1]], [], [])
            time.sleep(rng.random() * LONGEST_SECONDS)
        _end(pids[victim])
        result.kills += 1
        for pid in pids:
            if pid != pids[victim]:
                time.sleep(rng.random() * 0.005)  # a failure is not noticed at once
                _end(pid)
        said = [(rank, *word) for rank, (_, pipe) in enumerate(children) for word in _words(pipe)]
        _judge(result, life, said)
    return result


def _judge(result: Result, life: int, said: list[tuple[int, str, str]]) -> None:
    """Add what a life has shown."""
    for rank, what, value in said:
        if what == "torn":
            result.torn.append(f"life {life}, rank {rank}: {json.loads(value)}")
        if what == "restored":
            result.restores += 1
            if int(value) < result.last_saved:
                result.lost.append(f"life {life}, rank {rank}: {value} after {result.last_saved}")
            result.most_repeated = max(result.most_repeated, result.last_step - int(value))
    for _, what, value in said:
        if what == "step":
            result.last_step = max(result.last_step, int(value))
        if what == "saved":
            result.last_saved = max(result.last_saved, int(value))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("root")
    parser.add_argument("--world", type=int, default=1)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    result = run(chosen.root, world=chosen.world, kills=chosen.kills, seed=chosen.seed)
    json.dump(asdict(result), sys.stdout)


if __name__ == "__main__":
    main()
