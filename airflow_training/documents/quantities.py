"""Kubernetes quantities (`500m`, `1Gi`, `1e3`) to numbers. Pure."""

from __future__ import annotations

import math
import re
from typing import Any

__all__ = ["QUANTITY_PATTERN", "bytes_text", "parse_quantity", "quantity_error"]

QUANTITY_PATTERN = r"^\+?([0-9]+\.?[0-9]*|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?$"
"""A quantity that is not below zero, as a plain regular expression."""
_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))"
    r"(?:(?P<suffix>[numkMGTPE]|[KMGTPE]i)|[eE](?P<exponent>[+-]?[0-9]{1,2}))?"
)
_SCALE = {
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "E": 1e18,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
    "Pi": 2.0**50,
    "Ei": 2.0**60,
}
_LIKELY = {
    "gb": "G or Gi",
    "gib": "Gi",
    "g": "G or Gi",
    "mb": "M or Mi",
    "mib": "Mi",
    "kb": "k or Ki",
    "kib": "Ki",
    "ki": "Ki",
    "mi": "Mi",
    "gi": "Gi",
    "ti": "Ti",
    "k": "k or Ki",
    "tb": "T or Ti",
    "tib": "Ti",
    "b": "no suffix: bytes need none",
}


def parse_quantity(value: str | float) -> float:
    """Return a quantity in its base unit (cores, bytes, devices); raises ValueError."""
    problem = quantity_error(value)
    if problem:
        raise ValueError(problem)
    if not isinstance(value, str):
        return float(value)
    found = _QUANTITY.fullmatch(value)
    if found is None:  # cannot be: `quantity_error` has matched the same text
        raise ValueError(value)
    number = float(found["number"])
    if found["exponent"]:
        return number * float(f"1e{found['exponent']}")
    return number * _SCALE[found["suffix"]] if found["suffix"] else number


def bytes_text(number: int) -> str:
    """Return whole bytes as the shortest quantity that is exactly as large: `12Gi`."""
    for suffix in ("Ti", "Gi", "Mi", "Ki"):
        scale = int(_SCALE[suffix])
        if number and number % scale == 0:
            return f"{number // scale}{suffix}"
    return str(number)


def quantity_error(value: Any) -> str:
    """The fault of a quantity in words; empty for a good one."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return "must be a quantity such as 2, 500m or 1Gi"
    if isinstance(value, str):
        found = _QUANTITY.fullmatch(value)
        if found is None:
            return f"'{value}' is no quantity: write 2, 500m, 1.5Gi or 1e3{_likely(value)}"
        if found["number"].startswith("-"):
            return f"'{value}' is below zero"
        return ""
    if not math.isfinite(value):
        return f"{value} is no quantity"
    return f"{value} is below zero" if value < 0 else ""


def _likely(text: str) -> str:
    suffix = re.sub(r"^[\d.+\s-]*", "", text).strip()
    likely = _LIKELY.get(suffix.lower(), "")
    return f" ('{suffix}' may mean {likely})" if likely else ""
