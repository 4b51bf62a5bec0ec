"""A bill is a pure function of the ledger's attempts and the prices, at a time: it cannot count anything twice.

Each attempt of an instance is an interval. It is cut where a month ends and where a price changes,
and each piece costs what was valid then.
"""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

from airflow_training.accounts.prices import PriceList, PricePart, exact_quantity
from airflow_training.control.usage import AttemptUsage, is_gpu
from airflow_training.state.account_records import Charge

__all__ = [
    "Bill",
    "BillRow",
    "bill_csv",
    "bill_rows",
    "charges_csv",
    "gpus_of",
    "month_of",
    "rounded",
    "seconds_text",
]

_HOUR = Decimal(3600)
_CENT_PARTS = Decimal("0.0001")
_MILLISECONDS = Decimal("0.001")


@dataclass(frozen=True, slots=True, kw_only=True)
class BillRow:
    """Instances of a role that requested the same, at the same price, in one month."""

    month: str
    """`2026-11`, in UTC."""
    role: str
    resources: Mapping[str, str]
    instance_seconds: Decimal
    gpu_seconds: Decimal
    hourly: Decimal
    """Of one instance."""
    parts: tuple[PricePart, ...]
    """What that price is made of."""
    amount: Decimal

    def to_json(self) -> dict[str, Any]:
        """The row with money and time as text, so that no reader makes floats of them."""
        return {
            "month": self.month,
            "role": self.role,
            "resources": dict(self.resources),
            "instance_seconds": seconds_text(self.instance_seconds),
            "gpu_seconds": seconds_text(self.gpu_seconds),
            "price_per_instance_hour": _plain(self.hourly),
            "parts": [
                {
                    "resource": each.resource,
                    "quantity": _plain(each.quantity),
                    "price_per_hour": _plain(each.hourly),
                }
                for each in self.parts
            ],
            "amount": str(self.amount),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """What one run costs, until a time. Its total is the sum of its rows as they are printed."""

    run: str
    """Uid."""
    run_id: str
    job: str
    account: str
    """Empty: nobody reserved for it, so nobody is charged."""
    team: str
    currency: str
    until: float
    final: bool
    """The run is over: unless it is started again, the bill stays as it is."""
    rows: tuple[BillRow, ...]

    @property
    def total(self) -> Decimal:
        return rounded(sum((each.amount for each in self.rows), Decimal(0)))

    @property
    def instance_seconds(self) -> Decimal:
        return sum((each.instance_seconds for each in self.rows), Decimal(0))

    @property
    def gpu_seconds(self) -> Decimal:
        return sum((each.gpu_seconds for each in self.rows), Decimal(0))

    def to_json(self) -> dict[str, Any]:
        """Return the bill as commands and services print it."""
        until = datetime.fromtimestamp(self.until, tz=timezone.utc)
        return {
            "run": self.run,
            "run_id": self.run_id,
            "job": self.job,
            "account": self.account or None,
            "team": self.team or None,
            "currency": self.currency,
            "until": until.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "final": self.final,
            "rows": [each.to_json() for each in self.rows],
            "instance_seconds": seconds_text(self.instance_seconds),
            "gpu_seconds": seconds_text(self.gpu_seconds),
            "total": str(self.total),
        }


def bill_rows(
    attempts: Sequence[AttemptUsage],
    prices: PriceList,
    *,
    node_labels: Mapping[str, Mapping[str, str]],
    until: float,
) -> tuple[BillRow, ...]:
    """Return the rows of a bill, by month, role and price.

    An attempt of an instance counts once, however often it is in the list. `node_labels`: role ->
    what it asks of its nodes. `until`: epoch seconds; what ran on counts up to there.
    """
    pieces: dict[tuple[str, str, tuple[tuple[str, str], ...], tuple[PricePart, ...]], float] = {}
    # very many instances request the same: what that is made of is looked up once between two changes of prices
    parts_of: dict[tuple[str, tuple[tuple[str, str], ...], float], tuple[PricePart, ...]] = {}
    for attempt in {(each.key, each.attempt_id): each for each in attempts}.values():
        role, asked = attempt.key.role, tuple(sorted(attempt.resources.items()))
        end = min(until if attempt.finished_at is None else attempt.finished_at, until)
        spans = [*_cut(attempt.started_at, end, prices)]
        if attempt.finished_at == attempt.started_at == end:
            # Kubernetes tells whole seconds: what took less is on the bill, too
            spans.append((end, end))
        for start, stop in spans:
            kind = (role, asked, prices.changed_at(start))
            parts = parts_of.get(kind)
            if parts is None:
                parts = prices.parts(attempt.resources, node_labels.get(role, {}), at=start)
                parts_of[kind] = parts
            piece = (month_of(start), role, asked, parts)
            pieces[piece] = pieces.get(piece, 0.0) + (stop - start)
    return tuple(
        _row(month, role, dict(asked), parts, seconds)
        for (month, role, asked, parts), seconds in sorted(
            pieces.items(), key=lambda piece: piece[0][:3]
        )
    )


def _row(
    month: str,
    role: str,
    resources: Mapping[str, str],
    parts: tuple[PricePart, ...],
    seconds: float,
) -> BillRow:
    took = Decimal(str(seconds)).quantize(_MILLISECONDS)
    hourly = sum((each.quantity * each.hourly for each in parts), Decimal(0))
    return BillRow(
        month=month,
        role=role,
        resources=resources,
        instance_seconds=took,
        gpu_seconds=(took * gpus_of(resources)).quantize(_MILLISECONDS),
        hourly=hourly,
        parts=parts,
        amount=rounded(hourly * took / _HOUR),
    )


def rounded(money: Decimal) -> Decimal:
    """Return money as it is printed and kept: with four places."""
    return money.quantize(_CENT_PARTS)


def gpus_of(resources: Mapping[str, str]) -> Decimal:
    """Return how many GPUs one instance has."""
    gpus = (exact_quantity(name, text) for name, text in resources.items() if is_gpu(name))
    return sum(gpus, Decimal(0))


def _cut(start: float, end: float, prices: PriceList) -> Iterator[tuple[float, float]]:
    edges = [start, *sorted({*prices.changes(start, end), *_months_between(start, end)}), end]
    for left, right in itertools.pairwise(edges):
        if right > left:
            yield left, right


def _months_between(start: float, end: float) -> Iterator[float]:
    at = datetime.fromtimestamp(start, tz=timezone.utc)
    while True:
        year, month = (at.year + 1, 1) if at.month == 12 else (at.year, at.month + 1)
        at = datetime(year, month, 1, tzinfo=timezone.utc)
        if at.timestamp() >= end:
            return
        yield at.timestamp()


def month_of(at: float) -> str:
    """Return the calendar month of a time, in UTC: `2026-11`."""
    return datetime.fromtimestamp(at, tz=timezone.utc).strftime("%Y-%m")


def seconds_text(seconds: Decimal) -> str:
    """Return seconds to the millisecond."""
    return str(seconds.quantize(_MILLISECONDS))


def _plain(number: Decimal) -> str:
    return f"{number.normalize():f}"


def charges_csv(charges: Sequence[Charge], *, currency: str) -> str:
    """Charges of runs as a table for spreadsheets, the total last."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(
        ["month", "run", "user", "team", "instance_seconds", "gpu_seconds", "amount", "currency"]
    )
    for each in charges:
        table.writerow(
            [each.month, each.run, each.account, each.team, f"{each.instance_seconds:.3f}",
             f"{each.gpu_seconds:.3f}", rounded(each.money), currency]
        )  # fmt: skip
    total = sum((each.money for each in charges), Decimal(0))
    instance_seconds = sum(each.instance_seconds for each in charges)
    gpu_seconds = sum(each.gpu_seconds for each in charges)
    table.writerow(
        ["total", "", "", "", f"{instance_seconds:.3f}", f"{gpu_seconds:.3f}", rounded(total), currency]
    )  # fmt: skip
    return text.getvalue()


def bill_csv(bill: Bill) -> str:
    """Return the rows as a table for spreadsheets, the total last."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(
        ["month", "role", "resources", "instance_seconds", "gpu_seconds",
         "price_per_instance_hour", "amount", "currency"]
    )  # fmt: skip
    for each in bill.rows:
        asked = " ".join(f"{name}={value}" for name, value in sorted(each.resources.items()))
        table.writerow(
            [each.month, each.role, asked, seconds_text(each.instance_seconds),
             seconds_text(each.gpu_seconds), _plain(each.hourly), each.amount, bill.currency]
        )  # fmt: skip
    table.writerow(
        ["total", "", "", seconds_text(bill.instance_seconds), seconds_text(bill.gpu_seconds),
         "", bill.total, bill.currency]
    )  # fmt: skip
    return text.getvalue()
