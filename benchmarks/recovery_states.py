"""States of subtasks and records of the environment: how fast, how large, and never two states at once."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from airflow_training.agent.environment import Recorder
from airflow_training.agent.package import agent_program
from airflow_training.checkpoints.group import Group
from airflow_training.checkpoints.reading import reference
from airflow_training.control.readiness import required_hardware
from airflow_training.control.reports import ProcessReport, SubtaskState
from airflow_training.control.subtask_snapshot import read_snapshot, write_snapshot
from airflow_training.control.subtasks import (
    STATES,
    Subtasks,
    apply_reports,
    new_subtasks,
    rank_states,
)
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.documents.resolved_blocks import ResolvedCheckpoint
from benchmarks.report import figure, heading, median

RANKS = 16_384
EVENTS = 1_000_000
BATCH = 10_000
SEED = 20_260_101


def events(chance: random.Random, count: int) -> Iterator[ProcessReport]:
    """Yield lines of random ranks, states and numbers, now and then of another generation."""
    for _ in range(count):
        yield ProcessReport(
            rank=chance.randrange(RANKS),
            generation=chance.choice((1, 1, 1, 1, 1, 1, 1, 2)),
            sequence=chance.randrange(1, 300),
            state=chance.choice(STATES),
            verified=(chance.randrange(8),),
        )


def broken_invariants(subtasks: Subtasks) -> int:
    """Return how many ranks are not in exactly one bitmap."""
    once = more = 0
    for bitmap in subtasks.bitmaps.values():
        more |= once & bitmap
        once |= bitmap
    missing = once ^ ((1 << subtasks.world) - 1)
    return more.bit_count() + missing.bit_count()


def invariants() -> None:
    """Take in a million lines in any order, every tenth a second time."""
    chance = random.Random(SEED)
    seen = new_subtasks(RANKS, generation=1)
    broken = backwards = 0
    seconds = 0.0
    lines = [*events(chance, EVENTS - EVENTS // 10)]
    lines += chance.sample(lines, EVENTS // 10)
    chance.shuffle(lines)
    for start in range(0, EVENTS, BATCH):
        before, begun = seen, time.process_time()
        seen = apply_reports(seen, lines[start : start + BATCH])
        seconds += time.process_time() - begun
        broken += broken_invariants(seen)
        if seen.generation == before.generation:
            backwards += sum(
                new < old for new, old in zip(seen.sequences, before.sequences, strict=True)
            )
    figure(
        f"{EVENTS:,} random, reordered, repeated lines: ranks not in one state",
        broken,
        "",
        target="= 0",
    )
    figure("of them: sequence numbers that went back", backwards, "", target="= 0")
    figure("lines taken in, one core", EVENTS / seconds / 1e6, "million/s")


def anything(chance: random.Random) -> Subtasks:
    """Return processes that have nothing in common."""
    bitmaps: dict[SubtaskState, int] = dict.fromkeys(STATES, 0)
    for rank in range(RANKS):
        bitmaps[chance.choice(STATES)] |= 1 << rank
    return Subtasks(
        world=RANKS,
        generation=99_999_999,
        bitmaps=bitmaps,
        sequences=tuple(chance.getrandbits(18) for _ in range(RANKS)),
        full=tuple(range(10**18, 10**18 + 4)),
        partial={10**18 + 9 + n: chance.getrandbits(RANKS) for n in range(4)},
    )


def usual() -> Subtasks:
    """Return processes in the middle of a save."""
    lines = [
        ProcessReport(
            rank=rank,
            generation=3,
            sequence=900 + rank % 3,
            state=("SAVED", "RUNNING", "SAVING")[rank % 3],
            verified=(100, 200),
        )
        for rank in range(RANKS)
    ]
    return apply_reports(new_subtasks(RANKS, generation=3), lines)


def milliseconds(call: Callable[[], object]) -> float:
    """Return the median CPU time of a call."""
    times = []
    for _ in range(15):
        begun = time.process_time()
        call()
        times.append((time.process_time() - begun) * 1e3)
    return median(times)


def sizes() -> None:
    chance = random.Random(SEED)
    digest = "sha256:" + "0" * 64
    for name, subtasks, target in (
        ("nothing in common", anything(chance), "<= 64"),
        ("in the middle of a save", usual(), ""),
    ):
        document = write_snapshot(subtasks, environment=digest)
        assert read_snapshot(json.loads(json.dumps(document))) == subtasks
        size = len(json.dumps(document)) / 1024
        figure(f"snapshot of {RANKS:,} subtasks, {name}", size, "KiB", target=target)
        figure(
            "its making, with the checksum", milliseconds(partial(write_snapshot, subtasks)), "ms"
        )
        figure("its reading and checking", milliseconds(partial(read_snapshot, document)), "ms")
    assert len(rank_states(usual())) == RANKS


def records() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        recorder = Recorder(
            path / "environment.jsonl", progress=path / "none", own_cgroup=False, root=1
        )
        took = milliseconds(lambda: recorder.record("interval"))
        line = recorder.record("interval")
        manifest = _one_save(path)
    figure("record of the environment: CPU every 10 s", took, "ms")
    figure("its size, every process of this machine in it", len(line) / 1024, "KiB", target="<= 8")
    figure("reference of a checkpoint, as in XCom", manifest / 1024, "KiB", target="<= 1")


_LOOK = """
import json, os, resource, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from airflow_training.agent.preflight import PreflightCheck

root = str(Path(sys.argv[2], "checkpoints"))
told = {"root": root, "incarnation": "0.0.1", "initial": None}
def used():
    return time.process_time() + sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
before, begun = used(), time.monotonic()
look = PreflightCheck(
    json.loads(sys.argv[3]), folder=Path(sys.argv[2]), cgroup=None,
    environment={"TRAINING_CHECKPOINT": json.dumps(told)}, say=print,
)
while (verdict := look.poll()) is None:
    time.sleep(look.look_again_seconds)
waited = time.monotonic() - begun
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
assert verdict.ready, verdict.message
print(json.dumps([used() - before, waited]))
"""


def looks() -> None:
    """Look around as agents do before a start: packed, in a process of their own."""
    asked = required_hardware(
        ResolvedJob(name="look", roles=(), checkpoint=ResolvedCheckpoint()), {}
    )
    assert asked is not None
    times = []
    with tempfile.TemporaryDirectory() as folder:
        program = str(agent_program(Path(folder)))
        for _ in range(15):
            words = [
                sys.executable,
                "-I",
                "-S",
                "-c",
                _LOOK,
                program,
                folder,
                json.dumps(asked.to_document()),
            ]
            done = subprocess.run(words, capture_output=True, check=True)
            times.append(json.loads(done.stdout))
    cpu, wall = ([1e3 * each[n] for each in times] for n in (0, 1))
    figure("what is around an instance, checked before its start: CPU", median(cpu), "ms")
    figure("how long the start waits for it", median(wall), "ms", target="<= 100")


def _one_save(folder: Path) -> int:
    root = str(folder / "checkpoints")
    group = Group.open(root)
    group.write(1, {}, document={})
    manifest = group.commit(1, deadline=10.0)
    assert manifest is not None
    return len(json.dumps(reference(root, manifest)))


def main() -> None:
    heading("States of subtasks and environment")
    invariants()
    sizes()
    records()
    looks()


if __name__ == "__main__":
    main()
