"""What one instance costs an hour, at a time. Pure.

An instance costs the sum of its parts: `instance` itself, and each resource that it requests times
its price. What has no price costs nothing.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from airflow_training.documents.quantities import parse_quantity
from airflow_training.state.account_records import Price

__all__ = ["INSTANCE", "PriceList", "PricePart", "exact_quantity"]

INSTANCE = "instance"
"""What each instance is, beside the resources that it requests."""
_GIB = Decimal(1 << 30)


@dataclass(frozen=True, slots=True, kw_only=True)
class PricePart:
    """One resource of an instance, and what a unit of it costs an hour."""

    resource: str
    quantity: Decimal
    """In the unit that is priced: instances, cores, GiB, devices."""
    hourly: Decimal


def exact_quantity(resource: str, text: str) -> Decimal:
    """Return a requested quantity in the unit that is priced: memory in GiB, all else in its base unit."""
    number = Decimal(str(parse_quantity(text)))
    return number / _GIB if resource == "memory" else number


class PriceList:
    """All prices of all times."""

    def __init__(self, prices: Sequence[Price]) -> None:
        self._of: dict[str, list[Price]] = {}
        for each in sorted(prices, key=lambda price: price.valid_from):
            self._of.setdefault(each.resource, []).append(each)
        self._changes = sorted({each.valid_from for each in prices})

    def changes(self, start: float, end: float) -> Sequence[float]:
        """Return the times between, at which any price changes."""
        return [each for each in self._changes if start < each < end]

    def changed_at(self, at: float) -> float:
        """Return the newest change of any price until this time; -inf: there was none."""
        place = bisect.bisect_right(self._changes, at)
        return self._changes[place - 1] if place else -math.inf

    def parts(
        self, resources: Mapping[str, str], node_labels: Mapping[str, str], *, at: float
    ) -> tuple[PricePart, ...]:
        """Priced resources of an instance at a time."""
        wanted = {INSTANCE: Decimal(1)}
        wanted |= {name: exact_quantity(name, text) for name, text in resources.items()}
        return tuple(
            PricePart(resource=name, quantity=quantity, hourly=price.hourly)
            for name, quantity in sorted(wanted.items())
            if (price := self._price(name, node_labels, at=at)) is not None and quantity
        )

    def hourly(
        self, resources: Mapping[str, str], node_labels: Mapping[str, str], *, at: float
    ) -> Decimal:
        """Price of one instance for an hour."""
        parts = self.parts(resources, node_labels, at=at)
        return sum((each.quantity * each.hourly for each in parts), Decimal(0))

    def _price(self, resource: str, node_labels: Mapping[str, str], *, at: float) -> Price | None:
        """Return the newest price of such nodes, else of any."""
        asked = {f"{name}={value}" for name, value in node_labels.items()}
        valid = [each for each in self._of.get(resource, ()) if each.valid_from <= at]
        for_these = [each for each in valid if each.node_label in asked]
        for_any = [each for each in valid if not each.node_label]
        return next(iter([*reversed(for_these), *reversed(for_any)]), None)
