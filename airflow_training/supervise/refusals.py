"""Attempts that a runtime does not make for now: why, and when each is asked for again. Ever less often."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

from airflow_training.control import reasons
from airflow_training.control.actions import Action, Create, RestartProcess
from airflow_training.control.attempts import AttemptId
from airflow_training.control.observations import RefusedAttempt
from airflow_training.documents.instances import InstanceKey
from airflow_training.runtimes.port import Outcome

__all__ = ["Refusals"]

_FIRST_SECONDS = 0.5
_BRIEFLY_SECONDS = 10.0
"""What is refused for less, as a rule, is told only once it was refused so often:"""
_OFTEN = 4


@dataclass(slots=True)
class _WaitingRefusal:
    outcome: Outcome
    times: int
    again_at: float
    since: float
    """When it was first refused for this reason."""

    def is_final(self, now: float) -> bool:
        """Return whether it has had its grace."""
        grace = self.outcome.grace_seconds
        return grace is not None and now >= self.since + grace

    @property
    def lasts(self) -> bool:
        return self.times >= _OFTEN or self.is_patient

    @property
    def is_patient(self) -> bool:
        """Return whether it is asked for ever less often, so that it does not find out itself in a moment."""
        return self.outcome.patience_seconds > _BRIEFLY_SECONDS


class Refusals:
    """Of one run under one lease."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[InstanceKey, AttemptId], _WaitingRefusal] = {}
        self._together = 1
        """How many of those that may find room by now are asked for at once: twice as many each time all got in."""

    def due(self, actions: Sequence[Action], *, now: float) -> Sequence[Action]:
        """Return the actions without creates that were refused a moment ago; forget who wants none."""
        wanted = {(each.key, each.attempt_id) for each in actions if _makes(each)}
        self._waiting = {key: each for key, each in self._waiting.items() if key in wanted}
        return [each for each in actions if not _makes(each) or self._is_due(each, now)]

    def note(self, actions: Sequence[Action], refused: Sequence[Outcome], *, now: float) -> bool:
        """Take in what came of `actions`; return whether there is something new to tell."""
        before = self.known
        tried = {(each.key, each.attempt_id) for each in actions if _makes(each)}
        earlier = self._waiting
        self._waiting = {key: each for key, each in earlier.items() if key not in tried}
        for outcome in refused:
            key = outcome.ref.key, outcome.ref.attempt_id
            last = earlier.get(key)
            number = 1 if last is None else last.times + 1
            same = last is not None and last.outcome.reason == outcome.reason
            since = last.since if last is not None and same else now
            pause = min(outcome.patience_seconds, _FIRST_SECONDS * 2.0 ** min(number, 10))
            again_at = now + pause * random.uniform(0.5, 1.0)  # noqa: S311 - so that many spread out
            self._waiting[key] = _WaitingRefusal(outcome, number, again_at, since)
        if not refused and any(key in tried and each.is_patient for key, each in earlier.items()):
            self._together *= 2
            self._ask_again(now=now)
        return self.known != before

    def room_made(self, *, now: float) -> None:
        """Take note that there may be room: the first one is asked for now, and the others where it gets in."""
        self._together = 1
        self._ask_again(now=now)

    def _ask_again(self, *, now: float) -> None:
        # as if for the first time: what a server says of its quotas and what it decides by may differ for a moment
        patient = [key for key, each in self._waiting.items() if each.is_patient]
        for key in patient[: self._together]:
            self._waiting[key] = replace(self._waiting[key], times=0, again_at=now)

    def take_final(self, *, now: float) -> Sequence[Outcome]:
        """Refusals that last too long: their attempts fail for good, and wait no more."""
        final = {key: each for key, each in self._waiting.items() if each.is_final(now)}
        self._waiting = {key: each for key, each in self._waiting.items() if key not in final}
        return [replace(each.outcome, result="impossible") for each in final.values()]

    @property
    def known(self) -> Sequence[RefusedAttempt]:
        """Refusals to tell of, and why."""
        return [
            RefusedAttempt(
                key=key,
                attempt_id=attempt_id,
                reason=each.outcome.reason or reasons.CREATE_REFUSED,
                message=each.outcome.message,
            )
            for (key, attempt_id), each in self._waiting.items()
            if each.lasts
        ]

    def seconds_left(self, *, now: float) -> float:
        """Return after how long one of them is due (infinite: there is none)."""
        return min((each.again_at - now for each in self._waiting.values()), default=float("inf"))

    def _is_due(self, action: Create | RestartProcess, now: float) -> bool:
        waiting = self._waiting.get((action.key, action.attempt_id))
        return waiting is None or now >= waiting.again_at


def _makes(action: Action) -> TypeGuard[Create | RestartProcess]:
    return isinstance(action, Create | RestartProcess)
