"""Canonical JSON that proves it is whole: sorted keys, no spaces, closed by its own SHA-256.

The digest finds accidents. Where `TRAINING_CHECKPOINT_KEY` is set, documents also carry an HMAC under that key,
and one without it, or with another, is refused.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Mapping
from typing import Any

from airflow_training.checkpoints.errors import BadCheckpoint

__all__ = ["canonical", "is_signed", "seal", "sha256_of", "unseal"]

_KEY_VARIABLE = "TRAINING_CHECKPOINT_KEY"


def canonical(value: Any) -> bytes:
    """Return the one spelling of a JSON value; raises ValueError or TypeError for what is none."""
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode()


def sha256_of(content: bytes) -> str:
    """Return `sha256:<hex>` of bytes."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def is_signed() -> bool:
    """Return whether documents are signed in this process."""
    return bool(os.environ.get(_KEY_VARIABLE))


def seal(document: Mapping[str, Any]) -> bytes:
    """Return the document as bytes, closed by the digest of everything else in it."""
    body = dict(document)
    if is_signed():
        body["hmac"] = _signature(body)
    return canonical({**body, "sha256": sha256_of(canonical(body))})


def unseal(content: bytes, *, what: str) -> dict[str, Any]:
    """Return the document that `seal` closed, without digest and signature.

    Raises:
        BadCheckpoint: with `what` as its subject, where a single byte differs from what was sealed.
    """
    try:
        body = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BadCheckpoint(f"{what} is no JSON document: {error}") from error
    if not isinstance(body, dict) or "sha256" not in body:
        raise BadCheckpoint(f"{what} carries no digest of its own")
    # the spelling counts too: a flipped bit may leave the value as it was, such as 1e5 and 1E5
    try:
        spelled = canonical(body)
    except (ValueError, TypeError) as error:
        raise BadCheckpoint(f"{what} is no canonical document: {error}") from error
    closing = body.pop("sha256")
    if spelled != content or sha256_of(canonical(body)) != closing:
        raise BadCheckpoint(f"{what} does not fit its own digest")
    signature = body.pop("hmac", None)
    if is_signed() and not hmac.compare_digest(str(signature), _signature(body)):
        raise BadCheckpoint(f"{what} is not signed with the key in {_KEY_VARIABLE}")
    return body


def _signature(body: Mapping[str, Any]) -> str:
    key = os.environ[_KEY_VARIABLE].encode()
    return hmac.new(key, canonical(body), hashlib.sha256).hexdigest()
