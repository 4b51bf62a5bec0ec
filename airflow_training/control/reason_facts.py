"""What a reason says of a failure, whoever gives it: the facts that decisions are made by. Pure.

Runtimes bring such a table for the reasons of their engines; here are the reasons of control itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from airflow_training.control import reasons
from airflow_training.documents.resolved import FailureClass

__all__ = [
    "ENDED_BY_PLATFORM",
    "LEVELS",
    "NODE_LOST",
    "NOT_ADMITTED",
    "OWN_REASONS",
    "AnotherTry",
    "Level",
    "ReasonFacts",
    "Reasons",
]

NODE_LOST = "node-lost"
"""The cause of a failure that all have which ran on one machine."""

ENDED_BY_PLATFORM = frozenset({"evicted", "preempted", NODE_LOST, "instance-deleted"})
"""Causes of which the signal says nothing: TERM, and KILL where that did not do."""

Level = Literal["process", "container", "pod", "node", "job"]
LEVELS: tuple[Level, ...] = get_args(Level)
"""What is made anew, the cheapest first."""

AnotherTry = Literal["", "never", "perhaps", "later"]
"""Whether another try can help: `perhaps` elsewhere or soon, so that there is one more; `later`: nothing

has failed, it is only not the time; "": nothing is said, so the policies of the job decide.
"""


@dataclass(frozen=True, slots=True)
class ReasonFacts:
    """What one reason says, before signal and exit code are asked."""

    failure_class: FailureClass
    level: Level
    """What has to be made anew at least."""
    cause: str = ""
    """Id of the cause it proves; "": it proves none."""
    another_try: AnotherTry = ""
    unless: Mapping[re.Pattern[str], AnotherTry] = field(default_factory=dict)
    """Words of its message -> what holds where they are found; the first ones count."""

    def answer(self, message: str) -> AnotherTry:
        """Return whether another try can help, as reason and message say."""
        found = (answer for words, answer in self.unless.items() if words.search(message))
        return next(found, self.another_try)


Reasons = Mapping[str, ReasonFacts]
"""A reason that is not in it (`Error`) says nothing."""

NOT_ADMITTED = "not-admitted"
"""Id of the cause that the document asks for what the engine will never take: a mistake of the input."""

OWN_REASONS: Reasons = {
    reasons.UNSCHEDULABLE: ReasonFacts("resource", "pod", "unschedulable"),
    reasons.OUT_OF_MEMORY: ReasonFacts("resource", "container", "host-out-of-memory"),
    reasons.CREATE_FAILED: ReasonFacts("infrastructure", "pod"),
    reasons.VANISHED: ReasonFacts("infrastructure", "pod"),
    reasons.UNKNOWN_TOO_LONG: ReasonFacts("infrastructure", "node", NODE_LOST),
    reasons.NODE_UNFIT: ReasonFacts("infrastructure", "node"),
    reasons.HANG: ReasonFacts("infrastructure", "process"),
    reasons.ENVIRONMENT_NOT_READY: ReasonFacts("infrastructure", "node"),
    reasons.STORE_NOT_READY: ReasonFacts("infrastructure", "container"),
    reasons.CANNOT_BE_CREATED: ReasonFacts("user", "pod", NOT_ADMITTED, "never"),
    reasons.CANNOT_BE_PREPARED: ReasonFacts("user", "pod", NOT_ADMITTED, "never"),
    reasons.CHECKPOINT_REFUSED: ReasonFacts("user", "container", another_try="never"),
    # the training is complete, and its agent has tried the upload again: to train anew would bring no more
    reasons.OUTPUT_FAILED: ReasonFacts("infrastructure", "container", "output-failed", "never"),
}
