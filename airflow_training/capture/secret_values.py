"""Whether a value that is assigned to a telling name is a secret: by its randomness, not by its name alone. Pure."""

from __future__ import annotations

import math
import re
from collections import Counter

from airflow_training.capture.secret_patterns import (
    EXCUSING_WORDS,
    PASSWORD_ENDS,
    STRONG_ENDS,
    WEAK_ENDS,
)

__all__ = ["is_example", "is_placeholder", "is_secret_name", "looks_secret"]

_PLACEHOLDER = re.compile(
    r"(?i)^(?:<.*|\$.*|\{.*|%.*|\*+|\.+|-+|_+|none|null|true|false|env[.:].*|os\.environ.*|secret|password"
    r"|passwd|token|key|test\w*|foo\w*|bar\w*|admin\d*|postgres|airflow|root|guest|user(?:name)?|pass)$"
    r"|^my[-_]|^my\w*pass|placeholder|your|example|x{4,}|0{6,}|change.?me|dummy|redacted|sample|fake|insert|replace.?me|todo"
    r"|12345678|abcdefgh|deadbeef|qwerty|\.\.\.|\*\*\*|eyJzdWIiOiIxMjM0NTY3ODkw"
)
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_HEX = re.compile(r"[0-9a-fA-F]+")
_OPAQUE = re.compile(r"[A-Za-z0-9+/=_.~:-]+")
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:[.:/-][A-Za-z_]\w*)+")
"""Names, paths and modules: words joined by one sign."""


def is_placeholder(value: str) -> bool:
    """Whether a value stands for one that is to be put there, or is a well-known example."""
    return len(set(value)) < 4 or _PLACEHOLDER.search(value) is not None


def is_example(value: str) -> bool:
    """Whether what has the format of a key is none: the name of a style `sk-toggleable-label`, or an example.

    Of a netrc entry the last word is the password, which may be `$TOKEN`.
    """
    is_style = value.startswith("sk-") and not _has_digit(value)
    return is_style or is_placeholder(value) or is_placeholder(value.split()[-1])


def is_secret_name(name: str) -> str:
    """`strong`, `password` or `weak` for a name that may hold a secret, else empty."""
    words = [w.lower() for w in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]
    joined = "".join(words)
    if joined.endswith(PASSWORD_ENDS):
        return "password"
    if joined.endswith(STRONG_ENDS):
        return "strong"
    if joined.endswith(WEAK_ENDS) and words[-1] in WEAK_ENDS and not EXCUSING_WORDS & {*words}:
        return "weak"
    return ""


def looks_secret(name: str, value: str) -> bool:
    """Whether a value of that name is a secret: random enough for how much the name says."""
    strength = is_secret_name(name)
    if not strength or is_placeholder(value):
        return False
    if strength == "password":
        return _is_password(value)
    digits = len(re.findall(r"[A-Za-z](?=\d)|\d(?=[A-Za-z])", value))
    capitals = len(re.findall(r"[a-z](?=[A-Z])|[A-Z](?=[a-z])", value))
    # digits and letters hardly take turns in names such as V1SecretVolume, nor capitals so often
    irregular = digits >= 3 or (strength == "strong" and capitals >= len(value) / 2.5)
    if not irregular or not _OPAQUE.fullmatch(value):
        return False
    if strength == "strong":
        readable = _DOTTED.fullmatch(value) is not None and _entropy(value) < 4.2
        return len(value) >= 16 and _entropy(value) >= 3.0 and not readable
    if "wandb" in name.lower() and re.fullmatch("[0-9a-f]{40}", value):
        return True
    mixed = value != value.lower() and value != value.upper()
    plain = _HEX.fullmatch(value) or _UUID.fullmatch(value) or _DOTTED.fullmatch(value)
    return len(value) >= 20 and mixed and not plain and _entropy(value) >= 3.7


def _is_password(value: str) -> bool:
    if not 8 <= len(value) <= 200 or any(c.isspace() for c in value) or "(" in value:
        return False
    kinds = (
        any(c.islower() for c in value),
        any(c.isupper() for c in value),
        _has_digit(value),
        any(not c.isalnum() for c in value),
    )
    if _DOTTED.fullmatch(value):
        return False
    return sum(kinds) >= 3 or (len(value) >= 16 and _entropy(value) >= 3.5 and _has_digit(value))


def _has_digit(value: str) -> bool:
    return any(c.isdigit() for c in value)


def _entropy(value: str) -> float:
    """Shannon's, in bits per character."""
    counts = Counter(value).values()
    return -sum(n / len(value) * math.log2(n / len(value)) for n in counts)
