"""Which bytes of which files each rank reads, and in which order its samples come. Pure; numpy only.

Every rank computes the same answer from the same sizes and counts, so nothing is agreed on.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy

__all__ = ["FilePart", "ShareOrder", "Stage", "cut", "fill_passes", "left_over", "loads"]

_EVEN_ENOUGH = 1.05
"""The largest share against the mean, up to which files stay whole."""


@dataclass(frozen=True)
class FilePart:
    """What one rank reads of a file: what begins in these bytes, or in that part of its rows."""

    file: int
    """Its number in the list."""
    start: int
    stop: int
    """Bytes; the whole file is 0 to its size."""


def cut(sizes: Sequence[int], parts: int, *, splittable: bool) -> list[list[FilePart]]:
    """Cut files into parts of about equal bytes.

    Whole files are dealt out, the largest first to whoever has least. Where that leaves a share that
    is more than 5 % above the mean, and files may be split, the files in their order are cut into
    stretches of equal bytes instead: then no two shares differ by more than a byte.

    Args:
        sizes: of the files, in bytes.
        parts: number of ranks.
        splittable: whether a rank can begin in the middle of a file.

    Returns: for each rank what it reads, in the order of the files. Each byte is in one part.
    """
    dealt = _deal(sizes, parts)
    mean = sum(sizes) / parts
    if not splittable or max(loads(dealt)) <= mean * _EVEN_ENOUGH:
        return dealt
    return _stretches(sizes, parts)


def loads(shares: Sequence[Sequence[FilePart]]) -> list[int]:
    """Return the bytes of each share."""
    return [sum(part.stop - part.start for part in share) for share in shares]


def _deal(sizes: Sequence[int], parts: int) -> list[list[FilePart]]:
    shares: list[list[FilePart]] = [[] for _ in range(parts)]
    least = [(0, rank) for rank in range(parts)]
    for file in sorted(range(len(sizes)), key=lambda each: (-sizes[each], each)):
        load, rank = heapq.heappop(least)
        shares[rank].append(FilePart(file, 0, sizes[file]))
        heapq.heappush(least, (load + sizes[file], rank))
    return [sorted(share, key=lambda part: part.file) for share in shares]


def _stretches(sizes: Sequence[int], parts: int) -> list[list[FilePart]]:
    total = sum(sizes)
    shares: list[list[FilePart]] = [[] for _ in range(parts)]
    rank, before = 0, 0
    for file, size in enumerate(sizes):
        start = 0
        while start < size:
            while before + start >= total * (rank + 1) // parts:
                rank += 1
            stop = min(size, total * (rank + 1) // parts - before)
            shares[rank].append(FilePart(file, start, stop))
            start = stop
        before += size
    return shares


@dataclass(frozen=True)
class Stage:
    """A part of an epoch that was trained by one number of ranks."""

    counts: tuple[int, ...]
    """Samples that each rank had before it."""
    done: int
    """Steps of it."""
    batch_size: int

    @property
    def steps(self) -> int:
        """Return how many steps it would have had in all."""
        return max(-(-count // self.batch_size) for count in self.counts)


def _place(count: int, step: int, steps: int) -> int:
    """Return how many of `count` samples are done after `step` of `steps`: all ranks end together."""
    return count * step // steps


def _shuffled(count: int, key: tuple[int, int, int], *, shuffle: bool) -> numpy.ndarray[Any, Any]:
    # the legacy generator: its numbers never change between versions of numpy
    return numpy.random.RandomState(key).permutation(count) if shuffle else numpy.arange(count)


def left_over(
    stages: Sequence[Stage], world: int, *, seed: int, epoch: int, shuffle: bool
) -> list[numpy.ndarray[Any, Any]]:
    """Return for each of `world` ranks the samples of an epoch that no stage has trained.

    Each is a row `(share, sample)`: the share as it was cut for the ranks of the first stage, and the
    number of the sample there. The ranks get equal numbers of them, give or take one.
    """
    lists = [
        numpy.stack([numpy.full(count, rank), numbers], 1)
        for rank, count in enumerate(stages[0].counts)
        for numbers in (_shuffled(count, (seed, epoch, rank), shuffle=shuffle),)
    ]
    for index, stage in enumerate(stages):
        rest = numpy.concatenate(
            [each[_place(len(each), stage.done, stage.steps) :] for each in lists]
        )
        ranks = len(stages[index + 1].counts) if index + 1 < len(stages) else world
        lists = [
            rest[len(rest) * rank // ranks : len(rest) * (rank + 1) // ranks]
            for rank in range(ranks)
        ]
    return lists


def fill_passes(count: int, size: int, passes: int) -> list[tuple[numpy.ndarray[Any, Any], float]]:
    """Cut samples into passes of one size: for each its samples, and as how many of `count` they count.

    Samples that fill no pass come again in as many passes as it takes for each of them to come equally often. Where there
    are not so many left, the first of them count more than the last.
    """
    for full in range(count // size, -1, -1):
        rest = count - full * size
        more = rest // math.gcd(rest, size)
        if full + more <= passes:
            break
    else:
        full, more = count // size, 1
        rest = count - full * size
    whole = [(numpy.arange(each * size, (each + 1) * size), float(size)) for each in range(full)]
    again = numpy.resize(numpy.arange(full * size, count), more * size)
    return whole + [(part, rest / more) for part in numpy.split(again, max(more, 1)) if len(part)]


class ShareOrder:
    """The place of a training in its data: an epoch, and the stages of it that are done.

    Each rank takes the samples of its own share in an order that follows from seed, epoch and rank.
    All ranks make the same number of steps: where a share is smaller, so are its batches. Restored
    with another number of ranks, the rest of the epoch is dealt out anew, so that no sample is trained
    twice in an epoch, nor left out. The state is the same on all ranks.
    """

    def __init__(
        self,
        *,
        rank: int,
        batch_size: int,
        seed: int,
        shuffle: bool,
        files: str,
        recipe: Mapping[str, str],
    ) -> None:
        """Take what the order follows from.

        Args:
            rank: of this process.
            batch_size: samples that it takes in a step.
            seed: of the order.
            shuffle: whether there is another order than that of the files.
            files: a digest of the list of files.
            recipe: what else has to be the same to go on: its name -> its digest.
        """
        self.rank = rank
        self.batch_size = batch_size
        self.seed = seed
        self.shuffle = shuffle
        self.files = files
        self.recipe = dict(recipe)
        self.epoch = 0
        self.before: tuple[Stage, ...] = ()
        """Stages of this epoch by other numbers of ranks."""
        self.counts: tuple[int, ...] = ()
        self.done = 0
        """Steps of this stage."""

    def begin(self, counts: Sequence[int]) -> None:
        """Say how many samples each rank has: at the start of an epoch, or of what is left of one."""
        self.counts = tuple(counts)

    @property
    def steps(self) -> int:
        """Steps of this stage."""
        return Stage(self.counts, 0, self.batch_size).steps

    def sizes(self, step: int) -> list[int]:
        """Return how many samples each rank takes in a step."""
        steps = self.steps
        return [
            _place(count, step + 1, steps) - _place(count, step, steps) for count in self.counts
        ]

    def batches(self) -> Iterator[tuple[int, numpy.ndarray[Any, Any]]]:
        """Yield the number of each step that is left of this stage, and this rank's samples in it."""
        count, steps = self.counts[self.rank], self.steps
        if self.before:  # dealt out shuffled
            numbers = numpy.arange(count)
        else:
            numbers = _shuffled(count, (self.seed, self.epoch, self.rank), shuffle=self.shuffle)
        for step in range(self.done, steps):
            yield step, numbers[_place(count, step, steps) : _place(count, step + 1, steps)]

    def advance(self, step: int) -> None:
        """Say that all steps up to `step` are trained; the last one of an epoch begins the next."""
        self.done = step + 1
        if self.done >= self.steps:
            self.epoch, self.before, self.done = self.epoch + 1, (), 0

    def state_dict(self) -> dict[str, Any]:
        """Return the place; the same on all ranks."""
        stages = [[*each.counts, each.done, each.batch_size] for each in self.before]
        if self.done:
            stages.append([*self.counts, self.done, self.batch_size])
        return {
            "epoch": self.epoch,
            "stages": stages,
            "seed": self.seed,
            "shuffle": self.shuffle,
            "files": self.files,
            "recipe": self.recipe,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a place, also one of another number of ranks.

        Raises:
            ValueError: it is one in other files, or another order.
        """
        for name in ("seed", "shuffle", "files"):
            if state[name] != getattr(self, name):
                told = "list of files" if name == "files" else name
                raise ValueError(
                    f"the checkpoint was saved with another {told}: begin a new run, or restore it"
                )
        saved = state["recipe"]
        if other := [name for name, digest in self.recipe.items() if saved.get(name) != digest]:
            raise ValueError(
                f"the checkpoint was saved with another {' and '.join(other)}: begin a new run with another"
                " checkpoint.uri, which may start from a model by data.initialModel; or restore it"
            )
        self.epoch = int(state["epoch"])
        stages = [
            Stage(tuple(int(each) for each in counts), int(done), int(batch_size))
            for *counts, done, batch_size in state["stages"]
        ]
        self.before, self.counts, self.done = tuple(stages), (), 0

    def resume(self, world: int) -> bool:
        """Go on in the last stage where it was of the same ranks; False where its rest has to be dealt out anew."""
        last = self.before[-1] if self.before else None
        if last is None:
            return True
        if len(last.counts) == world and last.batch_size == self.batch_size:
            self.before, self.counts, self.done = self.before[:-1], last.counts, last.done
            return True
        return False
