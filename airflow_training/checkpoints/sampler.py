"""Which samples a rank trains on next, from nothing but a cursor. Standard library only.

The order of an epoch follows from (seed, epoch, index), so the state of the data is two numbers:
the epoch, and how many of its samples all ranks together have consumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from airflow_training.checkpoints.errors import CheckpointError
from airflow_training.checkpoints.instructions import rank_and_world
from airflow_training.checkpoints.permutation import Permutation
from airflow_training.checkpoints.torch_state import apply_random, random_state

__all__ = ["ResumableSampler"]

Batch = TypeVar("Batch")


class ResumableSampler:
    """Batches of sample numbers for one rank; the `batch_sampler` of a torch `DataLoader`.

        sampler = ResumableSampler(len(dataset), batch_size=16, seed=0)
        loader = DataLoader(dataset, batch_sampler=sampler, num_workers=4)
        for epoch in range(sampler.epoch, epochs):
            for x, y in sampler.batches(loader):
                ...

    Every sample is used exactly once per epoch, over any number of restores and whatever the number
    of ranks was: the last batches of an epoch are shared out evenly, so that all ranks make the same
    number of steps. One thing cannot be shared: fewer samples than ranks. Then ranks repeat a sample
    of that step (a data set smaller than the world, or a world that grew just before an epoch's end).

    What counts as consumed is what `batches` has handed to the loop (or what `advance` was told),
    not what workers of a loader have fetched ahead. `state_dict` is therefore right at every step
    boundary: at the end of the loop's body.

    Args:
        length: Number of samples.
        batch_size: Samples that one rank takes in one step.
        seed: Together with the epoch it decides the order.
        shuffle: False takes the samples in their own order.
        rank: This process, 0 <= rank < world; as launchers set it where not given.
        world: Number of processes that share the samples; as launchers set it where not given.
        drop_last: Leave out the samples of an epoch that do not fill a batch on every rank.

    Raises:
        ValueError: A number is out of range, or no batch would ever be full.
    """

    def __init__(
        self,
        length: int,
        *,
        batch_size: int,
        seed: int = 0,
        shuffle: bool = True,
        rank: int | None = None,
        world: int | None = None,
        drop_last: bool = False,
    ) -> None:
        self.length = length
        self.batch_size = batch_size
        self.seed = seed
        self.shuffle = shuffle
        own_rank, launched = rank_and_world()
        self.rank = own_rank if rank is None else rank
        self.world = launched if world is None else world
        self.drop_last = drop_last
        self._epoch = 0
        self._consumed = 0
        self._handed_out = False
        self._counted = False
        for name, value in (("length", length), ("batch_size", batch_size), ("world", self.world)):
            if value < 1:
                raise ValueError(f"{name} is {value}, allowed: 1 and more")
        self._check_place()

    @property
    def epoch(self) -> int:
        """The epoch that the next batch belongs to, from 0."""
        return self._epoch

    @property
    def samples(self) -> int:
        """Samples that all ranks together have consumed since training began."""
        return self._epoch * self.length + self._consumed

    def divide_among(self, *, rank: int, world: int) -> None:
        """Go on as `rank` of `world` processes, from the next iteration; raises ValueError as at the start."""
        self.rank, self.world = rank, world
        self._check_place()

    def __len__(self) -> int:
        """Return the number of batches of a whole epoch, wherever the cursor stands."""
        steps, rest = divmod(self.length, self._full)
        if rest == 0 or self.drop_last:
            return steps
        return max(steps, 1) if self.batch_size == 1 else steps + 1  # see _step_size

    def __iter__(self) -> Iterator[list[int]]:
        """Yield this rank's batches from the cursor to the end of the epoch."""
        self._handed_out = True
        order = self._order()
        for start, size in self._steps(self._consumed):
            places = range(start + self.rank, start + size, self.world)
            # no sample of its own: a rank without a batch would leave the others waiting
            chosen: Sequence[int] = places or [start + self.rank % size]
            yield [order[place] for place in chosen]

    def batches(self, loader: Iterable[Batch]) -> Iterator[Batch]:
        """Yield what `loader` makes of this sampler's batches, each counted as consumed."""
        # To start a torch loader draws a random number. Within an epoch that was done before.
        drawn = random_state() if self._consumed else None
        iterator = iter(loader)
        if drawn is not None:
            apply_random(drawn)
        for batch in iterator:
            self.advance()
            yield batch

    def advance(self) -> None:
        """Count one more step as consumed; for loops that cannot go through `batches`."""
        self._counted = True
        self._consumed += self._step_size(self.length - self._consumed)
        self._advance_epoch()

    def state_dict(self) -> dict[str, int | bool]:
        """Return the cursor, and what it is valid for; the same on all ranks.

        Raises:
            CheckpointError: Batches were taken and none was counted.
        """
        if self._handed_out and not self._counted:
            raise CheckpointError(
                "the sampler's batches were taken, but none was counted as consumed: "
                "iterate over sampler.batches(loader) instead of the loader"
            )
        return {
            "epoch": self._epoch,
            "consumed": self._consumed,
            "length": self.length,
            "seed": self.seed,
            "shuffle": self.shuffle,
        }

    def load_state_dict(self, state: Mapping[str, int | bool]) -> None:
        """Go on from a saved cursor, also one of another world or batch size.

        Raises:
            CheckpointError: It was saved for other samples or another order.
        """
        for name in ("length", "seed", "shuffle"):
            if state[name] != getattr(self, name):
                raise CheckpointError(
                    f"the checkpoint's sampler had {name} {state[name]!r}, this one has "
                    f"{getattr(self, name)!r}: its cursor means other samples"
                )
        self._epoch = int(state["epoch"])
        self._consumed = int(state["consumed"])
        self._handed_out = self._counted = False
        self._advance_epoch()

    def _check_place(self) -> None:
        if not 0 <= self.rank < self.world:
            raise ValueError(f"rank is {self.rank}, allowed: 0 to {self.world - 1}")
        if self.drop_last and self.length < self._full:
            raise ValueError(
                f"drop_last leaves no batch: {self.length} samples, and {self.world} ranks "
                f"with batch_size {self.batch_size} take {self._full} in a step"
            )

    @property
    def _full(self) -> int:
        return self.world * self.batch_size

    def _order(self) -> Sequence[int] | Permutation:
        if not self.shuffle:
            return range(self.length)
        return Permutation(self.length, f"{self.seed}:{self._epoch}")

    def _steps(self, start: int) -> Iterator[tuple[int, int]]:
        """Yield place and size of each step of an epoch from `start` on, over all ranks."""
        while size := self._step_size(self.length - start):
            yield start, size
            start += size

    def _step_size(self, left: int) -> int:
        """Return how many of the `left` samples of an epoch the next step takes, over all ranks."""
        if left < self._full:
            return 0 if self.drop_last else left
        after = left - self._full
        if self.drop_last or after == 0 or after >= self.world:
            return self._full
        # The last step would have fewer samples than ranks: leave it one for each. Batches of one
        # sample have none to leave, so some ranks take two.
        return left - self.world if left >= 2 * self.world else left

    def _advance_epoch(self) -> None:
        if self._step_size(self.length - self._consumed) == 0:
            self._epoch, self._consumed = self._epoch + 1, 0
