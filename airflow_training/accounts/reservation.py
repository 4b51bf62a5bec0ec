"""Whether what is asked may be held for a run. Pure: facts in, a reservation or a refusal out."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from airflow_training.accounts.limits import amount_of, amounts_of, standings
from airflow_training.accounts.prices import PriceList
from airflow_training.accounts.refusals import AccountRefusal
from airflow_training.state.account_records import AccountFacts, Reservation, ReservedRole

__all__ = ["DEFAULT_HOURS", "WAIT_HOURS", "ReservationRequest", "decide_reservation"]

DEFAULT_HOURS = Decimal(24)
"""What services reserve where nobody says how long a run takes."""
WAIT_HOURS = Decimal(2)
"""How long they hold it for what has not begun; then it has to be asked for again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationRequest:
    """What somebody asks to hold for a run."""

    account: str
    team: str
    """Empty: for no team."""
    key: str
    """Idempotency key: the same of the same account is the same reservation."""
    roles: tuple[ReservedRole, ...]
    hours: Decimal
    """For which the run may go on, from its first instance on."""
    wait_hours: Decimal = Decimal(24)
    """How long it waits for its run to begin."""


def decide_reservation(
    request: ReservationRequest, facts: Sequence[AccountFacts]
) -> Reservation | AccountRefusal:
    """Return the reservation where it fits into every limit of user and team, else what it does not fit into.

    `facts`: of the user and, where there is one, of the team, of one moment in which no other decides.
    """
    now = facts[0].now
    asked = amounts_of(
        request.roles, hours=request.hours, prices=PriceList(facts[0].prices), at=now
    )
    for each in facts:
        for standing in standings(each):
            if standing.kind == "balance" and each.account.kind == "user" and request.team:
                continue  # the team pays
            wanted = amount_of(asked, standing.kind)
            # what needs none of it is not refused for a limit that is used up already
            if wanted and not standing.has_room_for(wanted):
                return AccountRefusal.of_limit(
                    each.account.name,
                    limit=standing.kind,
                    period=standing.period,
                    amount=standing.amount,
                    used=standing.used,
                    reserved=standing.reserved,
                    asked=wanted,
                    hours=request.hours,
                    threshold=each.account.threshold,
                    currency=each.currency,
                )
    return Reservation(
        id=_id(request),
        account=request.account,
        team=request.team,
        key=request.key,
        run=None,
        hours=request.hours,
        roles=request.roles,
        amounts=asked,
        created_at=now,
        expires_at=now + float(request.wait_hours) * 3600,
    )


def _id(request: ReservationRequest) -> str:
    digest = hashlib.sha256(f"{request.account}\x1f{request.key}".encode()).digest()
    return base64.b32encode(digest).decode().lower()[:20]
