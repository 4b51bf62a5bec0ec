"""What is said to whoever may not train: login, quota or balance, with all numbers and the next command. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from airflow_training.errors import InputError, Problem
from airflow_training.state.account_records import LimitPeriod

__all__ = ["AccountRefusal", "AccountRefused", "number_text"]

_UNITS = {
    "instance_hours": "instance-hours",
    "gpu_hours": "GPU-hours",
    "concurrent_gpus": "GPUs at a time",
}


def number_text(number: Decimal) -> str:
    """Return a number with at most four places, and no more than it needs."""
    rounded = number.quantize(Decimal("0.0001")).normalize()
    return f"{rounded:f}" if rounded else "0"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountRefusal:
    """Why something may not be reserved."""

    names: Literal["login", "quota", "balance"]
    account: str
    """Whose; empty where nobody is logged in."""
    message: str
    limit: str = ""
    """Kind of the limit, or `balance`; empty for a login."""
    period: LimitPeriod = "total"
    amount: Decimal = Decimal(0)
    """The limit; of a balance what was paid, less the threshold."""
    used: Decimal = Decimal(0)
    reserved: Decimal = Decimal(0)
    asked: Decimal = Decimal(0)
    free: Decimal = Decimal(0)
    """What would fit."""
    fitting_hours: Decimal | None = None
    """For how long what was asked would fit; None: for no time, or time is not what is limited."""
    threshold: Decimal = Decimal(0)
    """Of a balance."""
    next_command: str = ""

    @classmethod
    def of_login(cls, message: str, *, account: str = "", next_command: str = "") -> AccountRefusal:
        """Return the refusal of somebody who is not known, or whose key does not do."""
        return cls(names="login", account=account, message=message, next_command=next_command)

    @classmethod
    def of_limit(
        cls,
        account: str,
        *,
        limit: str,
        period: LimitPeriod,
        amount: Decimal,
        used: Decimal,
        reserved: Decimal,
        asked: Decimal,
        hours: Decimal,
        threshold: Decimal,
        currency: str,
    ) -> AccountRefusal:
        """Return the refusal of what does not fit into a limit, with the words for it."""
        free = max(Decimal(0), amount - used - reserved)
        timed = limit != "concurrent_gpus" and asked > 0
        fits = (hours * free / asked).quantize(Decimal("0.01"), "ROUND_DOWN") if timed else None
        unit = _UNITS.get(limit, currency)
        numbers = (
            f"{number_text(used)} used, {number_text(reserved)} reserved, "
            f"{number_text(asked)} asked, {number_text(free)} free"
        )
        if limit == "balance":
            balance = amount + threshold - used
            message = (
                f"the balance of {account} is {number_text(balance)} {currency} and may not go below "
                f"its threshold of {number_text(threshold)}: {number_text(reserved)} reserved, "
                f"{number_text(asked)} asked, {number_text(free)} free"
            )
        else:
            span = {"month": "this month", "total": "in all"}[period]
            span = "" if limit == "concurrent_gpus" else f" {span}"
            message = f"{account} may use {number_text(amount)} {unit}{span}: {numbers}"
        if fits:
            message += f"; what was asked would fit for {number_text(fits)} h"
        elif limit == "concurrent_gpus" and free:
            message += f"; with at most {number_text(free)} GPUs it would fit now"
        command = (
            f"airflow-training accounts pay {account} {number_text(used + reserved + asked - amount)}"
            if limit == "balance"
            else f"airflow-training accounts usage {account}"
        )
        return cls(
            names="balance" if limit == "balance" else "quota",
            account=account,
            message=message,
            limit=limit,
            period=period,
            amount=amount,
            used=used,
            reserved=reserved,
            asked=asked,
            free=free,
            fitting_hours=fits or None,
            threshold=threshold,
            next_command=command,
        )

    def to_json(self) -> dict[str, Any]:
        """The refusal as services answer it, numbers as text."""
        numbers = ("amount", "used", "reserved", "asked", "free", "threshold")
        counted = {name: number_text(getattr(self, name)) for name in numbers} if self.limit else {}
        return {
            "names": self.names,
            "account": self.account or None,
            "limit": self.limit or None,
            "period": self.period if self.limit else None,
            **counted,
            "fitting_hours": None if self.fitting_hours is None else str(self.fitting_hours),
            "message": self.message,
            "next_command": self.next_command or None,
        }


class AccountRefused(InputError):
    """Nothing was reserved; `refusal` says why in numbers."""

    def __init__(self, refusal: AccountRefusal) -> None:
        self.refusal = refusal
        command = refusal.next_command
        super().__init__(
            problems=(
                Problem(
                    code="not_allowed",
                    field=refusal.names,
                    message=refusal.message,
                    value=refusal.account or None,
                    hint=f"`{command}`" if command else "",
                ),
            )
        )
