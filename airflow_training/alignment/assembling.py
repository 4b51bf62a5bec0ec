"""One step of a recorded run over all its ranks, and what of it another run's rank should have.

Replicas hold the samples of a micro-batch between them, in order; everything else is whole on each rank that has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from airflow_training.alignment.records import RecordedRun, TensorRecord, read_step

if TYPE_CHECKING:
    import torch

__all__ = ["Key", "RecordedStep", "StepPair"]

Key = tuple[str, str, int, int]


class RecordedStep:
    """The records of one step of all ranks of a run; values stay on disk until they are used."""

    def __init__(self, run: RecordedRun, step: int) -> None:
        self.run = run
        self.ranks: list[dict[Key, TensorRecord]] = [
            {each.key: each for each in read_step(run.folder, rank=rank, step=step)}
            for rank in range(run.plan.devices)
        ]

    @cached_property
    def parts(self) -> dict[Key, dict[int, TensorRecord]]:
        """Of each tensor, what the first rank of each replica has, in the last stage that has it."""
        found: dict[Key, dict[int, TensorRecord]] = {}
        for replica, records in zip(self.run.replicas, self.ranks, strict=True):
            for key, each in records.items():
                before = found.setdefault(key, {}).setdefault(replica, each)
                if each.stage > before.stage:
                    found[key][replica] = each
        return found

    @cached_property
    def rounding(self) -> float:
        """What all stages together may differ by, in units."""
        by_stage: dict[int, float] = {}
        for records in self.ranks:
            last: dict[int, float] = {}
            for each in records.values():
                last[each.stage] = max(last.get(each.stage, 0.0), each.rounding)
            for stage, units in last.items():
                by_stage[stage] = max(by_stage.get(stage, 0.0), units)
        return sum(by_stage.values())

    def is_partial(self, each: TensorRecord) -> bool:
        """Tell whether it is what a stage hands on inside a module that ends in a later one."""
        return each.stage < self._last_stages.get(_module_key(each), 0)

    @cached_property
    def _last_stages(self) -> Mapping[Key, int]:
        """The last of the stages on which parts of a module lie; how many outputs each of these has is another matter."""
        found: dict[Key, int] = {}
        for records in self.ranks if self.run.piped else ():
            for each in records.values():
                if each.kind.startswith("output"):
                    key = _module_key(each)
                    found[key] = max(found.get(key, 0), each.stage)
        return found

    @cached_property
    def overflowed(self) -> bool:
        """Whether gradients overflowed in fp16: then the update was left out, on all ranks."""
        return self.run.plan.precision == "fp16" and not self.gradients()

    def gradients(self) -> Mapping[str, torch.Tensor]:
        """The gradient of each parameter, by its name."""
        return {
            key[1]: next(iter(parts.values())).value
            for key, parts in self.parts.items()
            if key[0] == "gradient"
        }


class StepPair:
    """The same step of two runs: the first is what the second should equal."""

    def __init__(self, first: RecordedStep, second: RecordedStep) -> None:
        self.first = first
        self.second = second
        one, other = first.run.plan, second.run.plan
        self._same_batches = one.micro_batch * one.dp == other.micro_batch * other.dp

    def is_left_out(self, each: TensorRecord, side: RecordedStep) -> bool:
        """Tell whether nothing stands on the other side for a record."""
        if not each.kind.startswith("output"):
            return False
        first = self.first.parts.get(each.key)
        return (
            not self._same_batches
            or side.is_partial(each)
            or (first is not None and self.first.is_partial(next(iter(first.values()))))
        )

    def references(self, each: TensorRecord, side: RecordedStep) -> list[TensorRecord]:
        """What a record of `side` may stand for in the first run: one, or the outputs of a module that a trace has cut down."""
        found = self.first.parts.get(each.key)
        if found:
            return [next(iter(found.values()))]
        if not (side.run.piped or self.first.run.piped) or not each.kind.startswith("output"):
            return []
        found_parts = (next(iter(parts.values())) for parts in self.first.parts.values())
        return [part for part in found_parts if _module_key(part) == _module_key(each)]

    def expected(
        self, each: TensorRecord, reference: TensorRecord, side: RecordedStep, replica: int
    ) -> torch.Tensor | None:
        """What a rank of `side` should have; None where it has only a part of a sum."""
        if not each.kind.startswith("output"):
            return reference.value
        ours, theirs = side.parts.get(each.key, {}), self.first.parts[reference.key]
        scale = _loss_scale(side.run) / _loss_scale(self.first.run)
        if each.kind != "output gradient":
            scale = 1
        if len(ours) == len(theirs) and replica in theirs:
            return _scaled(theirs[replica].value, scale)
        shapes = [tuple(ours[number].value.shape) for number in sorted(ours)]
        whole = [tuple(theirs[number].value.shape) for number in sorted(theirs)]
        dimension = _split_dimension(shapes, whole)
        if dimension is None:
            return None if each.kind == "output gradient" else reference.value
        import torch

        together = [theirs[number].value for number in sorted(theirs)]
        joined = together[0] if len(together) == 1 else torch.cat(together, dimension)
        begin = sum(ours[number].value.shape[dimension] for number in ours if number < replica)
        part = joined.narrow(dimension, begin, ours[replica].value.shape[dimension])
        return _scaled(part, scale)

    def absent(self) -> Iterator[TensorRecord]:
        """Yield what the first run computed and no rank of the second."""
        for key, parts in self.first.parts.items():
            each = next(iter(parts.values()))
            piped = self.second.run.piped or self.first.run.piped
            if key in self.second.parts or (
                each.kind.startswith("output") and (piped or not self._same_batches)
            ):
                continue  # traced stages have no operators but those that compute
            yield each


def _module_key(each: TensorRecord) -> Key:
    """The key of the output of a module, whichever of its outputs it is."""
    return each.kind, each.name.partition("[")[0], each.micro_batch, each.call


def _loss_scale(run: RecordedRun) -> int:
    """How often the loss of one pass counts in the mean: its gradients inside the module are larger by that."""
    return run.plan.dp * (run.plan.micro_batches if run.piped else 1)


def _scaled(value: torch.Tensor, scale: float) -> torch.Tensor:
    return value if scale == 1 else value * scale


def _split_dimension(
    ours: Sequence[tuple[int, ...]], theirs: Sequence[tuple[int, ...]]
) -> int | None:
    """Find the one dimension in which the replicas' parts on both sides add up to the same.

    Replicas may have unlike numbers of rows, as of what a router gives an expert.
    """
    every = [*ours, *theirs]
    if len({len(each) for each in every}) != 1:
        return None
    for dimension in range(len(every[0])):
        around = {(each[:dimension], each[dimension + 1 :]) for each in every}
        sums = [sum(each[dimension] for each in side) for side in (ours, theirs)]
        if len(around) == 1 and sums[0] == sums[1]:
            return dimension
    return None
