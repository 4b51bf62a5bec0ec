"""Ways in which a store may be damaged, and what must come of each. Used by the tests and by the benchmark."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from airflow_training.checkpoints import reading
from airflow_training.checkpoints.documents import canonical, seal, sha256_of, unseal
from airflow_training.checkpoints.group import Group
from airflow_training.checkpoints.keys import SaveId, fence_key, manifest_key, marker_key
from airflow_training.checkpoints.records import Manifest
from airflow_training.checkpoints.survey import survey
from tests.checkpoints.groups import assert_is_state_of, open_group, train_together
from tests.checkpoints.stores import DictStore

WORLD = 2
SAVES = {10: 1, 20: 1, 30: 2, 40: 2}
"""Steps, and the generation that saved each."""


@dataclass(frozen=True)
class Subject:
    """A training of two ranks that was started twice; what it wrote is never changed, only copies of it."""

    objects: dict[str, bytes]
    manifests: dict[int, Manifest]

    @staticmethod
    def make(*, seed: str = "") -> Subject:
        """Return a training; with another seed, another one that saved the same steps."""
        store = DictStore()
        for generation in (1, 2):
            groups = open_group(store, WORLD, keep=9, code=seed)
            train_together(groups, *(step for step, own in SAVES.items() if own == generation))
        manifests = {m.step: m for m in survey(store).lineage.manifests}
        return Subject(store.objects, manifests)

    def copy(self) -> dict[str, bytes]:
        return self.objects.copy()

    def steps_that_need(self, key: str) -> set[int]:
        """Return the steps that cannot be restored without this object."""
        return {step for step, manifest in self.manifests.items() if key in keys_of(manifest)}


def keys_of(manifest: Manifest) -> set[str]:
    """Return every object that a checkpoint consists of."""
    markers = {marker_key(manifest.save, rank) for rank in range(manifest.world)}
    return {manifest_key(manifest.save), *markers, *shards_of(manifest)}


def shards_of(manifest: Manifest) -> list[str]:
    return [shard.key for part in manifest.ranks for shard in part.shards]


def newest_shard(manifest: Manifest, rank: int) -> str:
    """Return a shard that this save was the first to write."""
    return next(s.key for s in manifest.ranks[rank].shards if str(manifest.save) in s.key)


# what must come of it -----------------------------------------------------------------------------


def assert_found(subject: Subject, objects: dict[str, bytes], lost: Collection[int]) -> None:
    """The damage is found, and a start goes on from the newest step that is not lost.

    Args:
        subject: before the damage.
        objects: after it.
        lost: steps that can no longer be restored.
    """
    store = DictStore(objects)
    good = [e.step for e in reading.verify(store) if e.state == "committed"]
    complaints = reading.damaged(store)
    complaints |= {str(e.step): e.state for e in reading.history(store) if e.state != "committed"}
    assert good == [step for step in sorted(subject.manifests, reverse=True) if step not in lost]
    assert complaints or len(good) < len(subject.manifests), "nobody has noticed"

    group = Group.open(DictStore(objects))
    assert (group.base.step if group.base else None) == max(good, default=None)
    if group.base:
        assert_is_state_of(group, group.base)


def flip_a_bit(subject: Subject, key: str, place: int) -> None:
    """Flip one bit of one object and see what comes of it."""
    objects = subject.copy()
    damaged = bytearray(objects[key])
    damaged[place // 8] ^= 1 << place % 8
    objects[key] = bytes(damaged)
    assert_found(subject, objects, subject.steps_that_need(key))


def flip_random_bits(subject: Subject, count: int, rng: random.Random) -> None:
    """Flip one bit per trial, anywhere in shards, markers, manifests and fences."""
    kinds = [
        sorted(key for key in subject.objects if key.startswith(f"{kind}/"))
        for kind in ("shards", "markers", "manifests", "fences")
    ]
    for trial in range(count):
        keys = kinds[trial % len(kinds)]
        key = rng.choice([key for key in keys if subject.objects[key]])
        flip_a_bit(subject, key, rng.randrange(len(subject.objects[key]) * 8))


# mutators: each damages a copy and returns the steps that are lost by it --------------------------

Mutator = Callable[[Subject, dict[str, bytes], random.Random], Iterable[int]]
MUTATORS: dict[str, Mutator] = {}


def _mutator(work: Mutator) -> Mutator:
    MUTATORS[work.__name__.strip("_")] = work
    return work


def _any_step(rng: random.Random) -> int:
    return rng.choice(list(SAVES))


def _any_object(subject: Subject, rng: random.Random, *, least: int = 1) -> str:
    """Return any object of any checkpoint, of at least so many bytes."""
    keys = {key for manifest in subject.manifests.values() for key in keys_of(manifest)}
    return rng.choice(sorted(key for key in keys if len(subject.objects[key]) >= least))


def _swap(objects: dict[str, bytes], one: str, other: str) -> None:
    objects[one], objects[other] = objects[other], objects[one]


@_mutator
def truncated(subject: Subject, objects: dict[str, bytes], rng: random.Random) -> Iterable[int]:
    key = _any_object(subject, rng)
    objects[key] = objects[key][: rng.randrange(len(objects[key]))]
    return subject.steps_that_need(key)


@_mutator
def extended(subject: Subject, objects: dict[str, bytes], rng: random.Random) -> Iterable[int]:
    key = _any_object(subject, rng)
    objects[key] += rng.randbytes(rng.randint(1, 20))
    return subject.steps_that_need(key)


@_mutator
def holed(subject: Subject, objects: dict[str, bytes], rng: random.Random) -> Iterable[int]:
    """A block that reads as zeros, as after a crash of a file system."""
    key = _any_object(subject, rng, least=9)
    start = rng.randrange(len(objects[key]) - 8)
    hole = bytes(rng.randint(8, len(objects[key]) - start))
    objects[key] = objects[key][:start] + hole + objects[key][start + len(hole) :]
    return subject.steps_that_need(key)


@_mutator
def reordered(subject: Subject, objects: dict[str, bytes], rng: random.Random) -> Iterable[int]:
    """Two blocks of an object have changed places."""
    key = _any_object(subject, rng, least=64)
    content, cut = objects[key], rng.randrange(1, 32)
    objects[key] = content[cut : 2 * cut] + content[:cut] + content[2 * cut :]
    return subject.steps_that_need(key)


@_mutator
def doubled(subject: Subject, objects: dict[str, bytes], rng: random.Random) -> Iterable[int]:
    """A block stands twice and the block after it is gone: the size is right."""
    key = _any_object(subject, rng, least=64)
    content, cut = objects[key], rng.randrange(8, 32)
    objects[key] = content[:cut] * 2 + content[2 * cut :]
    return subject.steps_that_need(key)


@_mutator
def missing(subject: Subject, objects: dict[str, bytes], rng: random.Random) -> Iterable[int]:
    key = _any_object(subject, rng)
    del objects[key]
    return subject.steps_that_need(key)


@_mutator
def missing_fence(subject: Subject, objects: dict[str, bytes], rng: random.Random) -> Iterable[int]:
    """Its manifests say what it said."""
    del objects[fence_key(rng.choice([1, 2]))]
    return ()


@_mutator
def replayed_fence(
    subject: Subject, objects: dict[str, bytes], rng: random.Random
) -> Iterable[int]:
    """An older fence stands for the newest."""
    objects[fence_key(2)] = objects[fence_key(1)]
    return ()


@_mutator
def shards_swapped_between_ranks(
    subject: Subject, objects: dict[str, bytes], rng: random.Random
) -> Iterable[int]:
    step = _any_step(rng)
    one, other = (newest_shard(subject.manifests[step], rank) for rank in range(WORLD))
    _swap(objects, one, other)
    return subject.steps_that_need(one) | subject.steps_that_need(other)


@_mutator
def shards_swapped_between_steps(
    subject: Subject, objects: dict[str, bytes], rng: random.Random
) -> Iterable[int]:
    rank = rng.randrange(WORLD)
    one, other = (newest_shard(subject.manifests[s], rank) for s in rng.sample(list(SAVES), 2))
    _swap(objects, one, other)
    return subject.steps_that_need(one) | subject.steps_that_need(other)


@_mutator
def markers_swapped_between_ranks(
    subject: Subject, objects: dict[str, bytes], rng: random.Random
) -> Iterable[int]:
    step = _any_step(rng)
    _swap(objects, *(marker_key(subject.manifests[step].save, rank) for rank in range(WORLD)))
    return {step}


@_mutator
def markers_swapped_between_steps(
    subject: Subject, objects: dict[str, bytes], rng: random.Random
) -> Iterable[int]:
    steps, rank = rng.sample(list(SAVES), 2), rng.randrange(WORLD)
    _swap(objects, *(marker_key(subject.manifests[step].save, rank) for step in steps))
    return set(steps)


@_mutator
def manifests_swapped_between_steps(
    subject: Subject, objects: dict[str, bytes], rng: random.Random
) -> Iterable[int]:
    steps = rng.sample(list(SAVES), 2)
    _swap(objects, *(manifest_key(subject.manifests[step].save) for step in steps))
    return set(steps)


@_mutator
def older_manifest_replayed(
    subject: Subject, objects: dict[str, bytes], rng: random.Random
) -> Iterable[int]:
    """The content of an older manifest stands under the key of a newer one."""
    older, newer = sorted(rng.sample(list(SAVES), 2))
    objects[manifest_key(subject.manifests[newer].save)] = objects[
        manifest_key(subject.manifests[older].save)
    ]
    return {newer}


@_mutator
def older_marker_replayed(
    subject: Subject, objects: dict[str, bytes], rng: random.Random
) -> Iterable[int]:
    older, newer = sorted(rng.sample(list(SAVES), 2))
    rank = rng.randrange(WORLD)
    objects[marker_key(subject.manifests[newer].save, rank)] = objects[
        marker_key(subject.manifests[older].save, rank)
    ]
    return {newer}


@_mutator
def manifest_duplicated_as_a_newer_one(
    subject: Subject, objects: dict[str, bytes], rng: random.Random
) -> Iterable[int]:
    copied = objects[manifest_key(subject.manifests[_any_step(rng)].save)]
    objects[manifest_key(SaveId(50 + rng.randrange(50), rng.choice([1, 2, 3])))] = copied
    return ()


@_mutator
def extra_manifest_of_another_training(
    subject: Subject, objects: dict[str, bytes], rng: random.Random
) -> Iterable[int]:
    """It would be the newest, and is whole in itself with all that it names."""
    other = copy.deepcopy(unseal(objects[manifest_key(SaveId(40, 2))], what="it"))
    other |= {"step": 50, "number": 5, "fence": sha256_of(rng.randbytes(8))}
    states = [[r, 50, sum(s["size"] for s in p["shards"]), p["state"]] for r, p in enumerate(other["ranks"])]  # fmt: skip
    objects[manifest_key(SaveId(50, 2))] = seal(
        {**other, "root_digest": sha256_of(canonical(states))}
    )
    return ()


@_mutator
def manifest_of_another_training(
    subject: Subject, objects: dict[str, bytes], rng: random.Random
) -> Iterable[int]:
    """The same step and generation, of another run of the same job."""
    step = _any_step(rng)
    key = manifest_key(subject.manifests[step].save)
    objects[key] = _ANOTHER.objects[key]
    return {step}


@_mutator
def keys_of_a_document_reordered(
    subject: Subject, objects: dict[str, bytes], rng: random.Random
) -> Iterable[int]:
    """The values are the same, the bytes are not."""
    step = _any_step(rng)
    key = manifest_key(subject.manifests[step].save)
    pairs = list(json.loads(objects[key]).items())
    while list(json.loads(objects[key]).items()) == pairs:
        rng.shuffle(pairs)
    objects[key] = json.dumps(dict(pairs), separators=(",", ":")).encode()
    return {step}


@_mutator
def rank_left_out(subject: Subject, objects: dict[str, bytes], rng: random.Random) -> Iterable[int]:
    """A manifest that was closed again after a rank was taken out of it."""
    step = _any_step(rng)
    key = manifest_key(subject.manifests[step].save)
    document = unseal(objects[key], what=key)
    document["ranks"].pop(rng.randrange(WORLD))
    objects[key] = seal(document)
    return {step}


_ANOTHER = Subject.make(seed="another")
