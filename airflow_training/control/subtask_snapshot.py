"""Bitmaps, sequences and steps of all processes as one small document that proves itself. Pure.

At 16,384 processes it has at most 64 KiB, whatever they do: three bits of state and four of
verified steps for each, and its sequence number above the lowest (up to 18 bits; numbers further
apart than 262,144 take more). What they have in common is packed away on top.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_training.control.model import Event
from airflow_training.control.subtasks import (
    MOST_RANKS,
    STATES,
    STEPS_KEPT,
    Subtasks,
    new_subtasks,
    rank_states,
)

__all__ = [
    "JOB_GROUP",
    "STATE_CHECKSUM_MISMATCH",
    "ProcessSnapshot",
    "SnapshotDamaged",
    "read_snapshot",
    "resume_processes",
    "write_snapshot",
]

JOB_GROUP = ""
"""Name of the group where all instances of a job write one checkpoint together."""
STATE_CHECKSUM_MISMATCH = "StateChecksumMismatch"
_FORMAT = 1
_PLANES = 3
"""Bits that number the eight states."""


class SnapshotDamaged(ValueError):
    """A stored snapshot is not what was written: some digest or field is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSnapshot:
    """What is known of the processes when a controller begins anew."""

    subtasks: Subtasks
    not_after: int | None = None
    """Restore no step after this one; None: the newest that proves itself."""
    event: Event | None = None
    """What went wrong with the snapshot."""


def write_snapshot(subtasks: Subtasks, *, environment: str = "") -> dict[str, Any]:
    """Return the document. `environment`: the digest that names all instances' newest records."""
    size = _size(subtasks.world)
    low = min(subtasks.sequences, default=0)
    width = max((number - low for number in subtasks.sequences), default=0).bit_length()
    packed = _pack([number - low for number in subtasks.sequences], width)
    blob = b"".join(
        [
            *(plane.to_bytes(size, "little") for plane in _planes(subtasks)),
            packed.to_bytes(_size(subtasks.world * width), "little"),
            *(ranks.to_bytes(size, "little") for _, ranks in sorted(subtasks.partial.items())),
        ]
    )
    document = {
        "format": _FORMAT,
        "world": subtasks.world,
        "generation": subtasks.generation,
        "low": low,
        "width": width,
        "full": list(subtasks.full),
        "partial": sorted(subtasks.partial),
        "environment": environment,
    }
    return {
        **document,
        "subtasks": base64.b85encode(zlib.compress(blob, 6)).decode(),
        "sha256": _total(document, subtasks),
    }


def read_snapshot(document: Mapping[str, Any]) -> Subtasks:
    """Read `write_snapshot`; raises SnapshotDamaged where the total checksum is another."""
    try:
        subtasks = _unpacked(document)
        head = {
            name: value for name, value in document.items() if name not in ("subtasks", "sha256")
        }
        total = _total(head, subtasks)
    except (ArithmeticError, KeyError, LookupError, TypeError, ValueError, zlib.error) as error:
        raise SnapshotDamaged(f"the snapshot of subtasks cannot be read: {error}") from error
    if total != document.get("sha256"):
        raise SnapshotDamaged("the checksum over all subtasks is not the one that was stored")
    return subtasks


def resume_processes(
    document: Mapping[str, Any],
    *,
    markers: Mapping[int, Collection[int]] | None,
    generation: int,
    world: int,
    newest_step: int | None,
    now: float,
) -> ProcessSnapshot:
    """State of processes to go on from: the snapshot, else the markers, else one step earlier.

    What the instances and their processes do is observed, and told again, after that.

    `markers`: step -> ranks whose parts verify, of the newest fence's `generation` and `world`;
    None: the store of the checkpoints does not answer. `newest_step`: the newest committed one that
    was ever reported.
    """
    try:
        return ProcessSnapshot(subtasks=read_snapshot(document))
    except SnapshotDamaged as error:
        damage = str(error)
    seen = _verified(new_subtasks(world, generation=generation), markers or {})
    not_after = None
    what = "built again from the markers, and from what is observed"
    if markers is None:
        not_after = None if newest_step is None else max(0, newest_step - 1)
        what = "the markers cannot be read: an earlier step is used"
    event = Event(
        at=now, reason=STATE_CHECKSUM_MISMATCH, message=f"{damage}; {what}", level="warning"
    )
    return ProcessSnapshot(subtasks=seen, not_after=not_after, event=event)


