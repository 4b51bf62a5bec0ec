"""Keys of accounts: made at random, kept as a salted HMAC, checked in constant time. No store, no clock.

A key is `atk_<8 hex>_<64 hex>`: what stands before the last `_` is shown and finds it, the rest is
256 bits of chance, which no dictionary holds. So one HMAC-SHA256 with a salt of its own is enough.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from datetime import datetime, timezone

from airflow_training.state.account_records import AccountKey, KeyScope

__all__ = ["key_prefix", "key_problem", "make_key"]

_KEY = re.compile(r"(?P<prefix>atk_[0-9a-f]{8})_(?P<secret>[0-9a-f]{64})")


def make_key(
    account: str, *, scope: KeyScope, now: float, expires_at: float | None
) -> tuple[str, AccountKey]:
    """Return a new key, which is shown once, and what is kept of it."""
    prefix, secret, salt = (
        f"atk_{secrets.token_hex(4)}",
        secrets.token_hex(32),
        secrets.token_hex(16),
    )
    kept = AccountKey(
        prefix=prefix,
        account=account,
        salt=salt,
        digest=_digest(secret, salt),
        scope=scope,
        created_at=now,
        expires_at=expires_at,
    )
    return f"{prefix}_{secret}", kept


def _digest(secret: str, salt: str) -> str:
    return hmac.new(bytes.fromhex(salt), secret.encode(), hashlib.sha256).hexdigest()


def key_prefix(text: str) -> str | None:
    """The part of a key by which it is found; None for a text that is no key."""
    found = _KEY.fullmatch(text)
    return None if found is None else found["prefix"]


def key_problem(text: str, kept: AccountKey | None, *, scope: KeyScope, now: float) -> str:
    """Return why a key does not do, or nothing. Who does not have the secret learns nothing of the key."""
    found = _KEY.fullmatch(text)
    if found is None or kept is None:
        return "no such key"
    if not hmac.compare_digest(_digest(found["secret"], kept.salt), kept.digest):
        return "no such key"
    if kept.revoked_at is not None:
        return f"the key {kept.prefix} was revoked at {_time(kept.revoked_at)}"
    if kept.expires_at is not None and now >= kept.expires_at:
        return f"the key {kept.prefix} has expired at {_time(kept.expires_at)}"
    if scope == "submit" and kept.scope == "read":
        return f"the key {kept.prefix} may only read"
    return ""


def _time(at: float) -> str:
    stamp = datetime.fromtimestamp(at, tz=timezone.utc)
    return stamp.isoformat(timespec="seconds").replace("+00:00", "Z")
