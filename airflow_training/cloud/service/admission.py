"""Who is let in, and for how much: what the service asks before it takes a byte."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from airflow_training.cloud.protocol import SubmissionRequest
from airflow_training.errors import InputError

__all__ = [
    "Admission",
    "Caller",
    "Grant",
    "KeyAdmission",
    "LoginRefused",
    "QuotaRefused",
    "RightRefused",
    "RunRight",
    "UserSource",
]

RunRight = Literal["read", "read_logs", "act", "submit"]
"""What somebody may do with runs: see how they stand, see what they print and write, end them, send one."""
UserSource = Literal["key", "airflow"]
"""Keys are handed out; or Airflow knows the users, and gives each a token for name and password."""


class LoginRefused(InputError):
    """Nobody with this key is known."""


class RightRefused(InputError):
    """Whoever this is may not do that."""


class QuotaRefused(InputError):
    """The account may not have that much, or has not the money."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks."""

    account: str
    reaches_others: bool = False
    """The right that was asked for is one on the runs of everybody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What an account gets for a submission."""

    reservation: Mapping[str, Any] | None = None
    estimate: str = ""
    """What it will cost, in words."""


class Admission(Protocol):
    """Knows the accounts. All methods block."""

    users: UserSource
    """Where a login gets its key."""

    def login(self, key: str, *, right: RunRight) -> Caller:
        """Who has this key; raises LoginRefused for a key that is none, RightRefused for one that is not for that."""

    def reserve(self, account: str, submission: str, request: SubmissionRequest) -> Grant:
        """Set aside what is asked for, once for a submission; raises QuotaRefused."""

    def release(self, account: str, submission: str) -> None:
        """Give up what was set aside: the submission is refused for another reason."""

    def attach(self, account: str, submission: str, run_uid: str) -> None:
        """The reservation is that run's from now on, which has not begun."""


class KeyAdmission:
    """One account that has one key, without limits or prices: whoever started the service."""

    users: UserSource = "key"

    def __init__(self, key: str, *, account: str) -> None:
        self._key = key.encode()
        self._account = account

    def login(self, key: str, *, right: RunRight) -> Caller:  # noqa: ARG002 - the protocol's
        """See `Admission`."""
        if not hmac.compare_digest(key.encode(), self._key):
            raise LoginRefused.of(
                code="not_allowed",
                field="key",
                message="this service knows no such key",
                hint="airflow-training cloud login NAME URL --key KEY",
            )
        return Caller(account=self._account)

    def reserve(self, account: str, submission: str, request: SubmissionRequest) -> Grant:  # noqa: ARG002 - the protocol's
        """See `Admission`."""
        return Grant()

    def release(self, account: str, submission: str) -> None:
        """See `Admission`."""

    def attach(self, account: str, submission: str, run_uid: str) -> None:
        """See `Admission`."""