def _verified(subtasks: Subtasks, markers: Mapping[int, Collection[int]]) -> Subtasks:
    everybody = (1 << subtasks.world) - 1
    full: list[int] = []
    partial: dict[int, int] = {}
    for step, ranks in sorted(markers.items()):
        bitmap = sum(1 << rank for rank in set(ranks) if 0 <= rank < subtasks.world)
        if bitmap == everybody:
            full.append(step)
            partial.clear()
        else:
            partial[step] = bitmap
    return Subtasks(
        world=subtasks.world,
        generation=subtasks.generation,
        bitmaps=subtasks.bitmaps,
        sequences=subtasks.sequences,
        full=tuple(full[-STEPS_KEPT:]),
        partial=dict(sorted(partial.items())[-STEPS_KEPT:]),
    )


def _total(document: Mapping[str, Any], subtasks: Subtasks) -> str:
    """Return the SHA-256 over the document and the state of every single subtask."""
    verified = [
        f"{ranks:0{subtasks.world}b}"[::-1] for _, ranks in sorted(subtasks.partial.items())
    ]
    marks = zip(*verified, strict=True) if verified else [()] * subtasks.world
    rows = [
        [rank, state, sequence, "".join(mark)]
        for rank, (state, sequence, mark) in enumerate(
            zip(rank_states(subtasks), subtasks.sequences, marks, strict=True)
        )
    ]
    text = json.dumps([document, rows], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _planes(subtasks: Subtasks) -> list[int]:
    """Return the bits of the ranks' state numbers, as one bitmap per bit."""
    planes = [0] * _PLANES
    for code, state in enumerate(STATES):
        for plane in range(_PLANES):
            if code >> plane & 1:
                planes[plane] |= subtasks.bitmaps[state]
    return planes


def _unpacked(document: Mapping[str, Any]) -> Subtasks:
    world, low, width = int(document["world"]), int(document["low"]), int(document["width"])
    steps = [int(step) for step in document["partial"]]
    if document["format"] != _FORMAT or not 0 < world <= MOST_RANKS or not 0 <= width <= 64:
        raise ValueError("format, world or width is none")
    size, packed = _size(world), _size(world * width)
    expected = size * (_PLANES + len(steps)) + packed
    reader = zlib.decompressobj()
    blob = reader.decompress(base64.b85decode(document["subtasks"]), expected + 1)
    if len(blob) != expected:
        raise ValueError("the length is another")
    everybody = (1 << world) - 1

    def bitmap(start: int) -> int:
        return int.from_bytes(blob[start : start + size], "little") & everybody

    planes = [bitmap(size * plane) for plane in range(_PLANES)]
    bitmaps = {}
    for code, state in enumerate(STATES):
        bitmaps[state] = everybody
        for plane in range(_PLANES):
            bits = planes[plane]
            bitmaps[state] &= bits if code >> plane & 1 else ~bits
    start = size * _PLANES
    numbers = _unpack(int.from_bytes(blob[start : start + packed], "little"), width, world)
    start += packed
    return Subtasks(
        world=world,
        generation=int(document["generation"]),
        bitmaps=bitmaps,
        sequences=tuple(low + number for number in numbers),
        full=tuple(document["full"]),
        partial={step: bitmap(start + size * place) for place, step in enumerate(steps)},
    )


def _pack(numbers: list[int], width: int) -> int:
    """Return numbers of `width` bits in one, the first at its low end."""
    if not width:
        return 0
    return int("".join([f"{number:0{width}b}" for number in reversed(numbers)]), 2)


def _unpack(packed: int, width: int, count: int) -> list[int]:
    if not width:
        return [0] * count
    digits = f"{packed:0{width * count}b}"
    return [
        int(digits[start : start + width], 2) for start in range((count - 1) * width, -1, -width)
    ]


def _size(bits: int) -> int:
    return bits + 7 >> 3
