"""Runs on numpy what the planner only describes: one array per device, and steps between them.

Nothing here reads what a step claims to move: elements are counted as they are copied.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

import numpy as np

from airflow_training.planning.reshard.distribution import Distribution
from airflow_training.planning.reshard.steps import ReshardStep

COMBINE = {"sum": np.add, "max": np.maximum, "min": np.minimum}
INTEGERS = np.iinfo(np.int64)
NEUTRAL = {"sum": 0, "max": INTEGERS.min, "min": INTEGERS.max}


@dataclass(frozen=True)
class Sharded:
    """A tensor on its mesh: the part of each device, by the device's number."""

    shape: tuple[int, ...]
    distribution: Distribution
    parts: dict[int, np.ndarray]

    def box(self, device: int) -> tuple[slice, ...]:
        return box(self.distribution, self.shape, device)

    def term(self, device: int) -> int:
        """Return which of the terms this device holds."""
        mesh = self.distribution.mesh
        place = mesh.devices.index(device)
        return int(mesh.index(*self.distribution.partial)[place])


def box(distribution: Distribution, shape: tuple[int, ...], device: int) -> tuple[slice, ...]:
    place = distribution.mesh.devices.index(device)
    return tuple(slice(int(a), int(b)) for a, b in distribution.bounds(shape)[place])


def distribute(value: np.ndarray, distribution: Distribution, seed: int = 0) -> Sharded:
    """Cut `value` into parts; terms are random numbers that combine to it."""
    random = np.random.default_rng(seed)
    mesh = distribution.mesh
    terms = [random.integers(-9, 9, value.shape) for _ in range(mesh.size(*distribution.partial))]
    if distribution.reduction == "sum":
        terms[-1] = value - sum(terms[:-1], np.zeros_like(value))
    elif distribution.reduction == "max":
        terms = [np.minimum(term, value) for term in terms[:-1]] + [value]
    else:
        terms = [np.maximum(term, value) for term in terms[:-1]] + [value]
    parts = {
        device: terms[term][box(distribution, value.shape, device)]
        for device, term in zip(mesh.devices, mesh.index(*distribution.partial), strict=True)
    }
    return Sharded(value.shape, distribution, parts)


def collect(tensor: Sharded) -> np.ndarray:
    """Return the whole value; every replica has to agree."""
    distribution, mesh = tensor.distribution, tensor.distribution.mesh
    wholes = []
    for replica in mesh.groups(*[a for a in mesh.axes if a not in distribution.replicated]):
        whole = np.full(tensor.shape, NEUTRAL[distribution.reduction], dtype=np.int64)
        seen = np.zeros(tensor.shape, dtype=np.int64)
        for place in replica:
            device = mesh.devices[place]
            where = tensor.box(device)
            assert tensor.parts[device].shape == whole[where].shape
            whole[where] = COMBINE[distribution.reduction](whole[where], tensor.parts[device])
            seen[where] += 1
        assert (seen == mesh.size(*distribution.partial)).all(), "gaps or overlaps"
        wholes.append(whole)
    assert all(np.array_equal(whole, wholes[0]) for whole in wholes), "replicas differ"
    return wholes[0]


def perform(step: ReshardStep, tensor: Sharded) -> tuple[Sharded, int]:
    """Run one step; return the tensor as it lies then, and the elements that devices received."""
    before, mesh = tensor.distribution, step.source.mesh
    assert before.mesh == mesh
    assert before.partial == step.source.partial
    assert np.array_equal(before.bounds(tensor.shape), step.source.bounds(tensor.shape))
    run = {"mask": mask, "all_reduce": all_reduce, "reduce_scatter": reduce_scatter}
    return run.get(step.kind, fetch)(step, tensor)


def peers(step: ReshardStep, device: int) -> Iterable[int]:
    """Return the devices that this one may receive from in a step of this kind."""
    mesh = step.source.mesh
    if step.kind == "slice":
        return [device] if device in mesh.devices else []
    if step.kind == "send_recv":
        return mesh.devices
    groups = ([mesh.devices[place] for place in group] for group in mesh.groups(*step.axes))
    return next(group for group in groups if device in group)


def fetch(step: ReshardStep, tensor: Sharded) -> tuple[Sharded, int]:
    """slice, all_gather, all_to_all, send_recv: put a part together from what peers hold."""
    after = Sharded(tensor.shape, step.target, {})
    received = 0
    for device in step.target.mesh.devices:
        whole = np.zeros(tensor.shape, dtype=np.int64)
        have = np.zeros(tensor.shape, dtype=bool)
        for peer in sorted(peers(step, device), key=lambda peer: peer != device):
            if tensor.term(peer) != after.term(device):
                continue
            new = np.zeros(tensor.shape, dtype=bool)
            new[after.box(device)] = True
            held = np.zeros(tensor.shape, dtype=bool)
            held[tensor.box(peer)] = True
            new &= held & ~have
            theirs = np.zeros(tensor.shape, dtype=np.int64)
            theirs[tensor.box(peer)] = tensor.parts[peer]
            whole[new] = theirs[new]
            have |= new
            received += 0 if peer == device else int(new.sum())
        assert have[after.box(device)].all(), f"{step.kind} cannot reach all of device {device}"
        after.parts[device] = whole[after.box(device)]
    return after, received


def mask(step: ReshardStep, tensor: Sharded) -> tuple[Sharded, int]:
    """Pad each part with the neutral element; of equal replicas only the first keeps its value."""
    after = Sharded(tensor.shape, step.target, {})
    mesh = step.source.mesh
    first = mesh.index(*step.axes) == 0
    replicated = set(step.axes) <= set(step.source.replicated)
    for place, device in enumerate(mesh.devices):
        padded = np.full(tensor.shape, NEUTRAL[step.target.reduction], dtype=np.int64)
        if first[place] or not replicated:
            padded[tensor.box(device)] = tensor.parts[device]
        after.parts[device] = padded[after.box(device)]
    return after, 0


def reduce_scatter(step: ReshardStep, tensor: Sharded) -> tuple[Sharded, int]:
    after = Sharded(tensor.shape, step.target, {})
    received = 0
    for device in step.target.mesh.devices:
        total = np.full(tensor.shape, NEUTRAL[step.source.reduction], dtype=np.int64)
        for peer in peers(step, device):
            where = tensor.box(peer)
            total[where] = COMBINE[step.source.reduction](total[where], tensor.parts[peer])
            received += 0 if peer == device else total[after.box(device)].size
        after.parts[device] = total[after.box(device)]
    return after, received


def all_reduce(step: ReshardStep, tensor: Sharded) -> tuple[Sharded, int]:
    """Run a ring: n - 1 rounds reduce one chunk per device, n - 1 rounds hand the sums round."""
    combine = COMBINE[step.source.reduction]
    after = Sharded(tensor.shape, step.target, {})
    received = 0
    mesh = step.source.mesh
    for group in mesh.groups(*step.axes):
        ring = [mesh.devices[place] for place in group]
        n = len(ring)
        chunks = [np.array_split(tensor.parts[device].ravel(), n) for device in ring]
        for round_, me in product(range(n - 1), range(n)):
            chunk = (me - round_ - 1) % n
            chunks[me][chunk] = combine(chunks[me][chunk], chunks[me - 1][chunk])
            received += chunks[me][chunk].size
        for round_, me in product(range(n - 1), range(n)):
            chunk = (me - round_) % n
            chunks[me][chunk] = chunks[me - 1][chunk]
            received += chunks[me][chunk].size
        for me, device in enumerate(ring):
            after.parts[device] = np.concatenate(chunks[me]).reshape(tensor.parts[device].shape)
    return after, received
