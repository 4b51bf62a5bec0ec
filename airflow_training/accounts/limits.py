"""How an account stands to its limits: what is used, what is held for runs, what is free. Pure.

A reservation holds what its run has not used yet, until its run is over or its hours are: they begin
with the first instance. What goes on longer counts as it is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import ROUND_UP, Decimal
from typing import Literal

from airflow_training.accounts.bills import BillRow, bill_rows, gpus_of, month_of
from airflow_training.accounts.prices import PriceList
from airflow_training.control.model import TERMINAL_JOB_STATES
from airflow_training.state.account_records import (
    AccountFacts,
    ChargedAmounts,
    LimitKind,
    LimitPeriod,
    LiveReservation,
    ReservedAmounts,
    ReservedRole,
)

__all__ = [
    "LimitStanding",
    "RunStanding",
    "amount_of",
    "amounts_of",
    "balance_of",
    "run_standings",
    "standings",
]

_HOUR = Decimal(3600)
_ROUNDING = Decimal("1e-9")
"""Hours that are thirds of seconds do not add up exactly; this is less than a millisecond of one."""
_NOTHING = ReservedAmounts()


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitStanding:
    """One limit of an account; a prepaid balance is one, too."""

    kind: LimitKind | Literal["balance"]
    period: LimitPeriod
    amount: Decimal
    """Of a balance: all that was paid, less the threshold."""
    used: Decimal
    """Of concurrent GPUs: those of instances that run now."""
    reserved: Decimal
    """Held for runs beside what they have used."""

    @property
    def free(self) -> Decimal:
        """The part that nobody uses or holds; never below zero."""
        return max(Decimal(0), self.amount - self.used - self.reserved)

    def has_room_for(self, wanted: Decimal) -> bool:
        """Return whether as much fits beside what is used and held."""
        return self.used + self.reserved + wanted <= self.amount + _ROUNDING


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStanding:
    """What a live run has used, and what is held for it beside that."""

    live: LiveReservation
    used: ReservedAmounts
    """`gpus`: of instances that run now."""
    used_by_month: Mapping[str, ReservedAmounts] = field(default_factory=dict)
    holds: bool
    """Its reservation has not ended."""
    held: ReservedAmounts = _NOTHING

    @property
    def runs_now(self) -> bool:
        """Return whether it has instances now, and is not over: then nothing is left to be stopped."""
        over = self.live.run_state in TERMINAL_JOB_STATES
        return not over and any(each.finished_at is None for each in self.live.attempts)

    def goes_beyond(self, kind: str) -> bool:
        """Return whether it uses more of this than was reserved for it, in amount or in time."""
        reserved = amount_of(self.live.reservation.amounts, kind) if self.holds else Decimal(0)
        return amount_of(self.used, kind) > reserved


def amounts_of(
    roles: Iterable[ReservedRole], *, hours: Decimal, prices: PriceList, at: float
) -> ReservedAmounts:
    """Amounts that so many instances need of each limit in so many hours, at the prices of a time."""
    roles = tuple(roles)
    instances = sum((Decimal(each.replicas) for each in roles), Decimal(0))
    gpus = sum((gpus_of(each.resources) * each.replicas for each in roles), Decimal(0))
    hourly = sum(
        (prices.hourly(each.resources, each.node_labels, at=at) * each.replicas for each in roles),
        Decimal(0),
    )
    return ReservedAmounts(
        instance_hours=instances * hours,
        gpu_hours=gpus * hours,
        gpus=gpus,
        money=(hourly * hours).quantize(Decimal("0.0001"), ROUND_UP),
    )


def run_standings(facts: AccountFacts) -> tuple[RunStanding, ...]:
    """Return how each live run of the account stands."""
    prices = PriceList(facts.prices)
    return tuple(_run_standing(each, prices, now=facts.now) for each in facts.live)


def _run_standing(live: LiveReservation, prices: PriceList, *, now: float) -> RunStanding:
    labels = {each.role: each.node_labels for each in live.reservation.roles}
    rows = bill_rows(live.attempts, prices, node_labels=labels, until=now)
    gpus = sum(
        (gpus_of(each.resources) for each in live.attempts if each.finished_at is None),
        Decimal(0),
    )
    by_month: dict[str, list[BillRow]] = {}
    for row in rows:
        by_month.setdefault(row.month, []).append(row)
    used = _used(rows, gpus=gpus)
    asked = live.reservation.amounts
    held = ReservedAmounts(
        instance_hours=max(Decimal(0), asked.instance_hours - used.instance_hours),
        gpu_hours=max(Decimal(0), asked.gpu_hours - used.gpu_hours),
        gpus=max(Decimal(0), asked.gpus - used.gpus),
        money=max(Decimal(0), asked.money - used.money),
    )
    holds = _holds(live, now=now)
    return RunStanding(
        live=live,
        holds=holds,
        used=used,
        used_by_month={month: _used(part, gpus=gpus) for month, part in by_month.items()},
        held=held if holds else _NOTHING,
    )


def _holds(live: LiveReservation, *, now: float) -> bool:
    reservation = live.reservation
    if reservation.ended_at is not None or live.over:
        return False
    begun = min((each.started_at for each in live.attempts), default=None)
    if begun is None or begun >= reservation.expires_at:
        # it waited for too long: what it held may be others' by now
        return now < reservation.expires_at
    return now < begun + float(reservation.hours * _HOUR)


def _used(rows: Iterable[BillRow], *, gpus: Decimal) -> ReservedAmounts:
    rows = tuple(rows)
    return ReservedAmounts(
        instance_hours=sum((each.instance_seconds for each in rows), Decimal(0)) / _HOUR,
        gpu_hours=sum((each.gpu_seconds for each in rows), Decimal(0)) / _HOUR,
        gpus=gpus,
        money=sum((each.amount for each in rows), Decimal(0)),
    )


def _charged(charged: ChargedAmounts) -> ReservedAmounts:
    return ReservedAmounts(
        instance_hours=Decimal(str(charged.instance_seconds)) / _HOUR,
        gpu_hours=Decimal(str(charged.gpu_seconds)) / _HOUR,
        money=charged.money,
    )


def amount_of(amounts: ReservedAmounts, kind: str) -> Decimal:
    """The amount that a limit of this kind counts."""
    name = {"concurrent_gpus": "gpus", "balance": "money"}.get(kind, kind)
    value: Decimal = getattr(amounts, name)
    return value


def standings(facts: AccountFacts) -> tuple[LimitStanding, ...]:
    """Return how the account stands to each of its limits, its prepaid balance last."""
    runs = run_standings(facts)
    month = month_of(facts.now)
    found = []
    for limit in facts.limits:
        if limit.period == "month" and limit.kind != "concurrent_gpus":
            charged = facts.charged_by_month.get(month, ChargedAmounts())
            used = [each.used_by_month.get(month, _NOTHING) for each in runs]
        else:
            charged = facts.charged
            used = [each.used for each in runs]
        found.append(
            LimitStanding(
                kind=limit.kind,
                period=limit.period,
                amount=limit.amount,
                used=sum(
                    (amount_of(each, limit.kind) for each in (_charged(charged), *used)), Decimal(0)
                ),
                reserved=sum((amount_of(each.held, limit.kind) for each in runs), Decimal(0)),
            )
        )
    if facts.account.prepaid:
        found.append(_balance(facts, runs))
    return tuple(found)


def _balance(facts: AccountFacts, runs: Iterable[RunStanding]) -> LimitStanding:
    mine = [each for each in runs if _pays_for(facts, each.live)]
    used = sum((each.used.money for each in mine), Decimal(0))
    return LimitStanding(
        kind="balance",
        period="total",
        amount=facts.paid - facts.account.threshold,
        used=facts.charged_to_balance + used,
        reserved=sum((each.held.money for each in mine), Decimal(0)),
    )


def _pays_for(facts: AccountFacts, live: LiveReservation) -> bool:
    """Return whether the account pays for a run: a user's run for a team is the team's."""
    return facts.account.kind == "team" or not live.reservation.team


def balance_of(facts: AccountFacts) -> Decimal:
    """Payments less use, whether or not the account is prepaid."""
    standing = _balance(facts, run_standings(facts))
    return facts.paid - standing.used
