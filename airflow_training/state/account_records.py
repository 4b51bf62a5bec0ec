"""What the store keeps of accounts, as plain frozen data. Imports no SQLAlchemy, so anyone may import it.

Money is a decimal number in the one currency of the store, hours are decimal numbers too. Times are epoch seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

from airflow_training.control.model import RequestKind
from airflow_training.control.usage import AttemptUsage

__all__ = [
    "Account",
    "AccountFacts",
    "AccountKey",
    "AccountKind",
    "AccountLimit",
    "AtLimit",
    "Charge",
    "ChargedAmounts",
    "KeyScope",
    "LimitKind",
    "LimitPeriod",
    "LiveReservation",
    "Payment",
    "Price",
    "Reservation",
    "ReservedAmounts",
    "ReservedRole",
]

AccountKind = Literal["user", "team"]
AtLimit = Literal["finish", "checkpoint_and_pause", "kill"]
"""What becomes of runs whose account has reached a limit."""
KeyScope = Literal["submit", "read"]
"""`submit` also reads."""
LimitKind = Literal["instance_hours", "gpu_hours", "concurrent_gpus", "money"]
LimitPeriod = Literal["total", "month"]
"""A month is one of the calendar, in UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A user or a team that trainings are charged to."""

    name: str
    kind: AccountKind = "user"
    prepaid: bool = False
    threshold: Decimal = Decimal(0)
    """Of a prepaid account: nothing may bring the balance below."""
    at_limit: AtLimit = "checkpoint_and_pause"
    created_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountKey:
    """A key as it is kept: what it opens and how to check it, never the key itself."""

    prefix: str
    account: str
    salt: str
    digest: str
    """Hex of HMAC-SHA256 over the secret, keyed with the salt."""
    scope: KeyScope
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountLimit:
    account: str
    kind: LimitKind
    period: LimitPeriod
    amount: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What a resource costs from a time on, until a later price of the same."""

    resource: str
    """`instance`, `cpu` (a core), `memory` (a GiB), or a device as it is requested: `nvidia.com/gpu`."""
    node_label: str = ""
    """`key=value` that a role asks of its nodes; empty: any."""
    valid_from: float
    hourly: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Payment:
    id: int
    account: str
    amount: Decimal
    at: float
    reference: str = ""
    """Counted once: the same reference again adds nothing."""
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedRole:
    """Instances that are alike."""

    role: str
    replicas: int
    resources: Mapping[str, str] = field(default_factory=dict)
    """Of one instance, as requested."""
    node_labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedAmounts:
    """What a reservation holds of each limit."""

    instance_hours: Decimal = Decimal(0)
    gpu_hours: Decimal = Decimal(0)
    gpus: Decimal = Decimal(0)
    money: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Resources for some hours, held for one run."""

    id: str
    account: str
    """Of the user."""
    team: str
    """That pays; empty: the user does."""
    key: str
    """Idempotency key of whoever asked."""
    run: str | None
    """Uid; None: not submitted yet."""
    hours: Decimal
    roles: tuple[ReservedRole, ...]
    amounts: ReservedAmounts
    created_at: float
    expires_at: float
    """Until then it waits for its run to begin."""
    ended_at: float | None = None
    """When it was settled or given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveReservation:
    """A reservation that was not settled, and what the ledger says of its run."""

    reservation: Reservation
    run_state: str = ""
    """Empty: there is no such run yet."""
    over: bool = False
    """Nothing of the run is alive, and nothing will be unless it is started again."""
    asked: RequestKind | None = None
    """The newest that somebody asked of the run."""
    asked_number: int = 0
    attempts: Sequence[AttemptUsage] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """What a settled run used in one month."""

    run: str
    month: str
    """`2026-11`."""
    account: str
    team: str
    instance_seconds: float
    gpu_seconds: float
    money: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargedAmounts:
    """Sums of charges."""

    instance_seconds: float = 0.0
    gpu_seconds: float = 0.0
    money: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountFacts:
    """All that a decision about one account needs, of one moment."""

    account: Account
    now: float
    limits: tuple[AccountLimit, ...] = ()
    paid: Decimal = Decimal(0)
    charged: ChargedAmounts = field(default_factory=ChargedAmounts)
    """Of settled runs."""
    charged_by_month: Mapping[str, ChargedAmounts] = field(default_factory=dict)
    """Month (`2026-11`) -> its part of them."""
    charged_to_balance: Decimal = Decimal(0)
    """What of it this account paid: a user's runs for a team are the team's."""
    live: tuple[LiveReservation, ...] = ()
    """That count for this account."""
    prices: tuple[Price, ...] = ()
    currency: str = ""
