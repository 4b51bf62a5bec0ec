"""Where each process of a job stands: one bitmap per state over the ranks of all processes. Pure.

A process tells what it does (`ProcessReport`), the runtime shows how its instance does. Both move ranks
along one table, `NEXT`. What is old, repeated or impossible changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args

from airflow_training.control.observations import InstanceState
from airflow_training.control.reports import ProcessReport, SubtaskState

__all__ = [
    "MOST_RANKS",
    "NEXT",
    "OF_INSTANCE",
    "STATES",
    "STEPS_KEPT",
    "Subtasks",
    "apply_instance_states",
    "apply_reports",
    "new_subtasks",
    "rank_states",
]

STATES: tuple[SubtaskState, ...] = get_args(SubtaskState)

NEXT: Mapping[SubtaskState, tuple[SubtaskState, ...]] = {
    "PENDING": ("STARTING", "FAILED"),
    "STARTING": ("RESTORING", "RUNNING", "FAILED", "DONE"),
    "RUNNING": ("SAVING", "FAILED", "DONE"),
    "SAVING": ("SAVED", "RUNNING", "FAILED"),
    "SAVED": ("RUNNING", "FAILED", "DONE"),
    "FAILED": (),
    "RESTORING": ("RUNNING", "FAILED"),
    "DONE": ("FAILED",),
}
"""State -> what may follow at once. Only a new generation leaves FAILED."""

OF_INSTANCE: Mapping[InstanceState, SubtaskState | None] = {
    "pending": "PENDING",
    "running": "STARTING",
    "succeeded": "DONE",
    "failed": "FAILED",
    "terminating": None,
    "unknown": None,
}
"""State of an observed instance -> the least that is true of its processes; None: as they last told."""

MOST_RANKS = 1 << 17
"""Of one job: a number that no job has comes from a broken line."""
STEPS_KEPT = 4
"""Of steps that all ranks have verified, and of later ones that only some have: the newest."""
_MOST_GENERATIONS = 10**8


@dataclass(frozen=True, slots=True, kw_only=True)
class Subtasks:
    """All processes of one checkpoint group. Bit `r` of a bitmap stands for rank `r`.

    Every rank has its bit in exactly one of `bitmaps`.
    """

    world: int
    generation: int
    """Of the fence that the processes work under; 0: none of them has told anything yet."""
    bitmaps: Mapping[SubtaskState, int]
    sequences: tuple[int, ...]
    """Of the newest line taken in, by rank; 0: none in this generation."""
    full: tuple[int, ...] = ()
    """The newest steps that every rank has verified, ascending."""
    partial: Mapping[int, int] = field(default_factory=dict)
    """Step -> ranks that have verified it, for steps newer than all of `full`."""


def new_subtasks(world: int, *, generation: int = 0) -> Subtasks:
    """Return `world` processes of which nothing is known yet."""
    return Subtasks(
        world=world,
        generation=generation,
        bitmaps={**dict.fromkeys(STATES, 0), "PENDING": (1 << world) - 1},
        sequences=(0,) * world,
    )


def apply_reports(subtasks: Subtasks, lines: Iterable[ProcessReport]) -> Subtasks:
    """Progress of subtasks after these lines, in whichever order they came and however often.

    A line of an older generation, or whose sequence number is not greater than the rank's newest,
    changes nothing; nor does a state that cannot follow. A line of a newer generation begins it:
    every rank is PENDING again, and steps have to be verified anew. Where sequence numbers are
    missing between two lines, several steps of the table may lie between them.
    """
    draft = _Draft(subtasks)
    for line in lines:
        draft.take(line)
    return draft.result()


def apply_instance_states(
    subtasks: Subtasks, instances: Mapping[InstanceState, Collection[int]]
) -> Subtasks:
    """Progress of subtasks after a look at the instances: state of the instance -> its ranks.

    It only moves ranks forward in the table: what a process told itself is finer. While none has
    told anything, the instances are all there is, and a new attempt starts from PENDING.
    """
    draft = _Draft(subtasks if subtasks.generation else new_subtasks(subtasks.world))
    for state, ranks in instances.items():
        wanted = OF_INSTANCE[state]
        if wanted is not None:
            for rank in ranks:
                draft.move(rank, wanted)
    return draft.result()


def rank_states(subtasks: Subtasks) -> Sequence[SubtaskState]:
    """Return the state of each rank."""
    found: list[SubtaskState] = ["PENDING"] * subtasks.world
    for state, bitmap in subtasks.bitmaps.items():
        for rank in _ranks(bitmap):
            found[rank] = state
    return found


def _ranks(bitmap: int) -> Iterator[int]:
    digits = f"{bitmap:b}"[::-1]
    rank = digits.find("1")
    while rank >= 0:
        yield rank
        rank = digits.find("1", rank + 1)


def _reachable(state: SubtaskState) -> frozenset[SubtaskState]:
    """Return every state that can follow, after however many steps of the table."""
    found: set[SubtaskState] = set()
    todo = [state]
    while todo:
        new = set(NEXT[todo.pop()]) - found
        found |= new
        todo += new
    return frozenset(found)


_CODE = {state: code for code, state in enumerate(STATES)}
_AT_ONCE = [frozenset(_CODE[each] for each in NEXT[state]) for state in STATES]
_LATER = [frozenset(_CODE[each] for each in _reachable(state)) for state in STATES]


class _Draft:
    """Bitmaps as bytes while many lines are taken in: changing a bit copies none of the others."""

    def __init__(self, subtasks: Subtasks) -> None:
        self._open(subtasks)

    def _open(self, subtasks: Subtasks) -> None:
        self._world = subtasks.world
        self._generation = subtasks.generation
        self._everybody = self._bytes((1 << subtasks.world) - 1)
        self._bitmaps = [self._bytes(subtasks.bitmaps[state]) for state in STATES]
        self._sequences = list(subtasks.sequences)
        self._full = list(subtasks.full)
        self._partial = {step: self._bytes(ranks) for step, ranks in subtasks.partial.items()}

    def result(self) -> Subtasks:
        return Subtasks(
            world=self._world,
            generation=self._generation,
            bitmaps={
                state: int.from_bytes(bitmap, "little")
                for state, bitmap in zip(STATES, self._bitmaps, strict=True)
            },
            sequences=tuple(self._sequences),
            full=tuple(self._full),
            partial={
                step: int.from_bytes(ranks, "little")
                for step, ranks in sorted(self._partial.items())
            },
        )

    def take(self, line: ProcessReport) -> None:
        if line.generation != self._generation and not self._begins(line):
            return
        rank = line.rank
        if not 0 <= rank < self._world:
            return
        ahead = line.sequence - self._sequences[rank]
        if ahead <= 0:
            return
        if self._go(rank, _CODE[line.state], _AT_ONCE if ahead == 1 else _LATER):
            self._sequences[rank] = line.sequence
            for step in line.verified:
                self._verify(rank, step)

    def move(self, rank: int, state: SubtaskState) -> None:
        """Bring a rank to a state that it can reach from where it is."""
        if 0 <= rank < self._world:
            self._go(rank, _CODE[state], _LATER)

    def _go(self, rank: int, new: int, table: Sequence[Collection[int]]) -> bool:
        place, bit = rank >> 3, 1 << (rank & 7)
        for old, bitmap in enumerate(self._bitmaps):
            if bitmap[place] & bit:
                if new not in table[old]:
                    return False
                bitmap[place] ^= bit
                self._bitmaps[new][place] ^= bit
                return True
        return False

    def _begins(self, line: ProcessReport) -> bool:
        """Begin the generation of a line, where it is newer and makes sense."""
        world = self._world if line.world is None else line.world
        if (
            not self._generation < line.generation < _MOST_GENERATIONS
            or not 0 <= line.rank < world <= MOST_RANKS
            or line.sequence < 1
        ):
            return False
        self._open(new_subtasks(world, generation=line.generation))
        return True

    def _verify(self, rank: int, step: int) -> None:
        if step < 0 or (self._full and step <= self._full[-1]):
            return
        ranks = self._partial.setdefault(step, self._bytes(0))
        ranks[rank >> 3] |= 1 << (rank & 7)
        if ranks == self._everybody:
            self._full = [*self._full, step][-STEPS_KEPT:]
            self._partial = {each: of for each, of in self._partial.items() if each > step}
        elif len(self._partial) > STEPS_KEPT:
            del self._partial[min(self._partial)]

    def _bytes(self, bitmap: int) -> bytearray:
        return bytearray(bitmap.to_bytes(self._world + 7 >> 3, "little"))
