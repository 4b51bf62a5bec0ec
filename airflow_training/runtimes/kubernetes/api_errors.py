"""How the API server refuses a request: typed errors, what may pass, and the Status that says why. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_training.errors import TrainingError

__all__ = [
    "TRANSIENT",
    "AlreadyExists",
    "ApiError",
    "Conflict",
    "Forbidden",
    "Invalid",
    "NotFound",
    "ResourceVersionExpired",
    "error_of",
    "may_pass",
    "status_of",
]

TRANSIENT = frozenset({429, 500, 502, 503, 504})
"""Codes that say nothing about the request."""
_WEBHOOK_AWAY = "failed calling webhook"
_UNKNOWN_FIELD = re.compile(
    r'unknown field "(?P<strict>[^"]+)"|(?:^|[\s\n:])\.(?P<applied>\S+): field not declared in schema'
)
"""In the words of its decoder, and of server-side apply."""


class ApiError(TrainingError):
    """The server refused a request; carries its own words."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        kind: str = "",
        fields: Sequence[str] = (),
    ) -> None:
        """`kind`, `fields`: what it is about, where the server says so (`services`, `metadata.name`)."""
        super().__init__(message or reason or f"HTTP {code}")
        self.code = code
        self.reason = reason
        self.kind = kind
        self.fields = fields


class NotFound(ApiError):
    """There is no such object, namespace or kind."""


class AlreadyExists(ApiError):
    """An object of this name is there."""


class Conflict(ApiError):
    """The object changed meanwhile, or is not the one (uid) that was meant."""


class ResourceVersionExpired(ApiError):
    """The resource version is too old to watch from: list again."""


class Forbidden(ApiError):
    """Rights, a quota or an admission rule do not allow it."""


class Invalid(ApiError):
    """The document is not acceptable."""


_BY_CODE: Mapping[int, type[ApiError]] = {
    400: Invalid,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: ResourceVersionExpired,
    422: Invalid,
}


def may_pass(code: int, method: str, status: Mapping[str, Any]) -> bool:
    """Return whether the same request may be accepted a moment later."""
    if code in TRANSIENT:
        # a webhook that is away is not the server: who asks is told, and others are answered
        message = str(status.get("message"))
        return _WEBHOOK_AWAY not in message and _UNKNOWN_FIELD.search(message) is None
    # two creates raced for one quota: nothing exists yet, the server asks to try again
    return code == 409 and method == "POST" and status.get("reason") != "AlreadyExists"


def status_of(content: bytes) -> Mapping[str, Any]:
    """Return the Status of a refused request; of anything else its text as the message."""
    try:
        found = json.loads(content)
    except ValueError:
        return {"message": content[:500].decode(errors="replace").strip()}
    return found if isinstance(found, Mapping) else {}


def error_of(code: int, status: Mapping[str, Any]) -> ApiError:
    """Return the error for a code and a Status."""
    reason = str(status.get("reason") or "")
    kind = AlreadyExists if reason == "AlreadyExists" else _BY_CODE.get(code, ApiError)
    about = status.get("details") or {}
    message = str(status.get("message") or "")
    fields = [each.get("field", "") for each in about.get("causes") or ()]
    unknown = [found[1] or found[2] for found in _UNKNOWN_FIELD.finditer(message)]
    return kind(
        code,
        reason,
        message,
        kind=str(about.get("kind") or ""),
        fields=tuple(filter(None, fields or unknown)),
    )
