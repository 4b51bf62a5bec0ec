"""What a reason says of a failure, whoever gives it: the facts that decisions are made by. Pure.

Runtimes bring such a table for the reasons of their engines; here are the reasons of control itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from airflow_training.control import reasons
from airflow_training.documents.resolved import FailureClass

__all__ = ["LEVELS", "OWN_REASONS", "Level", "ReasonFacts", "Reasons"]

Level = Literal["process", "container", "pod", "node", "job"]
LEVELS: tuple[Level, ...] = get_args(Level)
"""What is made anew, the cheapest first."""


@dataclass(frozen=True, slots=True)
class ReasonFacts:
    """What one reason says, before signal and exit code are asked."""

    failure_class: FailureClass
    level: Level
    """What has to be made anew at least."""
    cause: str = ""
    """Id of the cause it proves; "": it proves none."""
    hopeless: bool = False
    """Every other try would end as well: nothing but a change of the job helps."""


Reasons = Mapping[str, ReasonFacts]
"""A reason that is not in it (`Error`) says nothing."""

OWN_REASONS: Reasons = {
    reasons.UNSCHEDULABLE: ReasonFacts("resource", "pod", "unschedulable"),
    reasons.OUT_OF_MEMORY: ReasonFacts("resource", "container", "host-out-of-memory"),
    reasons.CREATE_FAILED: ReasonFacts("infrastructure", "pod"),
    reasons.VANISHED: ReasonFacts("infrastructure", "pod"),
    reasons.UNKNOWN_TOO_LONG: ReasonFacts("infrastructure", "node", "node-lost"),
    reasons.HANG: ReasonFacts("infrastructure", "process"),
    reasons.ENVIRONMENT_NOT_READY: ReasonFacts("infrastructure", "node"),
    reasons.STORE_NOT_READY: ReasonFacts("infrastructure", "container"),
    reasons.CANNOT_BE_CREATED: ReasonFacts("user", "pod", "not-admitted", hopeless=True),
    reasons.CHECKPOINT_REFUSED: ReasonFacts("user", "container", hopeless=True),
}
