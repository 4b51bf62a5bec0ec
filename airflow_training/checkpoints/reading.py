"""What a group's checkpoints are, for those who do not train: the command line and the controller.

Opens no generation and disturbs nobody who saves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from airflow_training.checkpoints import pruning
from airflow_training.checkpoints.errors import BadCheckpoint, CheckpointError
from airflow_training.checkpoints.keys import MANIFESTS, MARKERS, SaveId, save_of
from airflow_training.checkpoints.pruning import PruneResult
from airflow_training.checkpoints.records import Manifest
from airflow_training.checkpoints.store import ObjectStore, open_store
from airflow_training.checkpoints.survey import newest_valid, survey
from airflow_training.checkpoints.verifying import read_state, stream_state
from airflow_training.checkpoints.verifying import verify as _verify

__all__ = [
    "Entry",
    "damaged",
    "find",
    "history",
    "lineages",
    "newest",
    "newest_and_rejected",
    "prunable",
    "prune",
    "read",
    "reference",
    "stream",
    "verify",
]

Rejected = tuple[int | None, str]
"""(Step, why): of a checkpoint that is damaged."""
State = Literal["committed", "bad", "stale", "incomplete"]

_OF_A_GROUP = re.compile(r"(?P<root>.*?)/?(?:claims|fences|manifests|markers)/[^/]+(?:/\d+)?\.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One save of a group, as a list of checkpoints shows it."""

    step: int
    generation: int
    state: State
    bytes: int | None
    """None where nobody can tell."""
    at: float | None
    """Seconds since 1970."""
    reason: str = ""
    digest: str = ""
    """Of the manifest, where there is one that can be read."""


def lineages(uri: str) -> list[str]:
    """Return the roots of all checkpoint groups at or below an address, by name."""
    found = {
        match["root"]
        for key, _ in open_store(uri).list("")
        if (match := _OF_A_GROUP.fullmatch(key))
    }
    return [f"{uri.rstrip('/')}/{root}".rstrip("/") for root in sorted(found)]


def history(root: str | ObjectStore) -> list[Entry]:
    """Return every save there is, newest first: committed, stale, bad by its documents, or never finished."""
    store = open_store(root)
    seen = survey(store)
    entries = [_entry(m, "committed", "") for m in seen.lineage.manifests]
    entries += [
        _entry(m, "stale", "its writer had been replaced, or a user went back before it")
        for m in seen.lineage.stale
    ]
    entries += [_entry(m, "bad", reason) for m, reason in seen.lineage.bad]
    for key, reason in seen.unreadable.items():
        if (save := save_of(key)) is not None:
            entries.append(_without_manifest(save, "bad", reason))
    with_manifest = {save_of(key) for key, _ in store.list(MANIFESTS)}
    for save in {save_of(key) for key, _ in store.list(MARKERS)} - with_manifest:
        if save is not None:
            entries.append(_without_manifest(save, "incomplete", "not every rank has finished it"))
    return sorted(entries, key=lambda e: (e.step, e.generation), reverse=True)


def _entry(manifest: Manifest, state: State, reason: str) -> Entry:
    return Entry(
        step=manifest.step,
        generation=manifest.generation,
        state=state,
        bytes=manifest.size,
        at=manifest.at,
        reason=reason,
        digest=manifest.digest,
    )


def _without_manifest(save: SaveId, state: State, reason: str) -> Entry:
    return Entry(
        step=save.step, generation=save.generation, state=state, bytes=None, at=None, reason=reason
    )


def newest(root: str | ObjectStore, *, not_after: int | None = None) -> Manifest | None:
    """Return the newest committed manifest that counts; what it holds is not compared."""
    manifests = survey(open_store(root)).lineage.manifests
    return next((m for m in manifests if not_after is None or m.step <= not_after), None)


def newest_and_rejected(
    root: str | ObjectStore, *, not_after: int | None = None
) -> tuple[Manifest | None, Sequence[Rejected]]:
    """Return the newest whole checkpoint, and what was passed over for it, the newest last.

    A step is None where a document is damaged that several checkpoints rest on.
    """
    store = open_store(root)
    manifest, rejected = newest_valid(store, not_after=not_after)
    found: list[Rejected] = [*rejected, *_illegible(survey(store).bad, manifest, not_after)]
    return manifest, sorted(found, key=lambda each: -1 if each[0] is None else each[0])


