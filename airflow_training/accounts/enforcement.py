"""What becomes of runs whose account has reached a limit while they run. Pure.

A limit is reached when it is used up, which stops every run that uses of it; or when what is used
and what is held for others do not fit into it together, which stops those that go on beyond what
was reserved for them. Of GPUs at a time those give way first, as theirs are free for others at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from airflow_training.accounts.limits import (
    LimitStanding,
    RunStanding,
    amount_of,
    run_standings,
    standings,
)
from airflow_training.accounts.refusals import number_text
from airflow_training.control.model import STOPS, RequestKind
from airflow_training.state.account_records import AccountFacts, AtLimit

__all__ = ["LimitAction", "limit_actions"]

_STRICTEST: Sequence[AtLimit] = ("kill", "checkpoint_and_pause", "finish")
_REQUESTS: Mapping[AtLimit, RequestKind] = {"kill": "kill", "checkpoint_and_pause": "pause"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitAction:
    """What is to be asked of a run."""

    run: str
    """Uid."""
    account: str
    limit: str
    at_limit: AtLimit
    message: str
    after_request: int
    """The newest request of the run that this knows of: the same again asks nothing twice."""

    @property
    def request(self) -> RequestKind | None:
        """The request to the run; None: the run may finish."""
        return _REQUESTS.get(self.at_limit)


def limit_actions(facts: Iterable[AccountFacts]) -> Sequence[LimitAction]:
    """Return one action for each run that must not go on as it does, the strictest of all its accounts."""
    found: dict[str, LimitAction] = {}
    for each in facts:
        for action in _of_account(each):
            known = found.get(action.run)
            if known is None or _strictness(action) < _strictness(known):
                found[action.run] = action
    return tuple(found.values())


def _strictness(action: LimitAction) -> int:
    return _STRICTEST.index(action.at_limit)


def _of_account(facts: AccountFacts) -> Iterable[LimitAction]:
    at_limit = facts.account.at_limit
    runs = [each for each in run_standings(facts) if each.runs_now]
    for standing in standings(facts):
        for run in runs:
            uid = run.live.reservation.run
            team_pays = facts.account.kind == "user" and bool(run.live.reservation.team)
            if uid is None or (standing.kind == "balance" and team_pays):
                continue
            if not _is_stopped_by(standing, run, within=_used_within(standing, runs)) or _is_asked(
                run, at_limit
            ):
                continue
            yield LimitAction(
                run=uid,
                account=facts.account.name,
                limit=standing.kind,
                at_limit=at_limit,
                message=_message(facts, standing),
                after_request=run.live.asked_number,
            )


def _used_within(standing: LimitStanding, runs: Iterable[RunStanding]) -> Decimal:
    """Return what runs use that keep to their reservations."""
    used = (
        amount_of(each.used, standing.kind) for each in runs if not each.goes_beyond(standing.kind)
    )
    return sum(used, Decimal(0))


def _is_stopped_by(standing: LimitStanding, run: RunStanding, *, within: Decimal) -> bool:
    if not amount_of(run.used, standing.kind):
        return False
    crowded = not standing.has_room_for(Decimal(0))
    if standing.kind == "concurrent_gpus":
        return crowded if run.goes_beyond(standing.kind) else within > standing.amount
    spent = standing.used >= standing.amount
    return spent or (crowded and run.goes_beyond(standing.kind))


def _is_asked(run: RunStanding, at_limit: AtLimit) -> bool:
    """Return whether somebody has asked for as much already."""
    asked = run.live.asked
    return asked in STOPS or (asked == "pause" and at_limit != "kill")


def _message(facts: AccountFacts, standing: LimitStanding) -> str:
    name = facts.account.name
    if standing.kind == "balance":
        balance = standing.amount + facts.account.threshold - standing.used
        return (
            f"the balance of {name} is {number_text(balance)} {facts.currency}, "
            f"its threshold {number_text(facts.account.threshold)}"
        )
    held: Decimal = standing.reserved
    return (
        f"{name} is at its limit of {standing.kind.replace('_', ' ')}: "
        f"{number_text(standing.used)} of {number_text(standing.amount)} used, "
        f"{number_text(held)} reserved"
    )
