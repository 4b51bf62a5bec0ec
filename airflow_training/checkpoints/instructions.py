"""What the controller tells a training process about its checkpoints, and which process this is."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_training.checkpoints.errors import CheckpointError
from airflow_training.checkpoints.interval import AutoInterval, Interval, parse_every
from airflow_training.checkpoints.reporting import own_group

__all__ = ["Instructions", "by_hand", "from_environment", "rank_and_world"]

VARIABLE = "TRAINING_CHECKPOINT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Instructions:
    """One job's `spec.checkpoint` as one process needs it."""

    root: str
    every: Interval
    incarnation: str = ""
    order: int = 0
    keep: int = 3
    keep_every: int | None = None
    fresh: bool = False
    """Nothing is restored."""
    not_after: int | None = None
    """The newest step that may be restored."""
    exactly: bool = False
    """Only that step will do: a user has asked for it."""
    initial: Mapping[str, Any] | None = None
    """The checkpoint of another training that this one starts from: `uri`, `step`, `digest`."""
    grace_seconds: float = 30.0
    environment: str = ""


def by_hand(root: str, every: Any = None) -> Instructions:
    """Instructions for a script without a controller: a folder or address, and `auto`."""
    return Instructions(
        root=root, every=parse_every(every) if every is not None else AutoInterval()
    )


def from_environment() -> Instructions | None:
    """Instructions in `TRAINING_CHECKPOINT`; None where it is not set."""
    text = os.environ.get(VARIABLE)
    if not text:
        return None
    try:
        given = json.loads(text)
        resume = given.get("resume") or {}
        return Instructions(
            root=given["root"],
            every=parse_every(given.get("every") or "auto"),
            incarnation=str(given.get("incarnation", "")),
            order=int(given.get("order", 0)),
            keep=int(given.get("keep") or 3),
            keep_every=given.get("keep_every"),
            fresh=resume.get("kind", "latest") == "none",
            not_after=resume.get("not_after"),
            exactly=bool(resume.get("exactly", False)),
            initial=given.get("initial"),
            grace_seconds=float(given.get("grace_seconds") or 30.0),
            environment=str(given.get("environment", "")),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{VARIABLE} is not what the controller writes: {error!r}") from error


def rank_and_world() -> tuple[int, int]:
    """Return this process's rank and how many write one checkpoint together.

    Those that torch is told where they are set, else those of the instance. An instance that saves alone has one
    process, unless torchrun started several in it.
    """
    names = [("RANK", "WORLD_SIZE"), ("TRAINING_RANK", "TRAINING_WORLD_SIZE")]
    if own_group():
        names = names[:1] if "TORCHELASTIC_RUN_ID" in os.environ else []
    for rank, world in names:
        if rank in os.environ and world in os.environ:
            return int(os.environ[rank]), int(os.environ[world])
    return 0, 1