def _illegible(
    bad: Mapping[str, str], manifest: Manifest | None, not_after: int | None
) -> Iterator[Rejected]:
    """Yield the damaged documents that may have been of a later checkpoint than the one that is taken."""
    for key, reason in bad.items():
        save = save_of(key)
        newer = save is None or manifest is None or save.step > manifest.step
        if newer and (save is None or not_after is None or save.step <= not_after):
            yield (save.step if save else None), reason


def recent(root: str | ObjectStore, count: int) -> list[Manifest]:
    """Return the newest committed manifests that count, at most `count`, the oldest of them first."""
    return list(survey(open_store(root)).lineage.manifests[:count])[::-1]


def find(root: str | ObjectStore, *, step: int, digest: str | None = None) -> Manifest:
    """Return the manifest of a committed step; raises CheckpointError where there is none, or another one."""
    store = open_store(root)
    manifests = survey(store).lineage.manifests
    for manifest in manifests:
        if manifest.step == step:
            if digest is not None and manifest.digest != digest:
                raise CheckpointError(
                    f"{store.uri}: the checkpoint of step {step} is not the one that is meant"
                )
            return manifest
    steps = ", ".join(str(m.step) for m in manifests) or "none"
    raise CheckpointError(f"{store.uri}: there is no checkpoint of step {step}\n  allowed: {steps}")


def verify(root: str | ObjectStore, step: int | None = None, *, deep: bool = True) -> list[Entry]:
    """Return every committed checkpoint, or that of one step, after comparing what it holds.

    Those that fail have the state `bad` and the reason. `deep=False` compares sizes only.
    """
    store = open_store(root)
    if step is not None:
        return [_verified(store, find(root, step=step), deep=deep)]
    return [_verified(store, manifest, deep=deep) for manifest in survey(store).lineage.manifests]


def damaged(root: str | ObjectStore) -> dict[str, str]:
    """Return fences and manifests that cannot be used, by key, each with the reason."""
    return survey(open_store(root)).bad


def _verified(store: ObjectStore, manifest: Manifest, *, deep: bool) -> Entry:
    try:
        _verify(store, manifest, deep=deep)
    except BadCheckpoint as error:
        return _entry(manifest, "bad", str(error))
    return _entry(manifest, "committed", "")


def read(
    root: str | ObjectStore, manifest: Manifest, rank: int
) -> tuple[Any, dict[str, bytearray]]:
    """Return the document and blobs of a rank, compared while they are read; raises BadCheckpoint."""
    return read_state(open_store(root), manifest, rank)


def stream(
    root: str | ObjectStore, manifest: Manifest, rank: int
) -> Iterator[tuple[str, memoryview]]:
    """Yield the blobs of a rank piece by piece, each compared before it is given out; see `stream_state`."""
    return stream_state(open_store(root), manifest, rank)


def prune(root: str | ObjectStore, keep: int, keep_every: int | None = None) -> PruneResult:
    """Delete all but the newest `keep` checkpoints that verify, and every Nth; safe while others save.

    Every byte of all of them is read before one is deleted.
    """
    return pruning.delete(open_store(root), _surplus(root, keep, keep_every))


def prunable(root: str | ObjectStore, keep: int, keep_every: int | None = None) -> PruneResult:
    """A dry run of `prune`: the same counts, nothing deleted."""
    return _surplus(root, keep, keep_every).pruned()


def _surplus(root: str | ObjectStore, keep: int, keep_every: int | None) -> pruning.Surplus:
    return pruning.find_surplus(open_store(root), keep=keep, keep_every=keep_every, deep=True)


def reference(root: str, manifest: Manifest) -> dict[str, Any]:
    """Names a checkpoint for readers elsewhere, such as in XCom: uri, step and digest."""
    return {"uri": root, "step": manifest.step, "digest": manifest.digest}
