"""Whether another try of a failed instance can help, from facts alone; whether it may, policies say. Pure.

Facts are what the reason says (the runtime's, or the server's words), what the log says, and exit codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from airflow_training.control import reasons
from airflow_training.control.diagnosed import NEEDS_CHANGE, why_not_again
from airflow_training.control.failures import Failure, cannot_start
from airflow_training.control.model import RestartRecord
from airflow_training.control.reason_facts import AnotherTry

__all__ = ["CANNOT_START", "RetryProspect", "prospect_of"]

CANNOT_START = "cannot start"
"""Rule of a command that cannot, wherever it is tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryProspect:
    """What another try promises."""

    answer: AnotherTry = ""
    reason: str = ""
    """Why there is none."""
    message: str = ""
    rule: str = ""
    """What says so."""
    limit: str = ""
    """The message beside a headline, which has the words of the failure."""


_OPEN = RetryProspect()


def prospect_of(
    failure: Failure,
    before: Sequence[RestartRecord],
    *,
    last_try: bool,
    code_is_listed: bool,
    more_memory: bool = False,
) -> RetryProspect:
    """Return whether another try can help after a failure.

    `before`: the restarts of this epoch. `last_try`: the attempt was the one more that an earlier
    failure was worth. `code_is_listed`: the job names the exit code as one to try again. `more_memory`: the
    next attempt gets more of what ran out.
    """
    answer = "" if failure.known is None else failure.known.answer(failure.message)
    if failure.reason == reasons.OUTPUT_FAILED:
        return RetryProspect(
            answer="never",
            reason=reasons.OUTPUT_FAILED,
            message=failure.message,
            rule=failure.reason,
        )
    if answer == "never":
        words = ": ".join(filter(None, (failure.reason, failure.message)))
        return _never(words, rule=failure.reason)
    if code_is_listed:
        return _OPEN
    # where the reason itself says it, a log does not say it better
    if not answer and not more_memory and failure.diagnosed is not None:
        stop = why_not_again(failure.diagnosed, before)
        if stop is not None:
            return RetryProspect(
                answer="never",
                reason=stop.reason,
                message=stop.message,
                rule="diagnosis",
                limit=stop.limit,
            )
    if why := cannot_start(failure):
        return replace(_never(why, rule=CANNOT_START), limit=NEEDS_CHANGE)
    if answer == "perhaps" and last_try:
        return _never(f"{failure.describe()}, again after one more try", rule=failure.reason)
    return RetryProspect(answer=answer, rule=failure.reason)


def _never(message: str, *, rule: str) -> RetryProspect:
    return RetryProspect(answer="never", reason=reasons.NOT_RETRYABLE, message=message, rule=rule)
