"""Kubernetes quantities as exact numbers, and back."""

from __future__ import annotations

import functools
import re
from fractions import Fraction

_SUFFIXES = {
    "": Fraction(1), "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000),
    "k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12),
    "P": Fraction(10**15), "E": Fraction(10**18),
    "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30), "Ti": Fraction(2**40),
    "Pi": Fraction(2**50), "Ei": Fraction(2**60),
}  # fmt: skip
_PATTERN = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:([eE][+-]?\d+)|([A-Za-z]{0,2}))")


@functools.lru_cache(maxsize=4096)
def quantity(text: str | int | float) -> Fraction:
    """Return the value; raises ValueError where the API server would refuse it."""
    found = _PATTERN.fullmatch(str(text))
    if found is None or (found[3] or "") not in _SUFFIXES:
        raise ValueError(
            "quantities must match the regular expression "
            "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )
    exponent = int(found[2][1:]) if found[2] else 0
    return Fraction(found[1]) * Fraction(10) ** exponent * _SUFFIXES[found[3] or ""]


def written(value: Fraction, like: str = "") -> str:
    """Return a canonical spelling: binary suffixes for memory, milli for parts of one."""
    if value.denominator != 1:
        return f"{-(-value * 1000 // 1)}m"
    number = int(value)
    if "memory" in like or "storage" in like:
        for suffix in ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki"):
            size = int(_SUFFIXES[suffix])
            if number and number % size == 0:
                return f"{number // size}{suffix}"
    return str(number)
