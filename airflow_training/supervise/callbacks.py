"""The token by which the instances of one run, and of no other, report progress.

It says nothing and is kept nowhere: it follows from the run's uid and a secret of the store.
"""

from __future__ import annotations

import hmac
from hashlib import sha256

from airflow_training.state.store import open_store

__all__ = ["callback_token", "is_token_of"]


def callback_token(run_uid: str) -> str:
    """Return the token of a run. Blocks on the store the first time."""
    secret = open_store().deployment.callback_secret()
    return hmac.new(secret.encode(), f"progress/{run_uid}".encode(), sha256).hexdigest()


def is_token_of(run_uid: str, token: str) -> bool:
    """Return whether a token is the run's; takes as long for a wrong one."""
    return hmac.compare_digest(callback_token(run_uid).encode(), token.encode())
